"""The exceptions: one class an operation, each with a stable code, the cause and the remedy."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Region(NamedTuple):
    """A region of a batch that could not be registered."""

    index: int
    """Its place in the batch, from 0."""
    total: int
    """Regions in the batch."""
    address: int
    nbytes: int
    kind: str
    device: int


class Error(Exception):
    """Base of all exceptions of kvferry. ``kvferry codes CODE`` explains a code."""

    def __init__(
        self,
        text: str,
        code: str = "",
        cause: str = "",
        remedy: str = "",
        region: Optional[tuple] = None,
    ) -> None:
        super().__init__(text, code, cause, remedy, region)
        self.text = text
        self.code = code
        """The stable code, such as ``register.unmapped``."""
        self.cause = cause
        """What is wrong, without code and region."""
        self.remedy = remedy
        """What to do about it."""
        self.region = Region(*region) if region else None
        """The region that is to blame, or None."""

    def __str__(self) -> str:
        return self.text


class SettingsError(Error, ValueError):
    """A setting has a value that is not allowed."""


class BuildError(Error):
    """An agent could not be built."""


class ClosedError(Error):
    """The agent is closed."""


class AllocError(Error, MemoryError):
    """Shared memory could not be had."""


class OutOfBounds(Error, IndexError):
    """Bytes that are not in the buffer."""


class RegisterError(Error):
    """Memory could not be registered; nothing of the batch is registered then."""


class DeregisterError(Error):
    """Memory could not be taken back yet, or was not registered."""


class MetadataError(Error):
    """Metadata was refused whole, or is stale; nothing has changed."""


class PeerError(Error):
    """No metadata of such a peer is loaded."""


class ConnectError(Error, ConnectionError):
    """The peer is out of reach."""


class DisconnectError(Error):
    """The peer may still write into our memory."""


class PrepareError(Error):
    """A list of blocks could not be prepared."""


class TransferError(Error):
    """A transfer could not be created."""


class PostError(Error):
    """A transfer was not posted; it can be posted later."""


class TransferFailed(Error):
    """A transfer failed. Any subset of the destination's bytes may have changed, none outside of its blocks."""


class CancelError(Error):
    """A transfer's memory is not quiet yet: keep it and call again."""


class ReleasedError(Error):
    """The transfer was released."""


class NotifyError(Error):
    """A notification was not taken."""


class WaitTimeout(Error, TimeoutError):
    """The transfer has not ended in the time given."""

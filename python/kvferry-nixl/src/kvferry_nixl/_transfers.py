"""What the raw agent's handles of transfers stand for."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import kvferry


class Transfer:
    """A transfer with what kvferry does not know of it."""

    __slots__ = ("message", "peer", "posted", "refused", "started", "transfer")

    def __init__(self, transfer: Any, peer: str, message: Optional[bytes]) -> None:
        # One of kvferry's, or Nothing.
        self.transfer = transfer
        self.peer = peer
        # What a post without a message sends: the last one given.
        self.message = message
        self.posted = False
        self.started = 0.0
        # When its release was first refused, on the monotonic clock; 0 if it never was.
        self.refused = 0.0

    def runs(self) -> bool:
        """Whether it has been posted and has not ended."""
        return self.transfer.status in ("posted", "running")


class Nothing:
    """A transfer without bytes, in place of kvferry's: all it does is to notify."""

    status = "created"
    error: Optional[kvferry.Error] = None

    def __init__(self, notify: Callable[[bytes], Any]) -> None:
        self._notify = notify

    def post(self, message: Optional[bytes]) -> None:
        """Notifies, and is done."""
        if message is not None:
            self._notify(message)
        self.status = "done"

    def release(self, timeout: Optional[float] = None) -> None:
        """There is nothing to wait for."""

    def telemetry(self) -> Dict[str, Any]:
        """Nothing, in no time."""
        return {"post": 0.0, "queue": 0.0, "copy": 0.0, "bytes": 0, "blocks": 0}

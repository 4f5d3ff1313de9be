"""The exception classes, and which of them an error of kvferry becomes."""

from __future__ import annotations

from typing import Callable, Optional, TypeVar

import kvferry


class _NixlError(Exception):
    """What all have beyond the stock ones: where an error of kvferry is behind it, its code, cause, remedy and region."""

    status = "NIXL_ERR_UNKNOWN"

    code = cause = remedy = ""
    region: Optional[kvferry.Region] = None

    @classmethod
    def of(cls, text: str, behind: Optional[kvferry.Error] = None) -> "_NixlError":
        """With the status's name first. Raised by hand, a class takes its text as it is."""
        error = cls(f"{cls.status}: {text}")
        error.cause = text
        if behind is not None:
            error.code, error.cause = behind.code, behind.cause
            error.remedy, error.region = behind.remedy, behind.region
        return error


def _error(name: str, status: str) -> type:
    return type(name, (_NixlError,), {"status": status, "__module__": __name__, "__doc__": status})


nixlNotPostedError = _error("nixlNotPostedError", "NIXL_ERR_NOT_POSTED")
nixlInvalidParamError = _error("nixlInvalidParamError", "NIXL_ERR_INVALID_PARAM")
nixlBackendError = _error("nixlBackendError", "NIXL_ERR_BACKEND")
nixlNotFoundError = _error("nixlNotFoundError", "NIXL_ERR_NOT_FOUND")
nixlMismatchError = _error("nixlMismatchError", "NIXL_ERR_MISMATCH")
nixlNotAllowedError = _error("nixlNotAllowedError", "NIXL_ERR_NOT_ALLOWED")
nixlRepostActiveError = _error("nixlRepostActiveError", "NIXL_ERR_REPOST_ACTIVE")
nixlUnknownError = _error("nixlUnknownError", "NIXL_ERR_UNKNOWN")
nixlNotSupportedError = _error("nixlNotSupportedError", "NIXL_ERR_NOT_SUPPORTED")
nixlRemoteDisconnectError = _error("nixlRemoteDisconnectError", "NIXL_ERR_REMOTE_DISCONNECT")
nixlCancelledError = _error("nixlCancelledError", "NIXL_ERR_CANCELED")
nixlNoTelemetryError = _error("nixlNoTelemetryError", "NIXL_ERR_NO_TELEMETRY")

# By the code; else by its family; else NIXL_ERR_BACKEND.
_BY_CODE = {
    "agent.forked": nixlNotAllowedError,
    "agent.name_invalid": nixlInvalidParamError,
    "settings.invalid": nixlInvalidParamError,
    "register.unsupported_kind": nixlNotSupportedError,
    "deregister.unknown": nixlNotFoundError,
    "metadata.self": nixlInvalidParamError,
    "metadata.stale": nixlNotAllowedError,
    "metadata.unknown_region": nixlNotFoundError,
    "peer.unknown": nixlNotFoundError,
    "peer.lost": nixlRemoteDisconnectError,
    "peer.restarted": nixlRemoteDisconnectError,
    "connect.unreachable": nixlRemoteDisconnectError,
    "connect.refused": nixlRemoteDisconnectError,
    "connect.restarted": nixlRemoteDisconnectError,
    "connect.timeout": nixlRemoteDisconnectError,
    "prepare.zero_length": nixlInvalidParamError,
    "transfer.index": nixlInvalidParamError,
    "transfer.count_mismatch": nixlInvalidParamError,
    "transfer.length_mismatch": nixlInvalidParamError,
    "transfer.overlap": nixlInvalidParamError,
    "transfer.wrong_side": nixlInvalidParamError,
    "transfer.stale_list": nixlNotFoundError,
    "transfer.released": nixlInvalidParamError,
    "post.active": nixlRepostActiveError,
    "notify.too_large": nixlInvalidParamError,
    "cancel.still_running": nixlRepostActiveError,
    "cancel.fenced": nixlRepostActiveError,
}
_BY_FAMILY = {"metadata": nixlMismatchError, "prepare": nixlNotFoundError}

WE_PARTED = "we disconnected it"
"""What an error says of a peer that this side removed itself."""

NOT_YET = "its metadata has no connection information"
"""What an error says of a peer of which only regions are loaded: no loss, the rest may still come."""


def translate(error: kvferry.Error) -> _NixlError:
    """The exception for an error of kvferry: the status's name first, for callers that match on it."""
    kind = _BY_CODE.get(error.code) or _BY_FAMILY.get(error.code.partition(".")[0], nixlBackendError)
    known = {"peer.lost": WE_PARTED, "connect.unreachable": NOT_YET}.get(error.code)
    if known is not None and known in error.text:
        kind = nixlNotFoundError
    text = f"{error.text.replace(f' ({error.code})', '')}; {error.remedy} [{error.code}]"
    region = error.region
    if region is not None:
        where = f"region {region.index} of {region.total}, {region.kind} device {region.device}"
        size = kvferry.human_size(region.nbytes)
        text = f"{where}, {region.address:#x}, {size}: {error.cause}; {error.remedy} [{error.code}]"
        others = error.text.partition("; and ")[2]
        if others:
            text += f"; and {others}"
    return kind.of(text, error)


T = TypeVar("T")


def call(function: Callable[..., T], *args: object) -> T:
    """Calls kvferry and raises what the caller of nixl expects."""
    try:
        return function(*args)
    except kvferry.Error as error:
        raise translate(error) from error

"""The raw agent's configuration and telemetry objects."""

from __future__ import annotations

from typing import Any, Optional

from kvferry_nixl._enums import nixl_thread_sync_t

DEFAULT_COMM_PORT = 8888


class nixlAgentConfig:
    """How a raw agent is made. The delays have no meaning here: nothing polls."""

    def __init__(
        self,
        useProgThread: bool = False,
        useListenThread: bool = False,
        listenPort: int = DEFAULT_COMM_PORT,
        syncMode: nixl_thread_sync_t = nixl_thread_sync_t.NIXL_THREAD_SYNC_DEFAULT,
        num_workers: int = 1,
        pthrDelay: int = 0,
        lthrDelay: int = 100000,
        captureTelemetry: bool = False,
        etcdWatchTimeout: int = 5000000,
    ) -> None:
        self.useProgThread = useProgThread
        self.useListenThread = useListenThread
        self.listenPort = listenPort
        self.syncMode = syncMode
        self.pthrDelay = pthrDelay
        self.lthrDelay = lthrDelay
        self.captureTelemetry = captureTelemetry
        self.etcdWatchTimeout = etcdWatchTimeout

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "syncMode":
            fits = isinstance(value, nixl_thread_sync_t)
        elif name in ("useProgThread", "useListenThread", "captureTelemetry"):
            fits = value is None or hasattr(value, "__bool__")
            value = bool(value)
        else:
            fits = hasattr(value, "__index__")
        if not fits:
            raise TypeError(f"nixlAgentConfig.{name}: {type(value).__name__} is of the wrong type")
        object.__setattr__(self, name, value)


class nixlXferTelemetry:
    """What the last post of a transfer measured; times in microseconds."""

    __slots__ = ("descCount", "postDuration", "startTime", "totalBytes", "xferDuration")

    def __init__(self) -> None:
        self.startTime = 0
        self.postDuration = 0
        self.xferDuration = 0
        self.totalBytes = 0
        self.descCount = 0

    def __repr__(self) -> str:
        return (
            f"<nixlXferTelemetry startTime={self.startTime} postDuration={self.postDuration} "
            f"xferDuration={self.xferDuration} totalBytes={self.totalBytes} descCount={self.descCount}>"
        )


def telemetry(measured: dict, started: float, descs: Optional[int] = None) -> nixlXferTelemetry:
    """The object for what kvferry measured of a transfer that started then."""
    result = nixlXferTelemetry()
    result.startTime = int(started * 1e6)
    result.postDuration = max(1, round(measured["post"] * 1e6))
    # From the post to the end, as the caller sees it.
    result.xferDuration = max(result.postDuration, round((measured["queue"] + measured["copy"]) * 1e6))
    result.totalBytes = measured["bytes"]
    result.descCount = measured["blocks"] if descs is None else descs
    return result

"""Moves the KV cache of language models between processes.

An :class:`Agent` registers memory, learns of peers by their metadata, and moves blocks of memory one-sided::

    import kvferry, numpy

    pool = numpy.zeros((32, 65536), numpy.uint8)
    with kvferry.Agent("decode") as agent, agent.register(pool):
        send_to_prefill(agent.metadata())
        ...

Every failure is a :class:`kvferry.Error` with ``code``, ``cause``, ``remedy`` and, where one is to blame, ``region``.
"""

from kvferry import _start
from kvferry._agent import Agent, MemoryKind, Notification
from kvferry._kvferry import Event, EventQueue, PreparedList, Registration, Settings, SharedBuf, Transfer
from kvferry._kvferry import human_size
from kvferry._explain import explain
from kvferry._version import __version__
from kvferry.errors import (
    AllocError,
    BuildError,
    CancelError,
    ClosedError,
    ConnectError,
    DeregisterError,
    DisconnectError,
    Error,
    MetadataError,
    NotifyError,
    OutOfBounds,
    PeerError,
    PostError,
    PrepareError,
    Region,
    RegisterError,
    ReleasedError,
    SettingsError,
    TransferError,
    TransferFailed,
    WaitTimeout,
)

__all__ = [
    "Agent",
    "AllocError",
    "BuildError",
    "CancelError",
    "ClosedError",
    "ConnectError",
    "DeregisterError",
    "DisconnectError",
    "Error",
    "Event",
    "EventQueue",
    "MemoryKind",
    "MetadataError",
    "Notification",
    "NotifyError",
    "OutOfBounds",
    "PeerError",
    "PostError",
    "PrepareError",
    "PreparedList",
    "Region",
    "RegisterError",
    "Registration",
    "ReleasedError",
    "Settings",
    "SettingsError",
    "SharedBuf",
    "Transfer",
    "TransferError",
    "TransferFailed",
    "WaitTimeout",
    "__version__",
    "explain",
    "human_size",
]

_start.begin()

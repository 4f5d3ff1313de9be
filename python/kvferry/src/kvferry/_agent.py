"""The agent's pleasant face."""

from __future__ import annotations

import enum
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Union

import numpy

from kvferry import _kvferry, _start
from kvferry._kvferry import EventQueue, PreparedList, Registration, Settings, Transfer
from kvferry._memory import as_rows, ranges_of
from kvferry.errors import Error


class MemoryKind(enum.IntEnum):
    """What memory is."""

    DRAM = 0
    """Host memory."""
    VRAM = 1
    """GPU memory; the device is the GPU's number."""
    FILE = 2
    BLOCK = 3
    OBJECT = 4


class Notification(NamedTuple):
    """What a peer has told."""

    peer: str
    payload: bytes


Indices = Union[Sequence[int], numpy.ndarray, None]
Text = Union[str, bytes]


class Agent(_kvferry.Agent):
    """One end of transfers: registers memory, knows peers, moves blocks, tells and is told.

    ``name`` is what peers know it by. Settings come from the environment, or from :class:`Settings`. As a context manager
    it is closed at the end of the block. It can be used from any thread; in a forked child every call raises.
    """

    def __new__(cls, name: str, settings: Optional[Settings] = None) -> "Agent":
        _start.watch()
        agent = super().__new__(cls, name, settings)
        _start.flush()
        return agent

    def register(self, owner: Any, *, kind: Optional[int] = None) -> Registration:
        """Registers the memory of an array, a tensor, a writable buffer, a :class:`SharedBuf`, or of a list of these, all or
        nothing. The registration keeps the owner alive.

        Raises :class:`RegisterError` with the region that is bad, TypeError or ValueError for what has no such memory.
        """
        parts = ranges_of(owner)
        kinds = {part[2] for part in parts}
        if kind is None:
            if len(kinds) > 1:
                raise ValueError("host and GPU memory in one batch: register each kind by itself")
            kind = kinds.pop() if kinds else MemoryKind.DRAM
        rows = numpy.array([(addr, size, device) for addr, size, _, device in parts], numpy.uint64)
        return self._register(int(kind), rows.reshape(-1, 3), owner)

    def register_raw(self, ranges: Any, kind: int = MemoryKind.DRAM) -> List[int]:
        """Registers ranges by address: rows of (address, bytes, device). Returns their ids, for :meth:`deregister`.

        The caller keeps each range mapped, and leaves it alone where transfers touch it, until it is deregistered.
        """
        return self._register_raw(int(kind), as_rows(ranges))

    def validate(self, ranges: Any, kind: int = MemoryKind.DRAM) -> List[Error]:
        """What would keep each of the ranges from being registered, up to a hundred. Registers nothing."""
        return self._validate(int(kind), as_rows(ranges))

    def prepare_local(self, blocks: Any, kind: int = MemoryKind.DRAM) -> PreparedList:
        """Checks blocks of our memory and binds them to its regions.

        Blocks are rows of (address, bytes, device), of (address, bytes, device, stride, count) for grids, or arrays and
        tensors that lie inside registered memory.
        """
        return self._prepare_local(int(kind), as_rows(blocks))

    def prepare_remote(self, peer: str, blocks: Any, kind: int = MemoryKind.DRAM) -> PreparedList:
        """Checks blocks of a peer's memory against its metadata. The agent's own name names the agent itself."""
        return self._prepare_remote(peer, int(kind), as_rows(blocks))

    def check_remote(self, peer: str, blocks: Any = None, kind: int = MemoryKind.DRAM) -> bool:
        """Whether a peer's metadata is loaded and, if blocks are given, covers each of them."""
        return self._check_remote(peer, int(kind), None if blocks is None else as_rows(blocks))

    def read(
        self,
        local: PreparedList,
        remote: PreparedList,
        local_indices: Indices = None,
        remote_indices: Indices = None,
        *,
        notify: Optional[Text] = None,
        merge: bool = True,
        queue: Optional[EventQueue] = None,
    ) -> Transfer:
        """Creates a transfer of the peer's blocks into ours, in pairs. Without indices all blocks take part.

        The peer is sent ``notify`` when the data is there. ``queue`` gets an event at the end.
        """
        payload = _bytes(notify)
        return self.transfer("read", local, local_indices, remote, remote_indices, payload, merge, queue)

    def write(
        self,
        local: PreparedList,
        remote: PreparedList,
        local_indices: Indices = None,
        remote_indices: Indices = None,
        *,
        notify: Optional[Text] = None,
        merge: bool = True,
        queue: Optional[EventQueue] = None,
    ) -> Transfer:
        """Creates a transfer of our blocks into the peer's, in pairs. As :meth:`read`."""
        payload = _bytes(notify)
        return self.transfer("write", local, local_indices, remote, remote_indices, payload, merge, queue)

    def notify(self, peer: str, payload: Text) -> None:
        """Sends a notification to a peer, in order with all others from here. Connects if need be."""
        super().notify(peer, _bytes(payload) or b"")

    def notifications(self) -> List[Notification]:
        """Takes all notifications that have come in; those of one sender are in the order in which it sent them."""
        return [Notification(*told) for told in self._notifications()]

    def partial_metadata(self, ids: Iterable[int], connection: bool = False) -> bytes:
        """The metadata of some regions only; a peer adds them to what it knows."""
        return super().partial_metadata(list(ids), connection)


def _bytes(text: Optional[Text]) -> Optional[bytes]:
    return text.encode() if isinstance(text, str) else text

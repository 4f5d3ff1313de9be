"""What a case has at hand: agents, buffers, waiting with a limit, a peer in another process, scripts."""

from __future__ import annotations

import gc
import importlib
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable

import numpy as np

from .normal import failure

sys.path.append(str(Path(__file__).parents[3] / "clients"))

from ports import free_port  # noqa: E402

#: How long the suite waits for something that is to come, in seconds.
PATIENCE = 10.0


class Modules:
    """The modules of one implementation under its import name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.top = importlib.import_module(name)
        self.api = importlib.import_module(f"{name}._api")
        self.bindings = importlib.import_module(f"{name}._bindings")
        self.utils = importlib.import_module(f"{name}._utils")
        self.logging = importlib.import_module(f"{name}.logging")


class Buffer:
    """Host memory with an owner, page-aligned so that no two share a page."""

    def __init__(self, size: int, fill: int = 0) -> None:
        self.raw = np.zeros(size + 4096, dtype=np.uint8)
        skip = -self.raw.ctypes.data % 4096
        self.bytes = self.raw[skip : skip + size]
        self.bytes[:] = fill
        self.address = self.bytes.ctypes.data
        #: What `pattern` wrote last, whatever has become of the memory since.
        self.written = self.bytes.copy()
        self.size = size

    def pattern(self, seed: int) -> Buffer:
        """Fills with bytes that depend on the place and on `seed`."""
        self.written = pattern(self.size, seed)
        self.bytes[:] = self.written
        return self

    def region(self, meta: Any = "") -> tuple:
        """The buffer as a registration tuple."""
        return (self.address, self.size, 0, meta)

    def blocks(self, length: int, count: int | None = None, start: int = 0) -> list[tuple]:
        """`count` blocks of `length` one after the other, as transfer tuples."""
        count = self.size // length if count is None else count
        return [(self.address + start + i * length, length, 0) for i in range(count)]


def pattern(size: int, seed: int) -> np.ndarray:
    """The bytes that `Buffer.pattern` writes."""
    place = np.arange(size, dtype=np.uint64)
    return ((place * 131 + (place >> 8) * 17 + seed * 29) & 0xFF).astype(np.uint8)


class Side:
    """One agent with one registered buffer."""

    def __init__(self, context: Context, tag: str, size: int, backends: list[str] | None = None, **config: Any) -> None:
        self.agent = context.agent(tag, backends=backends or ["UCX"], **config)
        self.name = self.agent.name
        self.buffer = context.buffer(size)
        self.registered = self.agent.register_memory([self.buffer.region()], "DRAM")

    def descs(self, length: int, count: int | None = None, start: int = 0) -> Any:
        """Blocks of the buffer as a transfer list."""
        return self.agent.get_xfer_descs(self.buffer.blocks(length, count, start), "DRAM")


class Context:
    """Made for each case, closed after it."""

    def __init__(self, modules: Modules, case_id: str) -> None:
        self.modules = modules
        self.case_id = case_id
        self.keep: list[Any] = []
        self.closers: list[Callable[[], None]] = []
        self.peers: list[Peer] = []

    def name(self, tag: str) -> str:
        """An agent name that is the same on both sides and used by no other case."""
        return f"{self.case_id}:{tag}"

    def agent(
        self, tag: str = "a", *, name: str | None = None, backends: list[str] | None = None, **config: Any
    ) -> Any:
        """A new agent; by default without backends, which makes it cheap."""
        made = self.modules.api.nixl_agent_config(backends=[] if backends is None else backends, **config)
        agent = self.modules.api.nixl_agent(self.name(tag) if name is None else name, made)
        self.keep.append(agent)
        return agent

    def buffer(self, size: int, fill: int = 0) -> Buffer:
        """Host memory that lives as long as the case."""
        buffer = Buffer(size, fill)
        self.keep.append(buffer)
        return buffer

    def side(self, tag: str, size: int = 65536, **config: Any) -> Side:
        """An agent with a registered buffer."""
        side = Side(self, tag, size, **config)
        self.keep.append(side)
        return side

    def pair(self, size: int = 65536, **config: Any) -> tuple[Side, Side]:
        """Two agents of this process that know each other, with a registered buffer each."""
        a, b = self.side("a", size, **config), self.side("b", size, **config)
        a.agent.add_remote_agent(b.agent.get_agent_metadata())
        b.agent.add_remote_agent(a.agent.get_agent_metadata())
        return a, b

    def finish(
        self,
        agent: Any,
        handle: Any,
        state: str | None = None,
        *,
        patience: float = PATIENCE,
        meanwhile: Callable[[], Any] | None = None,
    ) -> str:
        """Posts `handle`, unless `state` says that it is posted, and follows it to its end, calling `meanwhile`."""
        state = agent.transfer(handle) if state is None else state
        end = time.monotonic() + patience
        while state == "PROC":
            if time.monotonic() > end:
                return "PROC for too long"
            time.sleep(0)
            if meanwhile is not None:
                meanwhile()
            state = agent.check_xfer_state(handle)
        return state

    def until(self, look: Callable[[], Any], patience: float = PATIENCE) -> bool:
        """Looks until what it sees is true or patience ends."""
        end = time.monotonic() + patience
        while not look():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def notifs(self, agent: Any, count: int, patience: float = PATIENCE) -> dict[str, list[bytes]]:
        """Gathers new notifications until `count` are there."""
        got: dict[str, list[bytes]] = {}

        def look() -> bool:
            for sender, messages in agent.get_new_notifs().items():
                got.setdefault(sender, []).extend(messages)
            return sum(map(len, got.values())) >= count

        self.until(look, patience)
        return got

    def peer(self, tag: str, size: int = 65536, **config: Any) -> Peer:
        """An agent with a registered buffer in another process of the same implementation."""
        peer = Peer(self.modules.name, self.name(tag), size, config)
        self.peers.append(peer)
        self.closers.append(peer.close)
        return peer

    def script(self, text: str, *arguments: str, timeout: float = 60.0) -> dict:
        """Runs a program; `NAME` in it stands for the import name. Lines that begin with "> " are its result."""
        program = text.replace("NAME", self.modules.name)
        try:
            run = subprocess.run(
                [sys.executable, "-c", program, *arguments],
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"hung": True}
        return {"exit": run.returncode, "said": [line[2:] for line in run.stdout.splitlines() if line.startswith("> ")]}

    def port(self) -> int:
        """A TCP port of the loopback address that is free now, and stays so until it is used."""
        return free_port()

    def close(self) -> None:
        """Ends what the case started; agents go first, then the memory they knew."""
        for closer in self.closers:
            closer()
        memory = [k for k in self.keep if isinstance(k, Buffer)]
        memory += [k.buffer for k in self.keep if isinstance(k, Side)]
        self.keep.clear()
        gc.collect()
        memory.clear()


class Peer:
    """The other end of `oracle_peer.py`: each call runs there."""

    def __init__(self, module: str, name: str, size: int, config: dict) -> None:
        near, far = socket.socketpair()
        program = Path(__file__).resolve().parent.parent / "oracle_peer.py"
        self.child = subprocess.Popen(
            [sys.executable, str(program), module, str(far.fileno())],
            pass_fds=[far.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        far.close()
        self.pipe = Connection(near.detach())
        self.name = name
        #: The suite killed it, so that its exit code says nothing.
        self.killed = False
        self.call("start", name, size, config)

    def call(self, method: str, *arguments: Any) -> Any:
        """Runs a method of the peer and returns its answer; an exception there is raised here as `PeerError`."""
        self.pipe.send((method, arguments))
        if not self.pipe.poll(PATIENCE * 2):
            raise TimeoutError(f"the peer does not answer {method}")
        good, answer = self.pipe.recv()
        if not good:
            raise PeerError(answer)
        return answer

    def kill(self) -> None:
        """Ends the peer as a crash would."""
        self.killed = True
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        """Ends the peer; it may be dead already."""
        self.pipe.close()
        try:
            self.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class PeerError(Exception):
    """What a call raised in the peer, as its normal form."""


def peer_failure(error: BaseException) -> dict:
    """The normal form of an error that may have come from the peer."""
    return error.args[0] if isinstance(error, PeerError) else failure(error)

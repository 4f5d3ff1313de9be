"""The second process of a case: one agent with one buffer, steered over a socket by the first."""

from __future__ import annotations

import sys
import zlib
from multiprocessing.connection import Connection
from typing import Any

from oracle_cases.context import Context, Modules
from oracle_cases.normal import failure


class Worker:
    """The calls that the first process can make here."""

    def __init__(self, module: str) -> None:
        self.modules = Modules(module)
        self.polling = True
        self.seen: dict[str, list[bytes]] = {}

    def start(self, name: str, size: int, config: dict) -> None:
        """Makes the agent and registers its buffer."""
        self.context = Context(self.modules, "peer")
        config = {"backends": ["UCX"], **config}
        self.agent = self.modules.api.nixl_agent(name, self.modules.api.nixl_agent_config(**config))
        self.buffer = self.context.buffer(size)
        self.registered = self.agent.register_memory([self.buffer.region()], "DRAM")

    def metadata(self) -> bytes:
        """The agent's full metadata."""
        return self.agent.get_agent_metadata()

    def partial(self, start: int, length: int, connection: bool) -> bytes:
        """Metadata of one part of the buffer, which it registers apart first."""
        descs = self.agent.get_reg_descs([(self.buffer.address + start, length, 0, "")], "DRAM")
        return self.agent.get_partial_agent_metadata(descs, connection, ["UCX"])

    def add(self, metadata: bytes) -> Any:
        """Loads another agent's metadata."""
        return self.agent.add_remote_agent(metadata)

    def address(self) -> int:
        """Where the buffer lies."""
        return self.buffer.address

    def serialized(self, length: int, count: int) -> bytes:
        """The first blocks of the buffer as a serialized list."""
        return self.agent.get_serialized_descs(self.agent.get_xfer_descs(self.buffer.blocks(length, count), "DRAM"))

    def fill(self, seed: int) -> None:
        """Writes a pattern into the buffer."""
        self.buffer.pattern(seed)

    def checksum(self) -> int:
        """CRC of the buffer."""
        return zlib.crc32(self.buffer.bytes.tobytes())

    def notifs(self, count: int, patience: float) -> dict[str, list[bytes]]:
        """New notifications, once `count` are there."""
        return self.context.notifs(self.agent, count, patience)

    def send(self, to: str, message: Any) -> None:
        """A standalone notification."""
        self.agent.send_notif(to, message)

    def deregister(self) -> None:
        """Takes the buffer back."""
        self.agent.deregister_memory(self.registered)

    def read_from(self, peer: str, address: int, length: int) -> str:
        """Reads the first bytes of the buffer from the peer's memory."""
        local = self.agent.get_xfer_descs([(self.buffer.address, length, 0)], "DRAM")
        remote = self.agent.get_xfer_descs([(address, length, 0)], "DRAM")
        return self.context.finish(self.agent, self.agent.initialize_xfer("READ", local, remote, peer))

    def pid(self) -> int:
        """The process."""
        import os

        return os.getpid()


def serve(module: str, fd: int) -> None:
    """Answers until the other end goes away."""
    pipe, worker = Connection(fd), Worker(module)
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, getattr(worker, method)(*arguments))
        except Exception as error:
            answer = (False, failure(error))
        pipe.send(answer)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))

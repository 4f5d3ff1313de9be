"""Drives Dynamo's own `dynamo.nixl_connect` on host memory: two processes, unmodified classes.

    python dynamo_connect.py [--mode operations concurrent cancel killed]

Needs `ai-dynamo-runtime` (without its dependencies), torch, numpy and pydantic.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

from sides import Failed, Side, Worker, one_by_one, parser, pattern, run, same, serve, until

SIZES = (1, 4096, 1 << 20, (3 << 20) + 17)
LARGE = 192 << 20


class End(Worker):
    """A side with a connector, and the operations that are under way there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.operations: dict[str, Any] = {}

    def start(self, name: str) -> str:
        """Makes the connector."""
        import dynamo.nixl_connect as connect
        import torch

        self.connect, self.torch = connect, torch
        self.connector = connect.Connector(name)
        self.loop.run_until_complete(self.connector.initialize())
        return connect.__file__

    def _tensors(self, sizes: list[int], seed: int | None) -> list:
        make = lambda i, size: pattern(seed + i, size) if seed is not None else pattern(0, size) * 0
        return [self.torch.from_numpy(make(i, size)) for i, size in enumerate(sizes)]

    def _descriptors(self, tensors: list) -> list:
        # Both forms that engines use: tensors, and an address with a size.
        return [
            self.connect.Descriptor(t if i % 2 == 0 else (t.data_ptr(), t.numel(), "cpu", t))
            for i, t in enumerate(tensors)
        ]

    def offer(self, key: str, kind: str, sizes: list[int], seed: int | None) -> dict:
        """Makes memory readable or writable; what the other side needs for it."""
        tensors = self._tensors(sizes, seed)
        make = self.connector.create_readable if kind == "READ" else self.connector.create_writable
        operation = self.loop.run_until_complete(make(self._descriptors(tensors)))
        self.operations[key] = operation, tensors
        return operation.metadata().model_dump()

    def begin(self, key: str, offer: dict, sizes: list[int], seed: int | None) -> None:
        """Begins to read or write what was offered; the first look at its state posts it."""
        metadata = self.connect.RdmaMetadata(**offer)
        tensors = self._tensors(sizes, seed)
        if metadata.operation_kind == self.connect.OperationKind.READ:
            work = self.connector.begin_read(metadata, self._descriptors(tensors))
        else:
            work = self.connector.begin_write(self._descriptors(tensors), metadata)
        operation = self.loop.run_until_complete(work)
        self.operations[key] = operation, tensors
        return str(operation.status)

    def finish(self, key: str, sizes: list[int], seed: int | None) -> str:
        """Waits for an operation and lets it go with its memory, whose content has to be that of the seed."""
        operation, tensors = self.operations.pop(key)
        self.loop.run_until_complete(asyncio.wait_for(operation.wait_for_completion(), 30))
        state = str(operation.status)
        if seed is not None:
            for i, (tensor, size) in enumerate(zip(tensors, sizes)):
                same(tensor.numpy(), pattern(seed + i, size), f"{key}, block {i}")
        del operation
        gc.collect()
        return state

    def cancel(self, key: str) -> str:
        """Cancels an operation, lets its memory go, and says how far it was."""
        operation, tensors = self.operations.pop(key)
        state = str(operation.status)
        operation.cancel()
        after = [t.clone() for t in tensors]
        time.sleep(0.02)
        for tensor, then in zip(tensors, after):
            if not self.torch.equal(tensor, then):
                raise Failed("memory changes after cancel()")
        del operation
        gc.collect()
        return state

    def state(self, key: str) -> str:
        """The state of an operation, or how asking for it fails."""
        try:
            return str(self.operations[key][0].status)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def drop(self, key: str) -> None:
        """Lets an operation go."""
        del self.operations[key]
        gc.collect()



def pair() -> tuple[Side, Side]:
    """Two connectors."""
    passive, active = Side(__file__, "end", "passive"), Side(__file__, "end", "active")
    print("loaded", passive.call("start", "passive"))
    active.call("start", "active")
    return passive, active


def operations() -> str:
    """Reads and writes one after the other, of one block and of several."""
    passive, active = pair()
    for number in range(16):
        kind, sizes = ("READ", "WRITE")[number % 2], list(SIZES[: number % 4 + 1])
        key, seed = f"operation {number}", 100 * number
        source, target = (seed, None) if kind == "READ" else (None, seed)
        offer = passive.call("offer", key, kind, sizes, source)
        active.call("begin", key, offer, sizes, target)
        for side in (active, passive):
            state = side.call("finish", key, sizes, seed)
            if state != "DONE":
                raise Failed(f"{side.name}, {key}: {state}")
    return "16 operations"


def concurrent() -> str:
    """Several operations with one peer at once."""
    passive, active = pair()
    keys, sizes = [f"large {i}" for i in range(4)], [LARGE // 2, LARGE // 2]
    seeds = {key: 1000 * i for i, key in enumerate(keys)}
    offers = {key: passive.call("offer", key, "READ", sizes, seeds[key]) for key in keys}
    states = [active.call("begin", key, offers[key], sizes, None) for key in keys]
    for key in keys:
        state = active.call("finish", key, sizes, seeds[key])
        if state != "DONE":
            raise Failed(f"{key}: {state}")
    for key in keys:
        passive.call("finish", key, sizes, None)
    return f"4 reads of {LARGE >> 20} MiB at once, {states.count('INIT')} of them running after the post"


def cancel() -> str:
    """Cancelled while it runs; the next operation with that peer works."""
    passive, active = pair()
    states = []
    for number in range(4):
        key = f"cancelled {number}"
        offer = passive.call("offer", key, "READ", [LARGE], number)
        active.call("begin", key, offer, [LARGE], None)
        states.append(active.call("cancel", key))
        passive.call("drop", key)
        offer = passive.call("offer", "next", "READ", [4096], number)
        active.call("begin", "next", offer, [4096], None)
        for side in (active, passive):
            if side.call("finish", "next", [4096], number) != "DONE":
                raise Failed("the operation after a cancelled one")
    return f"cancelled in states {', '.join(states)}"


def killed() -> str:
    """The passive side dies in the middle of an operation, and comes back under its name."""
    active = Side(__file__, "end", "active")
    active.call("start", "active")
    said = []
    for life in range(3):
        passive = Side(__file__, "end", f"passive, life {life}")
        passive.call("start", "passive")
        offer = passive.call("offer", "whole", "READ", [4096], life)
        active.call("begin", "whole", offer, [4096], None)
        active.call("finish", "whole", [4096], life)
        offer = passive.call("offer", "broken", "READ", [LARGE], life)
        active.call("begin", "broken", offer, [LARGE], None)
        begun = time.monotonic()
        passive.kill()
        # It may have been over before; what matters is that it ends, and that nothing of it stays.
        state = until(lambda: ended(active.call("state", "broken")), 20, "a read from a killed process ends")
        said.append(f"{state[:80]} after {time.monotonic() - begun:.2f} s")
        active.call("drop", "broken")
    return "; ".join(said)


def ended(state: str) -> str:
    """The state, if it is the last one."""
    return "" if state in ("INIT", "PROC") else state


MODES = {"operations": operations, "concurrent": concurrent, "cancel": cancel, "killed": killed}


def main() -> int:
    """Runs the modes, or serves as a side."""
    if sys.argv[1:2] == ["--serve"]:
        serve(End(), int(sys.argv[3]))
        return 0
    given = parser(__doc__, MODES).parse_args()
    return run(lambda: one_by_one(MODES, given.mode), given.limit)


if __name__ == "__main__":
    sys.exit(main())

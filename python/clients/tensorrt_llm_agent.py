"""Drives TensorRT-LLM's own Python transfer agent on host memory: two processes, unmodified `_agent_py.py`.

    python tensorrt_llm_agent.py [--mode transfers restart] [--package DIR]

The package as a whole needs a GPU to import. Its two files that matter here,

    tensorrt_llm/_torch/disaggregation/base/agent.py
    tensorrt_llm/_torch/disaggregation/nixl/_agent_py.py

are loaded as they are from DIR (default: where `tensorrt_llm` would lie in this environment). What they import from the
rest, a logger and a marker for a profiler, is stood in for.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import sysconfig
import time
import types
from pathlib import Path

import numpy
from sides import PAGE, Failed, Side, Worker, aligned, one_by_one, parser, pattern, run, same, serve

FILES = ("_torch/disaggregation/base/agent.py", "_torch/disaggregation/nixl/_agent_py.py")
SIZE = 64 << 20
BLOCK = 48 << 10


def real_modules(package: Path) -> tuple[types.ModuleType, types.ModuleType]:
    """The modules `base.agent` and `nixl._agent_py` from the package's files."""
    root = package / "tensorrt_llm"
    def stand_in(name: str, **members: object) -> None:
        module = types.ModuleType(name)
        for member, value in members.items():
            setattr(module, member, value)
        sys.modules[name] = module

    logger = logging.getLogger("tensorrt_llm")
    stand_in("tensorrt_llm", __path__=[str(root)], logger=logger)
    stand_in("tensorrt_llm.logger", logger=logger)
    stand_in("tensorrt_llm._utils", nvtx_range=lambda name: lambda function: function)
    # Packages whose __init__ would pull in the engine; the folders are the real ones.
    for name in ("_torch", "_torch/disaggregation", "_torch/disaggregation/base", "_torch/disaggregation/nixl"):
        stand_in("tensorrt_llm." + name.replace("/", "."), __path__=[str(root / name)])
    parts = "tensorrt_llm._torch.disaggregation."
    return importlib.import_module(parts + "base.agent"), importlib.import_module(parts + "nixl._agent_py")


class Agent(Worker):
    """A side with TensorRT-LLM's agent and a buffer."""

    def start(self, package: str, name: str, seed: int) -> str:
        """Makes the agent and registers the buffer."""
        self.base, module = real_modules(Path(package))
        self.agent = module.NixlTransferAgent(name, True, num_threads=2)
        self.buffer = aligned(SIZE)
        self.buffer[:] = pattern(seed, SIZE)
        self.shadow = self.buffer.copy()
        self.agent.register_memory(self._registration())
        return module.__file__

    def _registration(self) -> object:
        # Built anew for each call, as the engine does.
        return self.base.RegMemoryDescs("DRAM", [(self.buffer.ctypes.data, SIZE, 0, "kv_cache_memory")])

    def introduction(self) -> tuple[bytes, int]:
        """What the other side needs."""
        return self.agent.get_local_agent_desc(), self.buffer.ctypes.data

    def meet(self, name: str, introduction: tuple[bytes, int], seed: int) -> None:
        """Loads the other side."""
        description, self.there = introduction
        self.agent.load_remote_agent(name, description)
        self.peer, self.theirs = name, pattern(seed, SIZE)

    def _blocks(self, base: int, ids: numpy.ndarray) -> object:
        return self.base.MemoryDescs("DRAM", [(base + int(i) * BLOCK, BLOCK, 0) for i in ids])

    def transfer(self, op: str, seed: int, count: int, message: object, limit_ms: int = 20_000) -> float:
        """Moves random blocks of this side to or from the same places of the other, and waits as the engine does. Returns
        the seconds from the submission."""
        ids = numpy.sort(numpy.random.default_rng(seed).choice(SIZE // BLOCK, count, replace=False))
        request = self.base.TransferRequest(
            getattr(self.base.TransferOp, op),
            self._blocks(self.buffer.ctypes.data, ids),
            self._blocks(self.there, ids),
            self.peer,
            message,
        )
        begun = time.monotonic()
        status = self.agent.submit_transfer_requests(request)
        if not status.wait(limit_ms):
            raise Failed(f"{op} of {count} blocks did not end well within {limit_ms} ms")
        if not status.is_completed():
            raise Failed(f"{op} is not completed after wait() said so")
        took = time.monotonic() - begun
        for i in ids:
            block = slice(i * BLOCK, (i + 1) * BLOCK)
            if op == "READ":
                self.shadow[block] = self.theirs[block]
            else:
                self.theirs[block] = self.shadow[block]
        same(self.buffer, self.shadow, f"own memory after {op}")
        return took

    def contents(self) -> bytes:
        """The buffer."""
        return self.buffer.tobytes()

    def expected_there(self) -> bytes:
        """What the other side's buffer has to be."""
        return self.theirs.tobytes()

    def messages(self, count: int) -> list[bytes]:
        """Messages that came with transfers. The agent has no call for them: they are taken from the one inside."""
        got: list[bytes] = []
        end = time.monotonic() + 10
        while len(got) < count and time.monotonic() < end:
            for messages in self.agent.agent.get_new_notifs().values():
                got += messages
            time.sleep(0.002)
        return got

    def fails(self) -> tuple[str, float]:
        """A transfer to a side that is gone: how it ends, and after how many seconds."""
        begun = time.monotonic()
        try:
            self.transfer("READ", 99, 64, None)
        except Exception as error:
            return f"{type(error).__name__}: {error}", time.monotonic() - begun
        return "", time.monotonic() - begun

    def forget(self) -> None:
        """Forgets the other side."""
        self.agent.invalidate_remote_agent(self.peer)

    def stop(self) -> None:
        """Deregisters with a list built anew, and shuts down."""
        self.agent.deregister_memory(self._registration())
        self.agent.shutdown()


def introduce(here: Side, there: Side, name: str, seed: int) -> None:
    """Loads `there` into `here`."""
    here.call("meet", name, there.call("introduction"), seed)


def transfers(package: str) -> str:
    """READ and WRITE from one block to many, with a message in text, in bytes, and without one."""
    context, generation = Side(__file__, "agent", "context"), Side(__file__, "agent", "generation")
    print("loaded", context.call("start", package, "context_0", 1))
    generation.call("start", package, "generation_0", 2)
    introduce(context, generation, "generation_0", 2)
    sent, times = [], []
    for seed, (op, count, message) in enumerate(
        [("WRITE", 1, "first"), ("READ", 1, None), ("WRITE", 700, b"\0bytes"), ("READ", 700, "read"), ("WRITE", 1365, None)]
    ):
        times.append(f"{op} {count} blocks {context.call('transfer', op, seed, count, message) * 1e3:.1f} ms")
        if message is not None:
            sent.append(message.encode() if isinstance(message, str) else message)
    got = generation.call("messages", len(sent))
    if got != sent:
        raise Failed(f"messages {got} came, {sent} were sent")
    same(
        numpy.frombuffer(generation.call("contents"), numpy.uint8),
        numpy.frombuffer(context.call("expected_there"), numpy.uint8),
        "memory of the target",
    )
    # The other way round, over the same connection.
    generation.call("meet", "context_0", context.call("introduction"), 1)
    context.call("forget")
    introduce(context, generation, "generation_0", 2)
    for side in (context, generation):
        side.call("stop")
    return ", ".join(times)


def restart(package: str) -> str:
    """The target is killed and started again under its name."""
    context = Side(__file__, "agent", "context")
    context.call("start", package, "context_0", 1)
    said = []
    for life in range(3):
        generation = Side(__file__, "agent", f"generation, life {life}")
        generation.call("start", package, "generation_0", 10 + life)
        introduce(context, generation, "generation_0", 10 + life)
        context.call("transfer", "READ", life, 200, None)
        if life < 2:
            generation.kill()
            how, seconds = context.call("fails")
            if not how:
                raise Failed("a transfer to a killed process ends well")
            said.append(f"failed after {seconds:.2f} s: {how[:120]}")
            context.call("forget")
    context.call("stop")
    return "\n".join(said)


MODES = {"transfers": transfers, "restart": restart}


def main() -> int:
    """Runs the modes, or serves as a side."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Agent(), int(sys.argv[3]))
        return 0
    arguments = parser(__doc__, MODES)
    arguments.add_argument("--package", default=sysconfig.get_path("purelib"), help="folder that holds tensorrt_llm/")
    given = arguments.parse_args()
    package = os.path.abspath(given.package)
    if not all((Path(package) / "tensorrt_llm" / file).is_file() for file in FILES):
        print("RESULT SKIP: no tensorrt_llm here; PyPI has only a stub that fetches it from elsewhere")
        return 0
    return run(lambda: one_by_one(MODES, given.mode, package), given.limit)


if __name__ == "__main__":
    assert BLOCK % PAGE == 0
    sys.exit(main())

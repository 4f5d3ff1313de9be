"""Drives Ray's own NIXL tensor transport on host memory: a real cluster of one node, unmodified classes.

    python ray_transport.py [--mode objects manager overlap empty abort killed eviction]

`objects` goes through Ray's public calls, the others call the transport's manager inside of real actors, where it is
possible to say when what happens. Needs `ray` with what it depends on, torch and numpy.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

# The actors import this file's neighbours.
HERE = str(Path(__file__).resolve().parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
# Telemetry of the cluster, and a dashboard that nobody looks at.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray  # noqa: E402
import torch  # noqa: E402
from sides import Failed, one_by_one, parser, pattern, run, until  # noqa: E402

LARGE = 160 << 20


def tensors_of(seed: int, sizes: list[int]) -> list[torch.Tensor]:
    """Tensors of bytes, all of them known from the seed."""
    return [torch.from_numpy(pattern(seed + i, size)) for i, size in enumerate(sizes)]


def wrong(tensors: list[torch.Tensor], seed: int, sizes: list[int]) -> str:
    """What is wrong with tensors that should be those of the seed; empty if nothing is."""
    if [t.numel() for t in tensors] != sizes:
        return f"sizes {[t.numel() for t in tensors]} instead of {sizes}"
    for i, (found, wanted) in enumerate(zip(tensors, tensors_of(seed, sizes))):
        if not torch.equal(found.flatten().view(torch.uint8), wanted):
            return f"tensor {i}: {int((found != wanted).sum())} of {found.numel()} bytes are wrong"
    return ""


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class End:
    """An actor that holds, lends and borrows tensors."""

    def __init__(self) -> None:
        self.lent: dict[str, tuple] = {}
        self.arena = torch.zeros(8 << 20, dtype=torch.uint8)

    def about(self) -> dict:
        """Whose `nixl` it has, and where the transport's module lies."""
        import nixl

        module = sys.modules[type(self.transport()).__module__]
        return {"nixl": nixl.__file__, "ours": bool(getattr(nixl, "__kvferry__", False)), "transport": module.__file__}

    def transport(self) -> Any:
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return get_tensor_transport_manager("NIXL")

    # By Ray's public calls.

    @ray.method(tensor_transport="nixl")
    def make(self, seed: int, sizes: list[int]) -> list[torch.Tensor]:
        """Tensors that stay here until somebody wants them."""
        return tensors_of(seed, sizes)

    @ray.method(tensor_transport="nixl")
    def views(self, seed: int) -> dict[str, torch.Tensor]:
        """Views of one storage that overlap, and the whole of it."""
        whole = tensors_of(seed, [4096])[0]
        return {"whole": whole, "head": whole[:1000], "middle": whole[500:1500]}

    def check(self, tensors: list[torch.Tensor], seed: int, sizes: list[int]) -> str:
        """Tensors that came as an argument."""
        return wrong(tensors, seed, sizes)

    def check_views(self, views: dict[str, torch.Tensor], seed: int) -> str:
        """Views that came as an argument."""
        whole = tensors_of(seed, [4096])[0]
        for name, wanted in (("whole", whole), ("head", whole[:1000]), ("middle", whole[500:1500])):
            if not torch.equal(views[name], wanted):
                return f"{name} is wrong"
        return ""

    def put(self, seed: int, sizes: list[int]) -> list:
        """References to tensors put here."""
        return [ray.put(tensor, _tensor_transport="nixl") for tensor in tensors_of(seed, sizes)]

    def get(self, refs: list, seed: int, sizes: list[int]) -> str:
        """Tensors behind references, taken here."""
        return wrong([ray.get(ref) for ref in refs], seed, sizes)

    def held(self) -> int:
        """Objects whose registration is still held here."""
        return self.transport()._get_num_managed_meta_nixl()

    # By the manager.

    def lend(self, key: str, seed: int, sizes: list[int], reuse: bool = False) -> Any:
        """Registers tensors; what the other end needs. With `reuse` they are one, at an address that earlier ones had."""
        tensors = tensors_of(seed, sizes)
        if reuse:
            view = self.arena.numpy()[: sizes[0]]
            view[:] = tensors[0].numpy()
            # A storage of its own, of that size, at the arena's address.
            tensors = [torch.from_numpy(view)]
        metadata = self.transport().extract_tensor_transport_metadata(key, tensors)
        self.lent[key] = metadata, tensors
        return metadata

    def take_back(self, key: str) -> int:
        """Deregisters them. Returns the version that the other end goes by."""
        metadata, tensors = self.lent.pop(key)
        self.transport().garbage_collect(key, metadata, tensors)
        return self.transport()._nixl_agent_meta_version

    def borrow(self, key: str, metadata: Any, seed: int, sizes: list[int]) -> str:
        """Receives tensors and compares them."""
        return wrong(self.receive(key, metadata), seed, sizes)

    def receive(self, key: str, metadata: Any) -> list[torch.Tensor]:
        transport = self.transport()
        return transport.recv_multiple_tensors(key, metadata, transport.get_communicator_metadata(None, None))

    def give_up(self, key: str, metadata: Any) -> dict:
        """Starts to receive, gives up at once and lets everything go. What it saw on the way."""
        transport = self.transport()
        request = transport.fetch_multiple_tensors(key, metadata, transport.get_communicator_metadata(None, None))
        state = transport.get_nixl_agent().check_xfer_state(request.xfer_handle)
        transport.abort_transport(key, None)
        raised = ""
        try:
            transport.wait_fetch_complete(request)
        except Exception as error:
            raised = type(error).__name__
        tensors = list(request.tensors)
        begun = time.monotonic()
        # The request's end releases the transfer and deregisters the tensors.
        del request
        gc.collect()
        took = time.monotonic() - begun
        then = [t.clone() for t in tensors]
        time.sleep(0.05)
        quiet = all(torch.equal(a, b) for a, b in zip(tensors, then))
        return {"state": state, "raised": raised, "quiet": quiet, "took": took, "cached": len(transport._tensor_desc_cache)}

    def begin(self, key: str, metadata: Any) -> None:
        """Starts to receive."""
        transport = self.transport()
        self.request = transport.fetch_multiple_tensors(key, metadata, transport.get_communicator_metadata(None, None))

    def runs(self) -> bool:
        """Whether that is under way."""
        return self.transport().get_nixl_agent().check_xfer_state(self.request.xfer_handle) == "PROC"

    def end(self, seed: int, sizes: list[int]) -> str:
        """Waits for it, and lets it go."""
        request, self.request = self.request, None
        return wrong(self.transport().wait_fetch_complete(request), seed, sizes)

    def fails(self, key: str, metadata: Any) -> tuple[str, float]:
        """A receive that can't succeed: how it ends and when."""
        begun = time.monotonic()
        try:
            self.receive(key, metadata)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}", time.monotonic() - begun
        return "", time.monotonic() - begun

    def pid(self) -> int:
        """The process."""
        return os.getpid()


def good(answer: str, what: str) -> None:
    """Raises if an actor found something wrong."""
    if answer:
        raise Failed(f"{what}: {answer}")


def ends(count: int) -> list:
    """Actors, each in a process of its own."""
    made = [End.remote() for _ in range(count)]
    about = ray.get([end.about.remote() for end in made])
    print(about[0])
    return made


PAIR: list = []


def pair() -> list:
    """Two actors for all modes of a cluster: their processes take long to start."""
    if not PAIR:
        PAIR.extend(ends(2))
    return PAIR


def objects() -> str:
    """Arguments, references and dictionaries that go from actor to actor, and are freed behind them."""
    source, reader = pair()
    begun, count = time.monotonic(), 0
    for number, sizes in enumerate([[3], [4096] * 5, [1 << 20, 1, 77], [9 << 20]] * 3):
        seed = 100 * number
        good(ray.get(reader.check.remote(source.make.remote(seed, sizes), seed, sizes)), f"argument {number}")
        good(ray.get(reader.get.remote(ray.get(source.put.remote(seed, sizes)), seed, sizes)), f"references {number}")
        good(ray.get(reader.check_views.remote(source.views.remote(seed), seed)), f"views {number}")
        count += 3
    # Many under way at once, in both directions.
    at_once = []
    for number in range(40):
        a, b = (source, reader) if number % 2 else (reader, source)
        at_once.append(b.check.remote(a.make.remote(number, [70_000, 5]), number, [70_000, 5]))
    for number, answer in enumerate(ray.get(at_once)):
        good(answer, f"at once, {number}")
    # The owner of a reference takes the tensors itself.
    good(wrong(ray.get(source.make.remote(5, [100_000])), 5, [100_000]), "in the driver")
    took = time.monotonic() - begun
    for end in (source, reader):
        until(lambda: ray.get(end.held.remote()) == 0, 20, "registrations are given up")
    return f"{count + 41} objects in {took:.1f} s"


def manager() -> str:
    """One address registered with other sizes, versions that change, the same object twice."""
    source, reader = pair()
    times, versions = [], set()
    for number, size in enumerate([4096, 8 << 20, 64, 1 << 20, 8 << 20, 4096]):
        key, sizes = f"reused {number}", [size]
        metadata = ray.get(source.lend.remote(key, number, sizes, True))
        for turn in range(2):
            begun = time.monotonic()
            good(ray.get(reader.borrow.remote(f"{key} {turn}", metadata, number, sizes)), f"{key}, turn {turn}")
            times.append(time.monotonic() - begun)
        versions.add(ray.get(source.take_back.remote(key)))
    if len(versions) != 6:
        raise Failed(f"the version was {sorted(versions)} after six deregistrations")
    # Several lent at once, taken in another order.
    keys = [f"several {i}" for i in range(6)]
    lent = ray.get([source.lend.remote(key, i, [1000 * (i + 1), 50_000]) for i, key in enumerate(keys)])
    for i in (3, 0, 5, 1, 4, 2):
        good(ray.get(reader.borrow.remote(keys[i], lent[i], i, [1000 * (i + 1), 50_000])), keys[i])
        ray.get(source.take_back.remote(keys[i]))
    return f"18 receives, p50 {sorted(times)[len(times) // 2] * 1e3:.1f} ms"


def overlap() -> str:
    """A large object is on its way when another is freed at its source: the version changes, and the manager removes the
    source and loads it again."""
    source, reader = pair()
    large, running = ray.get(source.lend.remote("overlap", 1, [LARGE])), 0
    for number in range(4):
        ray.get(reader.begin.remote(f"overlap {number}", large))
        ray.get(source.lend.remote(f"freed {number}", 2, [100]))
        ray.get(source.take_back.remote(f"freed {number}"))
        small = ray.get(source.lend.remote(f"small {number}", 3, [5000, 7]))
        running += ray.get(reader.runs.remote())
        good(ray.get(reader.borrow.remote(f"small {number}", small, 3, [5000, 7])), "the other object")
        good(ray.get(reader.end.remote(1, [LARGE])), "the large object")
        ray.get(source.take_back.remote(f"small {number}"))
    ray.get(source.take_back.remote("overlap"))
    return f"{running} of 4 were running when their source was removed"


def empty() -> str:
    """Tensors without elements, alone and among others."""
    source, reader = pair()
    for number, sizes in enumerate([[0], [0, 5, 0], [4096, 0], [0, 0]]):
        good(ray.get(reader.check.remote(source.make.remote(number, sizes), number, sizes)), f"sizes {sizes}")
    return "4 objects"


def abort() -> str:
    """Given up while it runs: the release stops it, and the destination can be freed."""
    source, reader = pair()
    metadata = ray.get(source.lend.remote("large", 1, [LARGE]))
    seen = []
    for number in range(6):
        found = ray.get(reader.give_up.remote(f"given up {number}", metadata))
        if not found["quiet"]:
            raise Failed("memory changes after the release")
        if found["cached"]:
            raise Failed(f"{found['cached']} registrations stay")
        if found["state"] == "PROC" and found["raised"] != "RayDirectTransportError":
            raise Failed(f"wait_fetch_complete raised {found['raised'] or 'nothing'}")
        seen.append(f"{found['state']} {found['took'] * 1e3:.0f} ms")
        small = ray.get(source.lend.remote(f"small {number}", 7, [5000]))
        good(ray.get(reader.borrow.remote(f"small {number}", small, 7, [5000])), "the receive after that")
        ray.get(source.take_back.remote(f"small {number}"))
    good(ray.get(reader.borrow.remote("whole", metadata, 1, [LARGE])), "the whole object")
    ray.get(source.take_back.remote("large"))
    return f"released while {', '.join(seen)}"


def killed() -> str:
    """The source dies before and during a transfer; the reader goes on with another."""
    reader, said = pair()[1], []
    for life in range(3):
        (source,) = ends(1)
        known = ray.get(source.lend.remote("known", life, [4096]))
        large = ray.get(source.lend.remote("large", life, [LARGE]))
        if life != 1:
            # In the second life it dies before the reader has heard of it.
            good(ray.get(reader.borrow.remote(f"known {life}", known, life, [4096])), "before the kill")
        pid = ray.get(source.pid.remote())
        answer = reader.fails.remote(f"large {life}", large) if life == 2 else None
        if answer is not None:
            time.sleep(0.01)
        os.kill(pid, 9)
        until(lambda: gone(pid), 10, "the actor's process is gone")
        how, seconds = ray.get(answer if answer is not None else reader.fails.remote(f"large {life}", large))
        if not how and life != 2:
            raise Failed("a receive from a dead actor succeeds")
        said.append(f"{how[:110] or 'was over before'} after {seconds:.2f} s")
    (source,) = ends(1)
    good(ray.get(reader.borrow.remote("new", ray.get(source.lend.remote("new", 3, [1 << 20])), 3, [1 << 20])), "a new source")
    return "; ".join(said)


def gone(pid: int) -> bool:
    """Whether a process is dead, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def eviction() -> str:
    """A reader of four sources that remembers two."""
    reader, *sources = ends(5)
    for number in range(16):
        place = number * 3 % 4
        metadata = ray.get(sources[place].lend.remote(f"object {number}", number, [30_000, 7]))
        good(ray.get(reader.borrow.remote(f"object {number}", metadata, number, [30_000, 7])), f"object {number}")
    return "16 receives from 4 sources"


MODES: dict[str, Callable[[], str]] = {
    "objects": objects,
    "manager": manager,
    "overlap": overlap,
    "empty": empty,
    "abort": abort,
    "killed": killed,
    "eviction": eviction,
}


def cluster(work: Callable[[], None], **variables: str) -> None:
    """Runs work in a cluster of its own, which ends with it."""
    # A short path: sockets lie in it.
    folder = tempfile.mkdtemp(prefix="kvf-ray-", dir="/tmp")
    os.environ.update(variables)
    try:
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=True,
            object_store_memory=200 << 20,
            _temp_dir=folder,
            configure_logging=False,
        )
        work()
    finally:
        PAIR.clear()
        ray.shutdown()
        for name in variables:
            del os.environ[name]
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Runs the modes."""
    given = parser(__doc__, MODES).parse_args()

    def work() -> None:
        plain = [mode for mode in given.mode if mode != "eviction"]
        if plain:
            cluster(lambda: one_by_one(MODES, plain))
        if "eviction" in given.mode:
            cluster(lambda: one_by_one(MODES, ["eviction"]), RAY_NIXL_REMOTE_AGENT_CACHE_MAXSIZE="2")

    return run(work, given.limit)


if __name__ == "__main__":
    sys.exit(main())

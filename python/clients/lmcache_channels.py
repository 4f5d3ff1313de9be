"""Drives LMCache's own transfer channels over NIXL on host memory: one process a channel, unmodified classes.

    python lmcache_channels.py [--mode mp mp-killed pd pd-killed]

`mp` is the channel of the multi-process server (READ of objects out of a peer's buffer), `pd` the one that prefill and
peer-to-peer use (WRITE into a peer's buffer). Needs `lmcache` (without its dependencies), torch, msgspec and pyzmq.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import numpy
from ports import free_port
from sides import Failed, Side, Worker, aligned, one_by_one, parser, pattern, run, same, serve

PAGE = 64 << 10
PAGES = 1024
SIZE = PAGE * PAGES


class Buffer(Worker):
    """A side with a buffer whose every byte is known."""

    def fill(self, seed: int) -> None:
        """Makes the buffer."""
        self.buffer = aligned(SIZE)
        self.buffer[:] = pattern(seed, SIZE)
        self.shadow = self.buffer.copy()

    def check(self, what: str) -> None:
        """Compares the whole buffer with what it has to be."""
        same(self.buffer, self.shadow, what)

    def contents(self) -> bytes:
        """The buffer as it is."""
        return self.buffer.tobytes()


class Mp(Buffer):
    """A process of the multi-process server's kind: a context with its server, and clients of peers."""

    def start(self, seed: int, port: int) -> str:
        """Makes the context over its buffer."""
        from lmcache.v1.distributed.internal_api import L1MemoryDesc
        from lmcache.v1.distributed.transfer_channel.impl import nixl_impl

        self.fill(seed)
        url = f"127.0.0.1:{port}"
        self.context = nixl_impl.create_nixl_transfer_channel_context(
            L1MemoryDesc(ptr=self.buffer.ctypes.data, size=SIZE, align_bytes=PAGE), url, url, backends=["UCX"]
        )
        return nixl_impl.__file__

    def clients(self) -> int:
        """How many peers it is connected to, in whichever direction they met."""
        return self.context.get_num_connected_clients()

    def read(self, port: int, seed: int | bytes, tasks: int, objects: int, limit: float = 30.0) -> str:
        """Reads objects of one to four pages in several tasks at once, each from a thread of its own, and compares the whole
        buffer. The peer's is that of a seed, or given."""
        client = self.context.get_transfer_channel_client(f"127.0.0.1:{port}")
        rng = numpy.random.default_rng([port, tasks, objects])
        starts = rng.permutation(PAGES // 4)[: tasks * objects] * 4
        theirs = numpy.frombuffer(seed, numpy.uint8) if isinstance(seed, bytes) else pattern(seed, SIZE)
        faults: list[Exception] = []

        def task(places: numpy.ndarray, sizes: numpy.ndarray, sources: numpy.ndarray) -> None:
            address = self.context.get_transfer_channel_address
            pairs = lambda begins: [(int(b) * PAGE, int(s)) for b, s in zip(begins, sizes)]
            number = client.submit_read(address(pairs(places)), address(pairs(sources)))
            end = time.monotonic() + limit
            while not (result := client.query_read_status(number)).is_finished():
                if time.monotonic() > end:
                    raise Failed(f"task {number} is not finished within {limit:g} s")
                time.sleep(0.001)
            if result.succeeded_mask != [True] * objects:
                raise Failed(f"task {number}: {result.succeeded_mask.count(True)} of {objects} objects came")

        def guarded(*arguments: Any) -> None:
            try:
                task(*arguments)
            except Exception as error:
                faults.append(error)

        threads = []
        for i in range(tasks):
            places = starts[i * objects : (i + 1) * objects]
            sizes = rng.integers(1, 5, objects) * PAGE
            sources = rng.integers(0, PAGES - 4, objects)
            for place, size, source in zip(places, sizes, sources):
                here, there = int(place) * PAGE, int(source) * PAGE
                self.shadow[here : here + size] = theirs[there : there + size]
            threads.append(threading.Thread(target=guarded, args=(places, sizes, sources)))
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        took = time.monotonic() - begun
        self.check(f"after {tasks} reads")
        return f"{tasks} x {objects} objects in {took * 1e3:.0f} ms"

    def read_until_it_fails(self, port: int, seed: int) -> tuple[str, float]:
        """Reads the same object again and again; how it fails in the end, and how long that call took."""
        client = self.context.get_transfer_channel_client(f"127.0.0.1:{port}")
        address = self.context.get_transfer_channel_address([(0, SIZE // 2)])
        end = time.monotonic() + 30
        while time.monotonic() < end:
            begun = time.monotonic()
            try:
                number = client.submit_read(address, address)
                while not (result := client.query_read_status(number)).is_finished():
                    if time.monotonic() - begun > 20:
                        raise Failed("a read from a killed process does not end within 20 s")
                    time.sleep(0.001)
                if False in result.succeeded_mask:
                    raise RuntimeError("the read is finished and nothing succeeded")
            except Failed:
                raise
            except Exception as error:
                # What half-came stays in the buffer's first half: it is filled anew.
                self.buffer[:] = self.shadow
                return f"{type(error).__name__}: {error}", time.monotonic() - begun
            self.shadow[: SIZE // 2] = pattern(seed, SIZE)[: SIZE // 2]
        raise Failed("reads from a killed process go on succeeding")

    def forget(self, port: int) -> None:
        """Drops the client of a peer, so that the next use of it shakes hands anew."""
        self.context.remove_transfer_channel_client(f"127.0.0.1:{port}")

    def close(self) -> None:
        """Closes the context."""
        self.context.close()


def mp() -> str:
    """Three servers: one dials the other two, and these use the way back that they have learned."""
    sides, ports = [Side(__file__, "mp", f"server {i}") for i in range(3)], [free_port() for _ in range(3)]
    for i, (side, port) in enumerate(zip(sides, ports)):
        where = side.call("start", i + 1, port)
    print("loaded", where)
    said = []
    for other in (1, 2):
        said.append(sides[0].call("read", ports[other], other + 1, 4, 32))
    for other in (1, 2):
        if sides[other].call("clients") != 1:
            raise Failed("the dialled server has no client for the way back")
    # The dialled ones read by the client that they got when they were dialled, from what the first has by now.
    now = sides[0].call("contents")
    for other in (1, 2):
        said.append(sides[other].call("read", ports[0], now, 2, 64))
        if sides[other].call("clients") != 1:
            raise Failed("the dialled server has dialled back")
    for side in sides:
        side.call("close")
    return ", ".join(said)


def mp_killed() -> str:
    """A server is killed while another reads from it; a third one is not disturbed; it comes back at the same address."""
    ports, said = [free_port() for _ in range(3)], []
    reader, bystander = Side(__file__, "mp", "reader"), Side(__file__, "mp", "bystander")
    reader.call("start", 1, ports[0])
    bystander.call("start", 2, ports[1])
    for life in range(3):
        mortal = Side(__file__, "mp", f"mortal, life {life}")
        mortal.call("start", 10 + life, ports[2])
        reader.call("read", ports[2], 10 + life, 2, 16)
        reader.call("read", ports[1], 2, 2, 16)
        if life == 2:
            break
        reader.ask("read_until_it_fails", ports[2], 10 + life)
        time.sleep(0.2)
        mortal.kill()
        how, seconds = reader.answer()
        said.append(f"{how[:100]} after {seconds:.2f} s")
        reader.call("read", ports[1], 2, 2, 16)
        reader.call("forget", ports[2])
    for side in (reader, bystander, mortal):
        side.call("close")
    return "; ".join(said)


class Pd(Buffer):
    """One end of the channel of prefill and peer-to-peer, over pages of LMCache's own allocator."""

    def start(self, role: str, seed: int, port: int | None, asynchronous: bool) -> str:
        """Makes the allocator and the channel."""
        import torch
        from lmcache.v1 import transfer_channel
        from lmcache.v1.memory_allocators.paged_cpu_gpu_memory_allocator import PagedCpuGpuMemoryAllocator
        from lmcache.v1.memory_management import MemoryFormat

        shape, dtype = torch.Size([PAGE // 2]), torch.float16
        self.allocator = PagedCpuGpuMemoryAllocator()
        self.allocator.init_cpu_memory_allocator(SIZE, [shape], [dtype], MemoryFormat.KV_2LTD)
        pages = self.allocator.cpu_allocator
        self.objects = self.allocator.batched_allocate(shape, dtype, PAGES, MemoryFormat.KV_2LTD, "cpu")
        self.buffer = self.allocator.cpu_buffer.numpy()
        self.buffer[:] = pattern(seed, SIZE)
        self.shadow = self.buffer.copy()
        self.asynchronous, self.loop = asynchronous, asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.channel = transfer_channel.CreateTransferChannel(
            channel_type="nixl",
            async_mode=asynchronous,
            role=role,
            buffer_ptr=pages.buffer_ptr,
            buffer_size=SIZE,
            align_bytes=pages.align_bytes,
            tp_rank=0,
            peer_init_url=None if port is None else f"127.0.0.1:{port}",
            device="cpu",
            backends=["UCX"],
            event_loop=self.loop,
        )
        return sys.modules[type(self.channel).__module__].__file__

    def _await(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30) if self.asynchronous else work

    def meet(self, own: str, peer: str, port: int) -> None:
        """Shakes hands with a peer that listens there."""
        name = "async_lazy_init_peer_connection" if self.asynchronous else "lazy_init_peer_connection"
        self._await(getattr(self.channel, name)(local_id=own, peer_id=peer, peer_init_url=f"127.0.0.1:{port}"))

    def move(self, op: str, peer: str, seed: int, pages: list[int], places: list[int], of: int | bytes) -> float:
        """Writes own pages to places of the peer's, or reads its pages into own ones. Returns the seconds."""
        near, far = (pages, places) if op == "write" else (places, pages)
        objects = [self.objects[page] for page in near]
        if [one.meta.address for one in objects] != near:
            raise Failed("the allocator gives its pages out in another order")
        spec = {"receiver_id" if op == "write" else "sender_id": peer, "remote_indexes": far}
        call = getattr(self.channel, f"async_batched_{op}" if self.asynchronous else f"batched_{op}")
        begun = time.monotonic()
        count = self._await(call(objects, spec))
        took = time.monotonic() - begun
        if count != len(near):
            raise Failed(f"{count} of {len(near)} objects went")
        if op == "read":
            theirs = numpy.frombuffer(of, numpy.uint8) if isinstance(of, bytes) else pattern(of, SIZE)
            self.shadow.reshape(PAGES, PAGE)[near] = theirs.reshape(PAGES, PAGE)[far]
        self.check(f"own memory after a {op}")
        return took

    def written(self, seed: int, pages: list[int], places: list[int]) -> None:
        """A peer whose buffer is that of the seed has written its pages to these places."""
        self.shadow.reshape(PAGES, PAGE)[places] = pattern(seed, SIZE).reshape(PAGES, PAGE)[pages]
        self.check("memory after a peer's write")

    def absorb(self, theirs: bytes, pages: list[int], places: list[int]) -> None:
        """A peer has written its pages to these places; its buffer is given."""
        self.shadow.reshape(PAGES, PAGE)[places] = numpy.frombuffer(theirs, numpy.uint8).reshape(PAGES, PAGE)[pages]
        self.check("memory after a peer's write")

    def fails(self, op: str, peer: str, limit: float = 20.0) -> tuple[str, float]:
        """Moves half the buffer again and again until it fails; how, and how long that call took."""
        ids, end = list(range(PAGES // 2)), time.monotonic() + 30
        while time.monotonic() < end:
            begun = time.monotonic()
            try:
                self.move(op, peer, 0, ids, ids, self.shadow.tobytes())
            except Exception as error:
                if time.monotonic() - begun > limit:
                    raise Failed(f"a {op} with a killed process did not end within {limit:g} s") from error
                self.buffer[:] = self.shadow
                return f"{type(error).__name__}: {error}", time.monotonic() - begun
        raise Failed(f"a {op} with a killed process goes on succeeding")


def picked(seed: int, count: int) -> tuple[list[int], list[int]]:
    """Random pages and places, none twice."""
    rng = numpy.random.default_rng(seed)
    return rng.permutation(PAGES)[:count].tolist(), rng.permutation(PAGES)[:count].tolist()


def pd() -> str:
    """Writes and reads of a few and of many pages, by the calls that block and by those that are awaited."""
    said = []
    for asynchronous in (False, True):
        sender, receiver, port = Side(__file__, "pd", "sender"), Side(__file__, "pd", "receiver"), free_port()
        where = receiver.call("start", "receiver", 2, port, asynchronous)
        if not asynchronous:
            print("loaded", where)
        sender.call("start", "sender", 1, None, asynchronous)
        sender.call("meet", "sender", "receiver", port)
        times = []
        for seed, count in enumerate((1, 16, 300, PAGES)):
            pages, places = picked(seed, count)
            times.append(sender.call("move", "write", "receiver", seed, pages, places, 0))
            receiver.call("written", 1, pages, places)
        # The peer has learned the way back.
        pages, places = picked(9, 200)
        receiver.call("move", "write", "sender", 9, pages, places, 0)
        now = receiver.call("contents")
        sender.call("absorb", now, pages, places)
        pages, places = picked(10, 200)
        times.append(sender.call("move", "read", "receiver", 10, pages, places, now))
        said.append(", ".join(f"{seconds * 1e3:.1f}" for seconds in times) + " ms")
        for side in (sender, receiver):
            side.end()
    return f"blocking {said[0]}, awaited {said[1]}"


def pd_killed() -> str:
    """A receiver is killed under a sender, which goes on with another one, and with the new one at the same address."""
    sender, other, ports, said = Side(__file__, "pd", "sender"), Side(__file__, "pd", "other"), [free_port(), free_port()], []
    sender.call("start", "sender", 1, None, False)
    other.call("start", "receiver", 3, ports[1], False)
    sender.call("meet", "sender", "other", ports[1])
    for life in range(3):
        mortal = Side(__file__, "pd", f"mortal, life {life}")
        mortal.call("start", "receiver", 10 + life, ports[0], False)
        sender.call("meet", "sender", "mortal", ports[0])
        pages, places = picked(20 + life, 100)
        sender.call("move", "write", "mortal", life, pages, places, 0)
        mortal.call("written", 1, pages, places)
        if life < 2:
            sender.ask("fails", "write", "mortal")
            time.sleep(0.2)
            mortal.kill()
            how, seconds = sender.answer()
            said.append(f"{how[:100]} after {seconds:.2f} s")
        pages, places = picked(30 + life, 100)
        sender.call("move", "write", "other", life, pages, places, 0)
        other.call("written", 1, pages, places)
    return "; ".join(said)


MODES = {"mp": mp, "mp-killed": mp_killed, "pd": pd, "pd-killed": pd_killed}


def main() -> int:
    """Runs the modes, or serves as a side."""
    if sys.argv[1:2] == ["--serve"]:
        serve({"mp": Mp, "pd": Pd}[sys.argv[2]](), int(sys.argv[3]))
        return 0
    given = parser(__doc__, MODES).parse_args()
    return run(lambda: one_by_one(MODES, given.mode), given.limit)


if __name__ == "__main__":
    sys.exit(main())

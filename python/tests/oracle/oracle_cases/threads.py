"""One agent used from several threads, under the mode in which stock locks."""

from __future__ import annotations

import threading

import numpy as np

from .registry import case


def in_threads(count: int, work) -> list[str]:
    """Runs `work(i)` in threads and returns what went wrong."""
    wrong: list[str] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return wrong


@case(limit=60)
def transfers(nx, ctx):
    """Four threads move their own parts of the memory."""
    a, b = ctx.pair(sync_mode=nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
    a.buffer.pattern(1)

    def work(i: int) -> None:
        for _ in range(10):
            handle = a.agent.initialize_xfer(
                "WRITE", a.descs(1024, 16, start=i * 16384), b.descs(1024, 16, start=i * 16384), b.name
            )
            assert ctx.finish(a.agent, handle) == "DONE"
            handle.release()

    return [in_threads(4, work), bool((a.buffer.written == b.buffer.bytes).all())]


@case(limit=60)
def prepared_lists(nx, ctx):
    """Threads prepare lists and make transfers from them."""
    a, b = ctx.pair(sync_mode=nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
    ids = np.arange(16, dtype=np.int32)

    def work(i: int) -> None:
        for _ in range(10):
            local, remote = (
                a.agent.prep_xfer_dlist("", a.descs(64, 16)),
                a.agent.prep_xfer_dlist(b.name, b.descs(64, 16, start=i * 4096)),
            )
            assert ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, ids, remote, ids)) == "DONE"
            local.release()
            remote.release()

    return in_threads(4, work)


@case(limit=60)
def registering(nx, ctx):
    """Threads register and take back memory of their own."""
    a = ctx.side("a", sync_mode=nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT)
    buffers = [ctx.buffer(4096) for _ in range(4)]

    def work(i: int) -> None:
        for _ in range(25):
            a.agent.deregister_memory(a.agent.register_memory([buffers[i].region()], "DRAM"))

    return in_threads(4, work)

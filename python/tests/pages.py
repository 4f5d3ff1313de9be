import multiprocessing

import kvferry
import numpy

PAGES, PAGE = 32, 64 * 1024


def grid(pool):
    """One row describes a whole pool: address, bytes of a page, device, distance of two pages, pages."""
    return [(pool.ctypes.data, PAGE, 0, PAGE, len(pool))]


def decode(channel):
    """Has room for pages, and is told when they are there."""
    pool = numpy.zeros((PAGES, PAGE), numpy.uint8)
    with kvferry.Agent("decode") as agent, agent.register(pool):
        # The channel is yours. Whoever holds the metadata can connect.
        channel.send((agent.metadata(), grid(pool)))
        events = agent.events()
        while not (told := agent.notifications()):
            events.next(timeout=1.0)
        print(f"decode: {told[0].peer} says: {told[0].payload.decode()}")
        print(f"decode: pages {numpy.flatnonzero(pool[:, 0]).tolist()} hold {pool[pool[:, 0] > 0, 0].tolist()}")
        channel.send("seen")


def prefill(channel):
    """Has the pages, and puts them where decode wants them."""
    pool = numpy.repeat(numpy.arange(1, PAGES + 1, dtype=numpy.uint8), PAGE).reshape(PAGES, PAGE)
    with kvferry.Agent("prefill") as agent, agent.register(pool):
        metadata, theirs = channel.recv()
        peer = agent.load_remote(metadata)
        local, remote = agent.prepare_local(grid(pool)), agent.prepare_remote(peer, theirs)
        # Pages 0, 1 and 2 go to the pages 9, 4 and 30.
        with agent.write(local, remote, [0, 1, 2], [9, 4, 30], notify="request 1 is there") as transfer:
            transfer.post()
            state, path = transfer.wait(timeout=10), transfer.telemetry()["path"]
        channel.recv()
        print(f"prefill: {state}, over {path}")


if __name__ == "__main__":
    # Start a new process rather than fork: an agent does not live on in a forked child.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs,))
    other.start()
    prefill(ours)
    other.join()

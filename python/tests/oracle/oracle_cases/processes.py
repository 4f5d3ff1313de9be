"""Two processes: the second is steered over a pipe; content is compared by checksum on both sides."""

from __future__ import annotations

import zlib

import numpy as np

from .context import PATIENCE, pattern, peer_failure
from .normal import attempt, normal
from .registry import case


def meet(ctx, size: int = 65536, **config):
    """An agent here and one in another process, which know each other."""
    a, peer = ctx.side("here", size, **config), ctx.peer("there", size, **config)
    a.agent.add_remote_agent(peer.call("metadata"))
    peer.call("add", a.agent.get_agent_metadata())
    return a, peer


def crc(buffer) -> int:
    return zlib.crc32(buffer.bytes.tobytes())


def crc_written(buffer) -> int:
    """Of what was written into the buffer before any transfer."""
    return zlib.crc32(buffer.written.tobytes())


def crc_pattern(size: int, seed: int) -> int:
    """Of what the peer wrote into its buffer."""
    return zlib.crc32(pattern(size, seed).tobytes())


@case(limit=60)
def write(nx, ctx):
    """A WRITE over the border, with its message."""
    a, peer = meet(ctx)
    a.buffer.pattern(1)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name, b"w")
    state = ctx.finish(a.agent, handle)
    return [state, peer.call("checksum") == crc_written(a.buffer), normal(peer.call("notifs", 1, PATIENCE))]


@case(limit=60)
def read(nx, ctx):
    """A READ over the border, with its message."""
    a, peer = meet(ctx)
    peer.call("fill", 2)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    state = ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(4096, 16), remote, peer.name, b"r"))
    return [state, bool((a.buffer.bytes == pattern(a.buffer.size, 2)).all()), normal(peer.call("notifs", 1, PATIENCE))]


@case(limit=60)
def by_index(nx, ctx):
    """Prepared grids of both processes, blocks in reversed order."""
    a, peer = meet(ctx)
    peer.call("fill", 3)
    base = peer.call("address")
    local = a.agent.prep_xfer_dlist("", np.array([[a.buffer.address, 1024, 0, 1024, 64]], dtype=np.uint64), "DRAM")
    remote = a.agent.prep_xfer_dlist(peer.name, np.array([[base, 1024, 0, 1024, 64]], dtype=np.uint64), "DRAM")
    ids = np.arange(64, dtype=np.int32)
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("READ", local, ids, remote, ids[::-1].copy(), b"req:1"))
    want = pattern(a.buffer.size, 3).reshape(64, 1024)[::-1].reshape(-1)
    return [state, bool((a.buffer.bytes == want).all()), normal(peer.call("notifs", 1, PATIENCE))]


@case(limit=60)
def large(nx, ctx):
    """4 MiB there and back."""
    a, peer = meet(ctx, 4 << 20)
    a.buffer.pattern(4)
    kept = crc_written(a.buffer)
    remote = a.agent.deserialize_descs(peer.call("serialized", 1 << 18, 16))
    out = [
        ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(1 << 18, 16), remote, peer.name)),
        peer.call("checksum") == kept,
    ]
    a.buffer.bytes[:] = 0
    out.append(ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(1 << 18, 16), remote, peer.name)))
    return [*out, crc(a.buffer) == kept]


@case(limit=60)
def posted_again(nx, ctx):
    """A transfer posted five times with other bytes."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name, b"n")
    out = []
    for seed in range(5):
        a.buffer.pattern(seed)
        out.append([ctx.finish(a.agent, handle), peer.call("checksum") == crc_written(a.buffer)])
    return [out, {k: len(v) for k, v in peer.call("notifs", 5, PATIENCE).items()}]


@case(limit=60)
def messages_both_ways(nx, ctx):
    """Messages alone, in both directions."""
    a, peer = meet(ctx)
    a.agent.send_notif(peer.name, b"ping")
    there = normal(peer.call("notifs", 1, PATIENCE))
    peer.call("send", a.name, b"pong")
    return [there, normal(ctx.notifs(a.agent, 1))]


@case(limit=60)
def other_side_reads(nx, ctx):
    """The other process reads from here while nothing is called here."""
    a, peer = meet(ctx)
    a.buffer.pattern(5)
    state = peer.call("read_from", a.name, a.buffer.address, a.buffer.size)
    return [state, peer.call("checksum") == crc_written(a.buffer)]


@case(limit=60)
def telemetry(nx, ctx):
    """Bytes and descriptors of a transfer over the border."""
    a, peer = meet(ctx, capture_telemetry=True)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 8))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 8), remote, peer.name)
    state = ctx.finish(a.agent, handle)
    found = a.agent.get_xfer_telemetry(handle)
    return [state, found.totalBytes, found.descCount, found.xferDuration >= found.postDuration >= 0]


@case(limit=60)
def connecting_first(nx, ctx):
    """`make_connection` before the first transfer."""
    a, peer = meet(ctx)
    answer = attempt(a.agent.make_connection, peer.name)
    peer.call("fill", 6)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    return [
        answer,
        ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(4096, 16), remote, peer.name)),
        crc(a.buffer) == crc_pattern(a.buffer.size, 6),
    ]


@case(limit=60)
def removed_and_back(nx, ctx):
    """A peer that is removed and loaded again works as before."""
    a, peer = meet(ctx)
    data = peer.call("metadata")
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    out = [ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name))]
    a.agent.remove_remote_agent(peer.name)
    a.agent.add_remote_agent(data)
    a.buffer.pattern(7)
    out.append(ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name)))
    return [*out, peer.call("checksum") == crc_written(a.buffer)]


@case(limit=60)
def outside_of_its_memory(nx, ctx):
    """Blocks that the other process did not register."""
    a, peer = meet(ctx)
    beyond = a.agent.get_xfer_descs([(peer.call("address") + 65536 - 8, 64, 0)], "DRAM")
    return attempt(a.agent.initialize_xfer, "READ", a.descs(64, 1), beyond, peer.name)


@case(limit=60)
def partial_metadata(nx, ctx):
    """Metadata of one region with connection info are enough for a transfer."""
    a, peer = ctx.side("here"), ctx.peer("there")
    answer = a.agent.add_remote_agent(peer.call("partial", 0, 65536, True))
    peer.call("fill", 8)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    state = ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(4096, 16), remote, peer.name))
    return [
        normal(answer),
        a.agent.check_remote_metadata(peer.name, remote),
        state,
        crc(a.buffer) == crc_pattern(a.buffer.size, 8),
    ]


@case(limit=60)
def lost_before_posting(nx, ctx):
    """The peer is killed; the transfer after that ends with the class for a lost peer."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name)
    out = [ctx.finish(a.agent, handle)]
    peer.kill()
    try:
        out.append(ctx.finish(a.agent, handle, patience=20))
    except Exception as error:
        out.append(peer_failure(error))
    return out


@case(
    limit=60,
    differs="stock goes on calling a dead peer known; here it is forgotten, so that callers shake hands anew",
    stock={"outcome": "ok", "result": True},
    ours={"outcome": "ok", "result": False},
)
def lost_is_forgotten(nx, ctx):
    """`check_remote_metadata` after a transfer has found the peer dead."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name)
    ctx.finish(a.agent, handle)
    peer.kill()
    attempt(ctx.finish, a.agent, handle, patience=20)
    return a.agent.check_remote_metadata(peer.name)


@case(
    limit=60,
    differs="stock refuses a peer that was restarted under its name until it is removed; here it is welcome at once",
    stock={"outcome": "ok", "result": [{"raises": "nixlNotAllowedError", "status": "NIXL_ERR_NOT_ALLOWED"}, None]},
    ours={"outcome": "ok", "result": [{"returns": {"bytes": b"processes.restarted:there".hex()}}, "DONE"]},
)
def restarted(nx, ctx):
    """A peer dies and comes back under its name: loaded without removing first."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name))
    peer.kill()
    again = ctx.peer("there")
    answer = attempt(a.agent.add_remote_agent, again.call("metadata"))
    if "raises" in answer:
        return [answer, None]
    remote = a.agent.deserialize_descs(again.call("serialized", 4096, 16))
    return [answer, ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, again.name))]


@case(limit=60)
def restarted_after_removing(nx, ctx):
    """The same with removing first, as clients of stock do."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name))
    peer.kill()
    a.agent.remove_remote_agent(peer.name)
    again = ctx.peer("there")
    a.agent.add_remote_agent(again.call("metadata"))
    a.buffer.pattern(9)
    remote = a.agent.deserialize_descs(again.call("serialized", 4096, 16))
    state = ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, again.name))
    return [state, again.call("checksum") == crc_written(a.buffer)]


@case(limit=60)
def message_to_a_dead_peer(nx, ctx):
    """A message to a peer that is dead raises or is lost, but does not hang."""
    a, peer = meet(ctx)
    a.agent.send_notif(peer.name, b"1")
    peer.call("notifs", 1, PATIENCE)
    peer.kill()
    answers = [attempt(a.agent.send_notif, peer.name, b"2") for _ in range(3)]
    return all(answer == {"returns": None} or answer["raises"].startswith("nixl") for answer in answers)


@case(limit=60)
def released_after_the_loss(nx, ctx):
    """A transfer that failed can be released."""
    a, peer = meet(ctx)
    remote = a.agent.deserialize_descs(peer.call("serialized", 4096, 16))
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 16), remote, peer.name)
    ctx.finish(a.agent, handle)
    peer.kill()
    attempt(ctx.finish, a.agent, handle, patience=20)
    return [attempt(a.agent.release_xfer_handle, handle), attempt(a.agent.deregister_memory, a.registered)]

"""Transfers that can't be made: peers, lists and blocks that do not fit."""

from __future__ import annotations

from .normal import attempt_type
from .registry import case


@case()
def operations(nx, ctx):
    """Operations that do not exist."""
    a, b = ctx.pair()
    return [
        attempt_type(a.agent.initialize_xfer, op, a.descs(64, 1), b.descs(64, 1), b.name)
        for op in ("write", "PUT", "", None, 1)
    ]


@case()
def unknown_peer(nx, ctx):
    """Peers that were never loaded, or removed again."""
    a, b = ctx.pair()
    before = attempt_type(a.agent.initialize_xfer, "WRITE", a.descs(64, 1), b.descs(64, 1), "nobody")
    a.agent.remove_remote_agent(b.name)
    return [
        before,
        attempt_type(a.agent.initialize_xfer, "WRITE", a.descs(64, 1), b.descs(64, 1), b.name),
        attempt_type(a.agent.initialize_xfer, "WRITE", a.descs(64, 1), b.descs(64, 1), ""),
    ]


@case()
def unequal_lists(nx, ctx):
    """Lists of another count or with other lengths."""
    a, b = ctx.pair()
    call = a.agent.initialize_xfer
    return [
        attempt_type(call, "WRITE", a.descs(64, 2), b.descs(64, 1), b.name),
        attempt_type(call, "WRITE", a.descs(64, 1), b.descs(128, 1), b.name),
        attempt_type(call, "WRITE", a.descs(64, 2), b.descs(32, 4), b.name),
    ]


@case()
def empty_lists(nx, ctx):
    """Lists without descriptors."""
    a, b = ctx.pair()
    none = nx.bindings.nixlXferDList(nx.bindings.DRAM_SEG)
    return attempt_type(a.agent.initialize_xfer, "WRITE", none, none, b.name)


@case()
def outside_of_the_regions(nx, ctx):
    """Blocks that are not, or not wholly, inside a registered region, on either side."""
    a, b = ctx.pair()
    make, call = a.agent.get_xfer_descs, a.agent.initialize_xfer
    beyond_here = make([(a.buffer.address + a.buffer.size - 32, 64, 0)], "DRAM")
    beyond_there = make([(b.buffer.address + b.buffer.size - 32, 64, 0)], "DRAM")
    before_there = make([(b.buffer.address - 32, 64, 0)], "DRAM")
    return [
        attempt_type(call, "WRITE", beyond_here, b.descs(64, 1), b.name),
        attempt_type(call, "WRITE", a.descs(64, 1), beyond_there, b.name),
        attempt_type(call, "READ", a.descs(64, 1), before_there, b.name),
        attempt_type(call, "READ", b.descs(64, 1), b.descs(64, 1), b.name),
    ]


@case()
def across_two_regions(nx, ctx):
    """A block over the seam of two registered regions that touch."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.side("b")
    buffer = ctx.buffer(8192)
    a.register_memory([(buffer.address, 4096, 0, ""), (buffer.address + 4096, 4096, 0, "")], "DRAM")
    a.add_remote_agent(b.agent.get_agent_metadata())
    seam = a.get_xfer_descs([(buffer.address + 4000, 200, 0)], "DRAM")
    return attempt_type(a.initialize_xfer, "WRITE", seam, b.descs(200, 1), b.name)


@case()
def another_device_number(nx, ctx):
    """Descriptors with another device number than the region's."""
    a, b = ctx.pair()
    local = a.agent.get_xfer_descs([(a.buffer.address, 64, 1)], "DRAM")
    return attempt_type(a.agent.initialize_xfer, "WRITE", local, b.descs(64, 1), b.name)


@case()
def another_memory_type(nx, ctx):
    """Lists of memory types that the agents do not have."""
    a, b = ctx.pair()
    local = a.agent.get_xfer_descs(a.buffer.blocks(64, 1), "VRAM")
    remote = a.agent.get_xfer_descs(b.buffer.blocks(64, 1), "FILE")
    return [
        attempt_type(a.agent.initialize_xfer, "WRITE", local, b.descs(64, 1), b.name),
        attempt_type(a.agent.initialize_xfer, "WRITE", a.descs(64, 1), remote, b.name),
    ]


@case()
def other_objects(nx, ctx):
    """Arguments of other types."""
    a, b = ctx.pair()
    call = a.agent.initialize_xfer
    return [
        attempt_type(call, "WRITE", a.buffer.blocks(64, 1), b.descs(64, 1), b.name),
        attempt_type(call, "WRITE", None, b.descs(64, 1), b.name),
        attempt_type(call, "WRITE", a.registered, b.descs(64, 1), b.name),
        attempt_type(call, "WRITE", a.descs(64, 1), b.descs(64, 1), None),
        attempt_type(call, "WRITE", a.descs(64, 1), b.descs(64, 1), b.name, b"", ["NO_SUCH"]),
        attempt_type(call, "WRITE", a.descs(64, 1), b.descs(64, 1), b.name, 5),
        attempt_type(a.agent.transfer, None),
        attempt_type(a.agent.check_xfer_state, 0),
        attempt_type(a.agent.release_xfer_handle, None),
    ]

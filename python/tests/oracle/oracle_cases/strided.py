"""N x 5 arrays: rows of equal blocks at equal distances."""

from __future__ import annotations

import numpy as np

from .context import pattern
from .normal import attempt, attempt_type
from .registry import case


def grid(*rows) -> np.ndarray:
    return np.array(rows, dtype=np.uint64)


@case()
def write_between_strides(nx, ctx):
    """Dense here, wide there: the index space counts row by row."""
    a, b = ctx.pair()
    a.buffer.pattern(1)
    local = a.agent.prep_xfer_dlist(
        "NIXL_INIT_AGENT",
        grid([a.buffer.address, 256, 0, 256, 8], [a.buffer.address + 8192, 256, 0, 1024, 4]),
        mem_type="DRAM",
    )
    remote = a.agent.prep_xfer_dlist(b.name, grid([b.buffer.address, 256, 0, 512, 12]), mem_type="DRAM")
    ids = np.arange(12, dtype=np.int32)
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, ids, remote, ids))
    want = np.zeros(b.buffer.size, dtype=np.uint8)
    starts = [i * 256 for i in range(8)] + [8192 + i * 1024 for i in range(4)]
    for i, start in enumerate(starts):
        want[i * 512 : i * 512 + 256] = a.buffer.written[start : start + 256]
    return [state, bool((b.buffer.bytes == want).all())]


@case()
def read_in_reverse(nx, ctx):
    """The blocks of several rows read in reversed order."""
    a, b = ctx.pair()
    b.buffer.pattern(2)
    rows = lambda x: grid([x.address, 128, 0, 256, 10], [x.address + 4096, 128, 0, 128, 10])  # noqa: E731
    local, remote = (
        a.agent.prep_xfer_dlist("", rows(a.buffer), "DRAM"),
        a.agent.prep_xfer_dlist(b.name, rows(b.buffer), "DRAM"),
    )
    ids = np.arange(20, dtype=np.int32)
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("READ", local, ids[::-1].copy(), remote, ids))
    starts = [i * 256 for i in range(10)] + [4096 + i * 128 for i in range(10)]
    got = [a.buffer.bytes[s : s + 128] for s in starts]
    return [state, all(bool((got[19 - i] == b.buffer.written[s : s + 128]).all()) for i, s in enumerate(starts))]


@case()
def with_a_flat_list(nx, ctx):
    """A grid on one side and a flat list on the other."""
    a, b = ctx.pair()
    a.buffer.pattern(3)
    local = a.agent.prep_xfer_dlist("", grid([a.buffer.address, 512, 0, 1024, 8]), "DRAM")
    remote = a.agent.prep_xfer_dlist(b.name, b.descs(512, 8))
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, list(range(8)), remote, list(range(8))))
    want = a.buffer.written[:8192].reshape(8, 1024)[:, :512].reshape(-1)
    return [state, bool((b.buffer.bytes[:4096] == want).all())]


@case()
def rows_of_one_block(nx, ctx):
    """Rows with a count of one."""
    a, b = ctx.pair()
    a.buffer.pattern(4)
    local = a.agent.prep_xfer_dlist(
        "", grid([a.buffer.address, 64, 0, 64, 1], [a.buffer.address + 64, 64, 0, 64, 1]), "DRAM"
    )
    remote = a.agent.prep_xfer_dlist(b.name, grid([b.buffer.address, 64, 0, 64, 2]), "DRAM")
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, [0, 1], remote, [0, 1]))
    return [state, bool((b.buffer.bytes[:128] == a.buffer.written[:128]).all())]


@case()
def loopback(nx, ctx):
    """Grids of one's own memory on both sides."""
    a = ctx.side("a")
    a.buffer.bytes[:4096] = pattern(4096, 5)
    local = a.agent.prep_xfer_dlist("", grid([a.buffer.address, 64, 0, 128, 4]), "DRAM")
    there = a.agent.prep_xfer_dlist(a.name, grid([a.buffer.address + 8192, 64, 0, 64, 4]), "DRAM")
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, [0, 1, 2, 3], there, [0, 1, 2, 3]))
    return [
        state,
        bool((a.buffer.bytes[8192:8448] == pattern(4096, 5)[:512].reshape(4, 128)[:, :64].reshape(-1)).all()),
    ]


@case()
def without_memory_type(nx, ctx):
    """A grid carries no memory type: leaving it out is an error."""
    a = ctx.side("a")
    return [
        attempt(a.agent.prep_xfer_dlist, "", grid([a.buffer.address, 64, 0, 64, 4])),
        attempt(a.agent.prep_xfer_dlist, "", grid([a.buffer.address, 64, 0, 64, 4]), "RAM"),
    ]


@case()
def types_and_layouts(nx, ctx):
    """Arrays of other numbers and in other orders."""
    a = ctx.side("a")
    rows = grid([a.buffer.address, 64, 0, 64, 4], [a.buffer.address + 512, 64, 0, 64, 4])
    prep = a.agent.prep_xfer_dlist
    return {
        "int64": attempt_type(prep, "", rows.astype(np.int64), "DRAM"),
        "float64": attempt_type(prep, "", rows.astype(np.float64), "DRAM"),
        "uint32": attempt_type(prep, "", (rows & 0xFFFF).astype(np.uint32), "DRAM"),
        "column order": attempt_type(prep, "", np.asfortranarray(rows), "DRAM"),
        "every second": attempt_type(prep, "", np.repeat(rows, 2, axis=0)[::2], "DRAM"),
        "no rows": attempt_type(prep, "", rows[:0], "DRAM"),
        "list of lists": attempt_type(prep, "", rows.tolist(), "DRAM"),
        "tuples of five": attempt_type(prep, "", [tuple(r) for r in rows.tolist()], "DRAM"),
    }


@case()
def bad_rows(nx, ctx):
    """Rows without blocks, without bytes, with overlapping blocks, outside of the region."""
    a = ctx.side("a")
    prep, at = a.agent.prep_xfer_dlist, a.buffer.address
    return {
        "count 0": attempt_type(prep, "", grid([at, 64, 0, 64, 0]), "DRAM"),
        "last block outside": attempt_type(prep, "", grid([at, 4096, 0, 4096, 17]), "DRAM"),
        "stride leaves": attempt_type(prep, "", grid([at, 64, 0, 65536, 2]), "DRAM"),
        "not registered": attempt_type(prep, "", grid([4096, 64, 0, 64, 2]), "DRAM"),
        "other device": attempt_type(prep, "", grid([at, 64, 3, 64, 2]), "DRAM"),
        "unknown agent": attempt_type(prep, "nobody", grid([at, 64, 0, 64, 2]), "DRAM"),
        "one good, one bad": attempt_type(prep, "", grid([at, 64, 0, 64, 2], [4096, 64, 0, 64, 2]), "DRAM"),
    }


@case(
    differs="stock multiplies in 64 bits and takes a row whose last block has come round to its first; such a row is "
    "refused here",
    stock={"outcome": "ok", "result": {"returns": "nixl_prepped_dlist_handle"}},
    ours={"outcome": "ok", "result": {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}},
)
def row_that_wraps(nx, ctx):
    """A stride by which the third block comes round to the place of the first."""
    a = ctx.side("a")
    return attempt_type(a.agent.prep_xfer_dlist, "", grid([a.buffer.address, 64, 0, 1 << 63, 3]), "DRAM")


@case(
    differs="stock looks at the stride also where no second block follows",
    stock={"outcome": "ok", "result": {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}},
    ours={"outcome": "ok", "result": {"returns": "nixl_prepped_dlist_handle"}},
)
def stride_of_a_single_block(nx, ctx):
    """A stride of zero in a row of one block."""
    a = ctx.side("a")
    return attempt_type(a.agent.prep_xfer_dlist, "", grid([a.buffer.address, 64, 0, 0, 1]), "DRAM")


@case(
    differs="stock takes no stride that is smaller than the block; blocks that overlap can be read from, and are a "
    "list here",
    stock={"outcome": "ok", "result": {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}},
    ours={"outcome": "ok", "result": {"returns": "nixl_prepped_dlist_handle"}},
)
def overlapping_blocks(nx, ctx):
    """A stride smaller than the block."""
    a = ctx.side("a")
    return attempt_type(a.agent.prep_xfer_dlist, "", grid([a.buffer.address, 64, 0, 32, 4]), "DRAM")


@case()
def index_behind_the_last_block(nx, ctx):
    """The index space ends with the last block of the last row."""
    a, b = ctx.pair()
    local = a.agent.prep_xfer_dlist(
        "", grid([a.buffer.address, 64, 0, 64, 4], [a.buffer.address + 512, 64, 0, 64, 2]), "DRAM"
    )
    remote = a.agent.prep_xfer_dlist(b.name, grid([b.buffer.address, 64, 0, 64, 100]), "DRAM")
    make = a.agent.make_prepped_xfer
    return [attempt_type(make, "WRITE", local, [i], remote, [0]) for i in (5, 6)]


@case()
def unequal_rows(nx, ctx):
    """Rows with blocks of several lengths pair up when partners are equal."""
    a, b = ctx.pair()
    local = a.agent.prep_xfer_dlist(
        "", grid([a.buffer.address, 64, 0, 64, 2], [a.buffer.address + 512, 128, 0, 128, 2]), "DRAM"
    )
    remote = a.agent.prep_xfer_dlist(
        b.name, grid([b.buffer.address, 128, 0, 128, 2], [b.buffer.address + 512, 64, 0, 64, 2]), "DRAM"
    )
    make = a.agent.make_prepped_xfer
    return [
        attempt_type(make, "WRITE", local, [0, 1, 2, 3], remote, [2, 3, 0, 1]),
        attempt_type(make, "WRITE", local, [0], remote, [0]),
    ]


@case()
def no_transfer_list(nx, ctx):
    """`get_xfer_descs` and `initialize_xfer` know no grids."""
    a, b = ctx.pair()
    rows = grid([a.buffer.address, 64, 0, 64, 4])
    return [
        attempt(a.agent.get_xfer_descs, rows, "DRAM"),
        attempt_type(a.agent.initialize_xfer, "WRITE", rows, rows, b.name),
    ]


@case()
def raw_call(nx, ctx):
    """The bindings' overload with a memory type."""
    a = ctx.side("a")
    raw, kind = a.agent.agent, nx.bindings.DRAM_SEG
    rows = grid([a.buffer.address, 64, 0, 64, 4])
    return [
        attempt_type(raw.prepXferDlist, "", kind, rows, []),
        attempt_type(raw.prepXferDlist, agent_name="", mem_type=kind, descs=rows),
        attempt_type(raw.prepXferDlist, "", "DRAM", rows),
        attempt_type(raw.prepXferDlist, "", kind, rows[:, :4].copy()),
        attempt_type(raw.prepXferDlist, "", kind, np.zeros(5, dtype=np.uint64)),
    ]

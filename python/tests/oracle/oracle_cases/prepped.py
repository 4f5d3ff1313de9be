"""Prepared lists, and transfers that pick from them by index."""

from __future__ import annotations

import numpy as np

from .context import Side, pattern
from .normal import attempt, attempt_type, normal, type_name
from .registry import case


def sides(a: Side, b: Side, length: int = 1024, count: int = 16) -> tuple:
    """Prepared lists of both buffers."""
    return a.agent.prep_xfer_dlist("NIXL_INIT_AGENT", a.descs(length, count)), a.agent.prep_xfer_dlist(
        b.name, b.descs(length, count)
    )


def rows(buffer, length: int = 1024, count: int = 16) -> np.ndarray:
    return buffer.bytes[: length * count].reshape(count, length)


def written(buffer, length: int = 1024, count: int = 16) -> np.ndarray:
    """Rows of what was written into the buffer before any transfer."""
    return buffer.written[: length * count].reshape(count, length)


@case()
def names_of_the_local_side(nx, ctx):
    """The local side is called NIXL_INIT_AGENT or has an empty name; one's own name is the loopback side."""
    a = ctx.side("a")
    return [
        type_name(a.agent.prep_xfer_dlist(name, a.descs(64, 4)))
        for name in ("NIXL_INIT_AGENT", "", nx.bindings.NIXL_INIT_AGENT, a.name)
    ]


@case()
def forms(nx, ctx):
    """Tuples, arrays and list objects, by position and keyword."""
    a, b = ctx.pair()
    tuples = a.buffer.blocks(64, 4)
    array = np.array(tuples, dtype=np.uint64)
    prep = a.agent.prep_xfer_dlist
    return [
        attempt_type(prep, "", tuples, "DRAM"),
        attempt_type(prep, "", array, "DRAM"),
        attempt_type(prep, "", array.astype(np.int64), mem_type="cpu"),
        attempt_type(prep, agent_name="", xfer_list=a.descs(64, 4), mem_type=None, backends=["UCX"]),
        attempt_type(prep, b.name, b.buffer.blocks(64, 4), "DRAM", ["UCX"]),
    ]


@case()
def refusals(nx, ctx):
    """Lists that can't be prepared."""
    a, b = ctx.pair()
    prep = a.agent.prep_xfer_dlist
    outside = [(a.buffer.address + a.buffer.size, 64, 0)]
    return {
        "no memory type": attempt_type(prep, "", a.buffer.blocks(64, 1)),
        "not registered here": attempt_type(prep, "", outside, "DRAM"),
        "not registered there": attempt_type(prep, b.name, [(b.buffer.address + b.buffer.size - 1, 64, 0)], "DRAM"),
        "their memory as ours": attempt_type(prep, "", b.descs(64, 1)),
        "unknown agent": attempt_type(prep, "nobody", b.descs(64, 1)),
        "unknown backend": attempt_type(prep, "", a.descs(64, 1), None, ["NO_SUCH"]),
        "other type": attempt_type(prep, "", a.buffer.blocks(64, 1), "VRAM"),
        "registration list": attempt_type(prep, "", a.registered),
        "none": attempt_type(prep, "", None),
        "name of another type": attempt_type(prep, None, a.descs(64, 1)),
    }


@case()
def empty_list(nx, ctx):
    """Preparing a list without descriptors."""
    a = ctx.side("a")
    return attempt_type(a.agent.prep_xfer_dlist, "", nx.bindings.nixlXferDList(nx.bindings.DRAM_SEG))


@case()
def write_by_list(nx, ctx):
    """Indices as a Python list."""
    a, b = ctx.pair()
    a.buffer.pattern(1)
    local, remote = sides(a, b)
    handle = a.agent.make_prepped_xfer("WRITE", local, [0, 5, 9], remote, [15, 3, 4])
    state = ctx.finish(a.agent, handle)
    got, have = rows(b.buffer), written(a.buffer)
    touched = [i for i in range(16) if got[i].any()]
    return [type_name(handle), state, touched, bool((got[[15, 3, 4]] == have[[0, 5, 9]]).all())]


@case()
def read_by_int32(nx, ctx):
    """Indices as int32 arrays."""
    a, b = ctx.pair()
    b.buffer.pattern(2)
    local, remote = sides(a, b)
    ids, theirs = np.array([3, 1, 2], dtype=np.int32), np.array([0, 1, 14], dtype=np.int32)
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("READ", local, ids, remote, theirs))
    got = rows(a.buffer)
    return [
        state,
        [i for i in range(16) if got[i].any()],
        bool((got[[3, 1, 2]] == written(b.buffer)[[0, 1, 14]]).all()),
    ]


@case()
def types_of_indices(nx, ctx):
    """Indices of every type of whole number, in arrays and other sequences."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    out = {}
    for t in (np.int32, np.uint32, np.int64, np.uint64, np.int16):
        ids = np.array([0, 1], dtype=t)
        out[np.dtype(t).name] = attempt_type(a.agent.make_prepped_xfer, "WRITE", local, ids, remote, ids)
    for name, ids in (
        ("tuple", (0, 1)),
        ("range", range(2)),
        ("numpy scalars", list(np.array([0, 1], dtype=np.int32))),
    ):
        out[name] = attempt_type(a.agent.make_prepped_xfer, "WRITE", local, ids, remote, ids)
    return out


@case(
    differs="stock cuts fractions off; numbers with a fraction are no indices here",
    stock={"outcome": "ok", "result": {"returns": "nixl_xfer_handle"}},
    ours={"outcome": "ok", "result": {"raises": "ValueError"}},
)
def indices_with_a_fraction(nx, ctx):
    """Indices as an array of floats."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    ids = np.array([0.0, 1.5])
    return attempt_type(a.agent.make_prepped_xfer, "WRITE", local, ids, remote, ids)


@case(
    differs="stock's conversion fails with a RuntimeError that says nothing; here each wrong argument is told by its "
    "class",
    stock={"outcome": "ok", "result": ["RuntimeError"] * 3},
    ours={"outcome": "ok", "result": ["TypeError", "TypeError", "nixlInvalidParamError"]},
)
def indices_that_are_none(nx, ctx):
    """Indices that are no sequence of numbers, or too large for any list."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    return [
        attempt_type(a.agent.make_prepped_xfer, "WRITE", local, ids, remote, [0]).get("raises")
        for ids in (None, 1, [1 << 40])
    ]


@case()
def mixed_kinds_of_indices(nx, ctx):
    """A list on one side, an array on the other; two types of numbers."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    make = a.agent.make_prepped_xfer
    return [
        attempt_type(make, "WRITE", local, [0, 1], remote, np.array([0, 1], dtype=np.int32)),
        attempt_type(make, "WRITE", local, np.array([0, 1], dtype=np.uint32), remote, np.array([0, 1], dtype=np.int32)),
    ]


@case()
def layouts_of_indices(nx, ctx):
    """Index arrays that are not one contiguous row."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    ids = np.arange(8, dtype=np.int32)
    forms = {
        "every second": ids[::2],
        "reversed": ids[::-1],
        "two dimensions": ids.reshape(2, 4),
        "no dimension": np.array(3, dtype=np.int32),
        "read-only": None,
    }
    fixed = ids.copy()
    fixed.flags.writeable = False
    forms["read-only"] = fixed
    return {name: attempt_type(a.agent.make_prepped_xfer, "WRITE", local, f, remote, f) for name, f in forms.items()}


@case()
def indices_out_of_range(nx, ctx):
    """Indices behind the end, and negative ones."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    make = a.agent.make_prepped_xfer
    return [
        attempt_type(make, "WRITE", local, [16], remote, [0]),
        attempt_type(make, "WRITE", local, [0], remote, [16]),
        attempt_type(make, "WRITE", local, [-1], remote, [0]),
        attempt_type(make, "WRITE", local, np.array([-1], dtype=np.int32), remote, np.array([0], dtype=np.int32)),
        attempt_type(make, "WRITE", local, np.array([0, 99], dtype=np.int32), remote, np.array([0, 1], dtype=np.int32)),
    ]


@case()
def no_indices(nx, ctx):
    """No index at all, and another number on each side."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    make = a.agent.make_prepped_xfer
    none = np.zeros(0, dtype=np.int32)
    return [
        attempt_type(make, "WRITE", local, [], remote, []),
        attempt_type(make, "WRITE", local, none, remote, none),
        attempt_type(make, "WRITE", local, [0, 1], remote, [0]),
        attempt_type(make, "WRITE", local, np.array([0], dtype=np.int32), remote, np.array([0, 1], dtype=np.int32)),
    ]


@case()
def repeated_indices(nx, ctx):
    """One local block to several remote ones."""
    a, b = ctx.pair()
    a.buffer.pattern(3)
    local, remote = sides(a, b)
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, [2, 2, 2], remote, [0, 7, 11]))
    return [state, bool((rows(b.buffer)[[0, 7, 11]] == written(a.buffer)[2]).all())]


@case()
def unequal_lengths(nx, ctx):
    """Blocks of another length on the other side."""
    a, b = ctx.pair()
    local = a.agent.prep_xfer_dlist("", a.descs(1024, 8))
    remote = a.agent.prep_xfer_dlist(b.name, b.descs(512, 8))
    return attempt_type(a.agent.make_prepped_xfer, "WRITE", local, [0, 1], remote, [0, 1])


@case()
def sides_in_the_wrong_place(nx, ctx):
    """Local and remote list exchanged, twice the same, a loopback list on the local side."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    loop = a.agent.prep_xfer_dlist(a.name, a.descs(1024, 16))
    make = a.agent.make_prepped_xfer
    return [
        attempt_type(make, "WRITE", remote, [0], local, [0]),
        attempt_type(make, "WRITE", local, [0], local, [1]),
        attempt_type(make, "WRITE", remote, [0], remote, [1]),
        attempt_type(make, "WRITE", loop, [0], remote, [1]),
    ]


@case()
def loopback(nx, ctx):
    """One's own memory on both sides."""
    a = ctx.side("a")
    a.buffer.bytes[:1024] = pattern(1024, 4)
    local = a.agent.prep_xfer_dlist("", a.descs(1024, 16))
    there = a.agent.prep_xfer_dlist(a.name, a.descs(1024, 16))
    state = ctx.finish(a.agent, a.agent.make_prepped_xfer("WRITE", local, [0], there, [9]))
    return [state, bool((rows(a.buffer)[9] == pattern(1024, 4)).all())]


@case()
def skipping_the_merge(nx, ctx):
    """With and without merging the same bytes arrive."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    out = []
    for skip in (False, True):
        a.buffer.pattern(5 + skip)
        handle = a.agent.make_prepped_xfer("WRITE", local, list(range(8)), remote, list(range(8, 16)), b"", [], skip)
        out.append([ctx.finish(a.agent, handle), bool((rows(b.buffer)[8:] == written(a.buffer)[:8]).all())])
    return out


@case()
def by_keyword(nx, ctx):
    """All arguments by name."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    handle = a.agent.make_prepped_xfer(
        operation="WRITE",
        local_xfer_side=local,
        local_indices=[0],
        remote_xfer_side=remote,
        remote_indices=[1],
        notif_msg=b"note",
        backends=["UCX"],
        skip_desc_merge=True,
    )
    return [ctx.finish(a.agent, handle), normal(ctx.notifs(b.agent, 1)), a.agent.query_xfer_backend(handle)]


@case()
def refused_arguments(nx, ctx):
    """Operations, sides and backends that are none."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    make = a.agent.make_prepped_xfer
    return [
        attempt_type(make, "put", local, [0], remote, [0]),
        attempt_type(make, "WRITE", None, [0], remote, [0]),
        attempt_type(make, "WRITE", local, [0], a.descs(64, 1), [0]),
        attempt_type(make, "WRITE", local, [0], remote, [0], b"", ["NO_SUCH"]),
    ]


@case()
def list_released_before_the_transfer(nx, ctx):
    """Prepared lists may be released once the transfer is made."""
    a, b = ctx.pair()
    a.buffer.pattern(6)
    local, remote = sides(a, b)
    handle = a.agent.make_prepped_xfer("WRITE", local, [0, 1, 2], remote, [4, 5, 6])
    answers = [a.agent.release_dlist_handle(local), remote.release(), remote.release()]
    return [answers, ctx.finish(a.agent, handle), bool((rows(b.buffer)[4:7] == written(a.buffer)[:3]).all())]


@case()
def posted_again(nx, ctx):
    """A transfer by index posted again."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    handle = a.agent.make_prepped_xfer(
        "READ", local, np.arange(16, dtype=np.int32), remote, np.arange(16, dtype=np.int32)[::-1].copy()
    )
    out = []
    for seed in (1, 2, 3):
        b.buffer.pattern(seed)
        out.append([ctx.finish(a.agent, handle), bool((rows(a.buffer) == written(b.buffer)[::-1]).all())])
    return out


@case()
def prepared_list_after_its_peer(nx, ctx):
    """A prepared list of a peer that was removed since."""
    a, b = ctx.pair()
    local, remote = sides(a, b)
    a.agent.remove_remote_agent(b.name)
    first = attempt_type(a.agent.make_prepped_xfer, "WRITE", local, [0], remote, [0])
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    return [first, attempt_type(a.agent.make_prepped_xfer, "WRITE", local, [0], remote, [0]), attempt(remote.release)]


@case()
def many_indices(nx, ctx):
    """Fifty thousand indices in another order on each side."""
    a, b = ctx.pair(50_000 * 16)
    b.buffer.pattern(7)
    local, remote = sides(a, b, 16, 50_000)
    order = np.random.default_rng(1).permutation(50_000).astype(np.int32)
    state = ctx.finish(
        a.agent, a.agent.make_prepped_xfer("READ", local, order, remote, np.arange(50_000, dtype=np.int32))
    )
    return [state, bool((rows(a.buffer, 16, 50_000)[order] == written(b.buffer, 16, 50_000)).all())]


@case()
def raw_calls(nx, ctx):
    """The bindings: numbers, statuses and their keywords."""
    a, b = ctx.pair()
    raw, bd = a.agent.agent, nx.bindings
    local = raw.prepXferDlist("", a.descs(1024, 16), [])
    short = raw.prepXferDlist(a.descs(1024, 16))
    remote = raw.prepXferDlist(agent_name=b.name, descs=b.descs(1024, 16), backend=[a.agent.backends["UCX"]])
    made = raw.makeXferReq(bd.NIXL_WRITE, local, [0], remote, [1], b"", [], False)
    raw.postXferReq(made)
    done = ctx.until(lambda: raw.getXferStatus(made) == bd.NIXL_SUCCESS)
    return [
        [type_name(x) for x in (local, short, remote, made)],
        done,
        normal(raw.releaseXferReq(made)),
        [normal(raw.releasedDlistH(x)) for x in (local, short, remote)],
    ]

"""Transfer lists from every form that `get_xfer_descs` takes."""

from __future__ import annotations

import numpy as np

from .normal import attempt, normal
from .registry import case

ROWS = [(4096, 64, 0), (8192, 128, 0), (12288, 1, 3)]


@case()
def tuples(nx, ctx):
    """A list of 3-tuples with its memory type."""
    return normal(ctx.agent().get_xfer_descs(ROWS, "DRAM"))


@case()
def every_memory_type(nx, ctx):
    """All names of memory types, the deprecated ones too."""
    agent = ctx.agent()
    return {
        name: normal(agent.get_xfer_descs(ROWS, name))
        for name in ("DRAM", "VRAM", "FILE", "BLOCK", "OBJ", "cpu", "cuda")
    }


@case()
def keyword(nx, ctx):
    """Both arguments by name."""
    return normal(ctx.agent().get_xfer_descs(descs=ROWS, mem_type="VRAM"))


@case()
def unknown_memory_type(nx, ctx):
    """Memory types that do not exist."""
    agent = ctx.agent()
    return [attempt(agent.get_xfer_descs, ROWS, kind) for kind in ("dram", "HBM", "", 0)]


@case()
def without_memory_type(nx, ctx):
    """Tuples and arrays need a memory type: without it the answer is None."""
    agent = ctx.agent()
    return [attempt(agent.get_xfer_descs, ROWS), attempt(agent.get_xfer_descs, np.array(ROWS, dtype=np.uint64))]


@case(
    differs="stock looks at the first descriptor to tell the form, also where there is none; a list without "
    "descriptors with its memory type is an empty list here",
    stock={"outcome": "ok", "result": [{"raises": "IndexError"}] * 2},
    ours={
        "outcome": "ok",
        "result": [
            {"returns": {"list": "nixlXferDList", "kind": {"enum": "nixl_mem_t.DRAM_SEG"}, "empty": True, "rows": []}}
        ]
        * 2,
    },
)
def empty(nx, ctx):
    """A list and an array without descriptors."""
    agent = ctx.agent()
    return [attempt(agent.get_xfer_descs, nothing, "DRAM") for nothing in ([], np.zeros((0, 3), dtype=np.uint64))]


@case()
def array_of_uint64(nx, ctx):
    """An N x 3 array of uint64."""
    return normal(ctx.agent().get_xfer_descs(np.array(ROWS, dtype=np.uint64), "DRAM"))


@case()
def array_of_int64(nx, ctx):
    """An N x 3 array of int64."""
    return normal(ctx.agent().get_xfer_descs(np.array(ROWS, dtype=np.int64), "DRAM"))


@case()
def array_of_other_types(nx, ctx):
    """Arrays of narrower numbers and of floats."""
    agent = ctx.agent()
    return {
        str(np.dtype(t)): attempt(agent.get_xfer_descs, np.array(ROWS, dtype=t), "DRAM")
        for t in (np.int32, np.uint32, np.float64, np.int16)
    }


@case()
def array_in_other_orders(nx, ctx):
    """Arrays that are not C-contiguous: column order, every second row, reversed."""
    agent = ctx.agent()
    rows = np.array(ROWS * 2, dtype=np.uint64)
    return {
        "column order": attempt(agent.get_xfer_descs, np.asfortranarray(rows), "DRAM"),
        "every second": attempt(agent.get_xfer_descs, rows[::2], "DRAM"),
        "reversed": attempt(agent.get_xfer_descs, rows[::-1], "DRAM"),
        "columns of a wider one": attempt(agent.get_xfer_descs, np.hstack([rows, rows])[:, :3], "DRAM"),
    }


@case()
def array_of_other_shapes(nx, ctx):
    """Arrays with another number of columns or dimensions."""
    agent = ctx.agent()
    return {
        "4 columns": attempt(agent.get_xfer_descs, np.zeros((2, 4), dtype=np.uint64), "DRAM"),
        "2 columns": attempt(agent.get_xfer_descs, np.zeros((2, 2), dtype=np.uint64), "DRAM"),
        "5 columns": attempt(agent.get_xfer_descs, np.zeros((2, 5), dtype=np.uint64), "DRAM"),
        "flat": attempt(agent.get_xfer_descs, np.zeros(3, dtype=np.uint64), "DRAM"),
        "cube": attempt(agent.get_xfer_descs, np.zeros((1, 1, 3), dtype=np.uint64), "DRAM"),
    }


@case()
def array_stays_apart(nx, ctx):
    """The list has its own copy of the array."""
    rows = np.array(ROWS, dtype=np.uint64)
    made = ctx.agent().get_xfer_descs(rows, "DRAM")
    rows[:] = 7
    return normal(made)


@case()
def a_list_object_passes_through(nx, ctx):
    """A transfer list is handed back as it is, whatever memory type is named beside it."""
    agent = ctx.agent()
    made = agent.get_xfer_descs(ROWS, "DRAM")
    return [agent.get_xfer_descs(made) is made, agent.get_xfer_descs(made, "VRAM") is made]


@case()
def a_registration_list_is_refused(nx, ctx):
    """A registration list where a transfer list belongs."""
    agent = ctx.agent()
    return attempt(agent.get_xfer_descs, agent.get_reg_descs([(1, 2, 0, "")], "DRAM"))


@case()
def tuples_of_another_length(nx, ctx):
    """4-tuples and 2-tuples."""
    agent = ctx.agent()
    return [attempt(agent.get_xfer_descs, [(1, 2, 0, "")], "DRAM"), attempt(agent.get_xfer_descs, [(1, 2)], "DRAM")]


@case()
def mixed_tuples(nx, ctx):
    """The first tuple is right, a later one is not."""
    agent = ctx.agent()
    return [
        attempt(agent.get_xfer_descs, [(1, 2, 0), (1, 2)], "DRAM"),
        attempt(agent.get_xfer_descs, [(1, 2, 0), (1, 2, 0, "")], "DRAM"),
        attempt(agent.get_xfer_descs, [(1, 2, 0), None], "DRAM"),
        attempt(agent.get_xfer_descs, [(1, 2, 0), ("a", 2, 0)], "DRAM"),
    ]


@case()
def tuples_with_other_members(nx, ctx):
    """Members that are no whole numbers, or do not fit."""
    agent = ctx.agent()
    return {
        "text": attempt(agent.get_xfer_descs, [("a", 2, 0)], "DRAM"),
        "none": attempt(agent.get_xfer_descs, [(None, 2, 0)], "DRAM"),
        "float": attempt(agent.get_xfer_descs, [(1.5, 2, 0)], "DRAM"),
        "negative": attempt(agent.get_xfer_descs, [(-1, 2, 0)], "DRAM"),
        "negative device": attempt(agent.get_xfer_descs, [(1, 2, -1)], "DRAM"),
        "65 bits": attempt(agent.get_xfer_descs, [(1 << 64, 2, 0)], "DRAM"),
        "bool": attempt(agent.get_xfer_descs, [(True, 2, 0)], "DRAM"),
    }


@case()
def tuples_of_numpy_numbers(nx, ctx):
    """Members that are numpy scalars."""
    agent = ctx.agent()
    rows = np.array(ROWS, dtype=np.uint64)
    return normal(agent.get_xfer_descs([(rows[i, 0], rows[i, 1], int(rows[i, 2])) for i in range(3)], "DRAM"))


@case()
def large_numbers(nx, ctx):
    """All 64 bits of an address and a length are kept; bit 63 may be set."""
    agent = ctx.agent()
    rows = [((1 << 63) + 5, (1 << 64) - 1, 7), ((1 << 64) - 1, 0, 0)]
    return [
        normal(agent.get_xfer_descs(rows, "VRAM")),
        normal(agent.get_xfer_descs(np.array(rows, dtype=np.uint64), "VRAM")),
    ]


@case()
def lists_instead_of_tuples(nx, ctx):
    """Inner lists, an outer tuple, an iterator."""
    agent = ctx.agent()
    return {
        "inner lists": attempt(agent.get_xfer_descs, [[1, 2, 0]], "DRAM"),
        "outer tuple": attempt(agent.get_xfer_descs, ((1, 2, 0), (3, 4, 0)), "DRAM"),
        "one tuple": attempt(agent.get_xfer_descs, (1, 2, 0), "DRAM"),
        "iterator": attempt(agent.get_xfer_descs, iter([(1, 2, 0)]), "DRAM"),
    }


@case()
def other_objects(nx, ctx):
    """Objects that are no descriptors at all."""
    agent = ctx.agent()
    return {
        "none": attempt(agent.get_xfer_descs, None, "DRAM"),
        "number": attempt(agent.get_xfer_descs, 5, "DRAM"),
        "text": attempt(agent.get_xfer_descs, "abc", "DRAM"),
        "bytes": attempt(agent.get_xfer_descs, b"abc", "DRAM"),
        "dict": attempt(agent.get_xfer_descs, {0: (1, 2, 0)}, "DRAM"),
        "numbers": attempt(agent.get_xfer_descs, [1, 2, 3], "DRAM"),
        "list of arrays": attempt(agent.get_xfer_descs, [np.zeros(4, dtype=np.uint8)]),
    }


@case()
def many_rows(nx, ctx):
    """Ten thousand rows keep their order."""
    agent = ctx.agent()
    rows = np.zeros((10_000, 3), dtype=np.uint64)
    rows[:, 0] = np.arange(10_000, dtype=np.uint64) * 4096 + 4096
    rows[:, 1] = 64
    made = agent.get_xfer_descs(rows, "DRAM")
    same = agent.get_xfer_descs([(int(a), int(n), int(d)) for a, n, d in rows], "DRAM")
    return [made.descCount(), normal(made[9_999]), made == same]

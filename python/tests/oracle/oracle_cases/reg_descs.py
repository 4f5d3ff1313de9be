"""Registration lists and remote lists from every form, and trimming one to the other."""

from __future__ import annotations

import numpy as np

from .normal import attempt, normal
from .registry import case

ROWS = [(4096, 64, 0, "a"), (8192, 128, 0, "bc"), (12288, 1, 3, "")]


@case()
def tuples(nx, ctx):
    """A list of 4-tuples; the meta text comes back as bytes."""
    return normal(ctx.agent().get_reg_descs(ROWS, "DRAM"))


@case()
def meta_in_bytes(nx, ctx):
    """Meta given as bytes, with zeros and bytes that are no text."""
    agent = ctx.agent()
    return normal(agent.get_reg_descs([(1, 2, 0, b"a\0b"), (3, 4, 0, b"\xff\xfe"), (5, 6, 0, "\u00e9")], "FILE"))


@case()
def meta_of_another_type(nx, ctx):
    """Meta that is neither text nor bytes."""
    agent = ctx.agent()
    return [attempt(agent.get_reg_descs, [(1, 2, 0, meta)], "DRAM") for meta in (None, 5, ["a"])]


@case()
def three_members(nx, ctx):
    """3-tuples, which belong to transfers, and 5-tuples."""
    agent = ctx.agent()
    return [
        attempt(agent.get_reg_descs, [(1, 2, 0)], "DRAM"),
        attempt(agent.get_reg_descs, [(1, 2, 0, "", "")], "DRAM"),
    ]


@case()
def mixed_tuples(nx, ctx):
    """The first tuple is right, a later one is not."""
    agent = ctx.agent()
    return [
        attempt(agent.get_reg_descs, [(1, 2, 0, ""), (1, 2, 0)], "DRAM"),
        attempt(agent.get_reg_descs, [(1, 2, 0, ""), 5], "DRAM"),
    ]


@case()
def array(nx, ctx):
    """An N x 3 array, with empty meta."""
    agent = ctx.agent()
    rows = np.array([r[:3] for r in ROWS], dtype=np.uint64)
    return [normal(agent.get_reg_descs(rows, "DRAM")), normal(agent.get_reg_descs(rows.astype(np.int64), "VRAM"))]


@case()
def array_of_other_shapes(nx, ctx):
    """Arrays that are no N x 3 of 64-bit numbers in C order."""
    agent = ctx.agent()
    rows = np.array([r[:3] for r in ROWS], dtype=np.uint64)
    return {
        "4 columns": attempt(agent.get_reg_descs, np.zeros((2, 4), dtype=np.uint64), "DRAM"),
        "flat": attempt(agent.get_reg_descs, np.zeros(3, dtype=np.uint64), "DRAM"),
        "int32": attempt(agent.get_reg_descs, rows.astype(np.int32), "DRAM"),
        "float": attempt(agent.get_reg_descs, rows.astype(np.float64), "DRAM"),
        "column order": attempt(agent.get_reg_descs, np.asfortranarray(rows), "DRAM"),
    }


@case()
def without_memory_type(nx, ctx):
    """Tuples and arrays need a memory type."""
    agent = ctx.agent()
    return [
        attempt(agent.get_reg_descs, ROWS),
        attempt(agent.get_reg_descs, np.zeros((1, 3), dtype=np.uint64)),
        attempt(agent.get_reg_descs, ROWS, "RAM"),
    ]


@case()
def every_memory_type(nx, ctx):
    """All names of memory types."""
    agent = ctx.agent()
    return {
        name: normal(agent.get_reg_descs(ROWS[:1], name))
        for name in ("DRAM", "VRAM", "FILE", "BLOCK", "OBJ", "cpu", "cuda")
    }


@case()
def a_list_object_passes_through(nx, ctx):
    """A registration list is handed back as it is; a transfer list is refused."""
    agent = ctx.agent()
    made = agent.get_reg_descs(ROWS, "DRAM")
    return [agent.get_reg_descs(made) is made, attempt(agent.get_reg_descs, agent.get_xfer_descs([(1, 2, 0)], "DRAM"))]


@case()
def other_objects(nx, ctx):
    """Objects that are no descriptors, and lists without any."""
    agent = ctx.agent()
    return {
        "none": attempt(agent.get_reg_descs, None, "DRAM"),
        "number": attempt(agent.get_reg_descs, 5, "DRAM"),
        "text": attempt(agent.get_reg_descs, "abc", "DRAM"),
        "inner lists": attempt(agent.get_reg_descs, [[1, 2, 0, ""]], "DRAM"),
        "outer tuple": attempt(agent.get_reg_descs, ((1, 2, 0, ""),), "DRAM"),
        "list of arrays": attempt(agent.get_reg_descs, [np.zeros(4, dtype=np.uint8)], "DRAM"),
    }


@case(
    differs="stock looks at the first descriptor to tell the form, also where there is none; a list without "
    "descriptors with its memory type is an empty list here",
    stock={"outcome": "ok", "result": [{"raises": "IndexError"}] * 3},
    ours={
        "outcome": "ok",
        "result": [
            {"returns": {"list": "nixlRegDList", "kind": {"enum": "nixl_mem_t.DRAM_SEG"}, "empty": True, "rows": []}},
            {"returns": {"list": "nixlRegDList", "kind": {"enum": "nixl_mem_t.DRAM_SEG"}, "empty": True, "rows": []}},
            {
                "returns": {
                    "list": "nixlRemoteDList",
                    "kind": {"enum": "nixl_mem_t.VRAM_SEG"},
                    "empty": True,
                    "rows": [],
                }
            },
        ],
    },
)
def empty(nx, ctx):
    """Registration and remote lists without descriptors."""
    agent = ctx.agent()
    none = np.zeros((0, 3), dtype=np.uint64)
    return [
        attempt(agent.get_reg_descs, [], "DRAM"),
        attempt(agent.get_reg_descs, none, "DRAM"),
        attempt(agent.get_remote_descs, [], "VRAM"),
    ]


@case()
def trimmed(nx, ctx):
    """A registration list without its meta is a transfer list."""
    agent = ctx.agent()
    made = agent.get_reg_descs(ROWS, "VRAM")
    return [normal(made.trim()), normal(made), normal(nx.bindings.nixlRegDList(nx.bindings.DRAM_SEG).trim())]


@case()
def remote_tuples(nx, ctx):
    """Remote lists name the agent in the fourth place."""
    agent = ctx.agent()
    made = agent.get_remote_descs([(1, 2, 0, "peer"), (3, 4, 5, "other")], "VRAM")
    return [normal(made), agent.get_remote_descs(made) is made]


@case()
def remote_agent_in_bytes(nx, ctx):
    """The agent's name given as bytes, or as something else."""
    agent = ctx.agent()
    return [attempt(agent.get_remote_descs, [(1, 2, 0, name)], "VRAM") for name in (b"peer", None, 5)]


@case()
def remote_refusals(nx, ctx):
    """Forms that are no remote list."""
    agent = ctx.agent()
    return {
        "3-tuples": attempt(agent.get_remote_descs, [(1, 2, 0)], "VRAM"),
        "no memory type": attempt(agent.get_remote_descs, [(1, 2, 0, "p")]),
        "array": attempt(agent.get_remote_descs, np.zeros((1, 4), dtype=np.uint64), "VRAM"),
        "transfer list": attempt(agent.get_remote_descs, agent.get_xfer_descs([(1, 2, 0)], "VRAM")),
        "none": attempt(agent.get_remote_descs, None, "VRAM"),
    }

"""Asking about files by the POSIX backend."""

from __future__ import annotations

import os
import tempfile

from .normal import attempt, attempt_type, normal, type_name
from .registry import case


def folder(ctx) -> str:
    made = tempfile.TemporaryDirectory()
    ctx.closers.append(made.cleanup)
    return made.name


def written(where: str, name: str, size: int) -> str:
    path = os.path.join(where, name)
    with open(path, "wb") as out:
        out.write(b"x" * size)
    return path


@case()
def plugin(nx, ctx):
    """The plugin is there, with parameters."""
    agent = ctx.agent()
    return [
        "POSIX" in agent.get_plugin_list(),
        type_name(agent.get_plugin_params("POSIX")),
        "FILE_SEG" in agent.get_plugin_mem_types("POSIX"),
    ]


@case(
    differs="stock moves data between files and host memory with this backend; kvferry answers questions about files "
    "and moves none",
    stock={"outcome": "ok", "result": [["DRAM_SEG", "FILE_SEG"]] * 2},
    ours={"outcome": "ok", "result": [["FILE_SEG"]] * 2},
)
def memory_types(nx, ctx):
    """What the plugin and the backend move."""
    agent = ctx.agent(backends=["POSIX"])
    return [sorted(agent.get_plugin_mem_types("POSIX")), sorted(agent.get_backend_mem_types("POSIX"))]


@case()
def backend(nx, ctx):
    """Making the backend, once more, and beside UCX."""
    agent = ctx.agent()
    out = [attempt(agent.create_backend, "POSIX"), attempt(agent.create_backend, "POSIX")]
    return [*out, sorted(ctx.agent("both", backends=["UCX", "POSIX"]).backends)]


@case()
def existing_and_missing(nx, ctx):
    """A file that is there, one that is not, a folder."""
    where = folder(ctx)
    there = written(where, "there", 1234)
    agent = ctx.agent(backends=["POSIX"])
    found = agent.query_memory(
        [(0, 0, 0, there), (0, 0, 0, os.path.join(where, "missing")), (0, 0, 0, where)], "POSIX", mem_type="FILE"
    )
    return [type_name(found), len(found), [None if f is None else sorted(f) for f in found]]


@case()
def size_and_mode(nx, ctx):
    """Size and mode of a file are texts."""
    there = written(folder(ctx), "there", 4097)
    os.chmod(there, 0o640)
    found = ctx.agent(backends=["POSIX"]).query_memory([(0, 0, 0, there)], "POSIX", "FILE")[0]
    return [found["size"], found["mode"], sorted(type_name(v) for v in found.values())]


@case()
def time_of_change(nx, ctx):
    """The time of the last change."""
    there = written(folder(ctx), "there", 1)
    os.utime(there, (1_700_000_000, 1_700_000_000))
    return ctx.agent(backends=["POSIX"]).query_memory([(0, 0, 0, there)], "POSIX", "FILE")[0].get("mtime")


@case()
def by_list_object(nx, ctx):
    """A registration list instead of tuples; the name in bytes."""
    there = written(folder(ctx), "there", 10)
    agent = ctx.agent(backends=["POSIX"])
    descs = agent.get_reg_descs([(0, 0, 0, there.encode())], "FILE")
    return [None if f is None else f["size"] for f in agent.query_memory(descs, "POSIX")]


@case()
def empty_list_object(nx, ctx):
    """A list object without entries."""
    return attempt(ctx.agent(backends=["POSIX"]).query_memory, nx.bindings.nixlRegDList(nx.bindings.FILE_SEG), "POSIX")


@case()
def empty_name(nx, ctx):
    """Entries without a name."""
    agent = ctx.agent(backends=["POSIX"])
    return attempt(agent.query_memory, [(0, 0, 0, "")], "POSIX", "FILE")


@case()
def unknown_backend(nx, ctx):
    """Backends that the agent does not have."""
    agent = ctx.agent(backends=["POSIX"])
    return [attempt(agent.query_memory, [(0, 0, 0, "x")], name, "FILE") for name in ("UCX", "NO_SUCH")]


@case()
def backend_that_can_not_be_asked(nx, ctx):
    """The UCX backend does not know files."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return [
        attempt(agent.query_memory, [(0, 0, 0, "x")], "UCX", "FILE"),
        attempt(agent.query_memory, [buffer.region()], "UCX", "DRAM"),
    ]


@case()
def without_memory_type(nx, ctx):
    """Tuples need a memory type here too."""
    agent = ctx.agent(backends=["POSIX"])
    return attempt(agent.query_memory, [(0, 0, 0, "x")], "POSIX")


@case(
    differs="kvferry moves no files: it refuses to register one, rather than to succeed and fail later",
    stock={"outcome": "ok", "result": {"returns": "nixlRegDList"}},
    ours={"outcome": "ok", "result": {"raises": "nixlNotSupportedError", "status": "NIXL_ERR_NOT_SUPPORTED"}},
)
def registering_a_file(nx, ctx):
    """A file by its descriptor number."""
    there = written(folder(ctx), "there", 8192)
    agent = ctx.agent(backends=["POSIX"])
    with open(there, "r+b") as held:
        made = attempt_type(agent.register_memory, [(0, 8192, held.fileno(), "")], "FILE", ["POSIX"])
        attempt(agent.deregister_memory, agent.get_reg_descs([(0, 8192, held.fileno(), "")], "FILE"))
    return made


@case()
def raw_call(nx, ctx):
    """The bindings' call."""
    there = written(folder(ctx), "there", 3)
    agent = ctx.agent(backends=["POSIX"])
    descs = agent.get_reg_descs([(0, 0, 0, there), (0, 0, 0, there + ".missing")], "FILE")
    found = agent.agent.queryMem(descs, agent.backends["POSIX"])
    return [found[0]["size"], found[1], normal([type_name(f) for f in found])]

"""The import name `nixl`, and how it hangs together with the package of the CUDA version."""

from __future__ import annotations

import importlib
import sys

from .registry import case

SUBMODULES = ("_api", "_bindings", "_utils", "logging")


@case(facade=True)
def submodules(nx, _):
    """`nixl._api` and its sisters can be imported and are the same objects however they are reached."""
    found = [importlib.import_module(f"nixl.{name}") is sys.modules[f"nixl.{name}"] for name in SUBMODULES]
    return [found, [getattr(nx.top, name) is sys.modules[f"nixl.{name}"] for name in SUBMODULES[:3]], nx.top.__name__]


@case(
    facade=True,
    differs="stock copies the names of its logging module over the module itself, so that `nixl.logging` is Python's "
    "own; here it is the module of that name",
    stock={"outcome": "ok", "result": [True, False]},
    ours={"outcome": "ok", "result": [False, True]},
)
def logging_as_an_attribute(nx, _):
    """What `nixl.logging` is when it is reached as an attribute."""
    import logging

    return [nx.top.logging is logging, hasattr(nx.top.logging, "get_logger")]


@case(facade=True)
def public_names(nx, _):
    """Every public class, constant and function of the submodules is a name of `nixl` too."""
    out = {}
    for name in SUBMODULES:
        module = getattr(nx.top, name)
        for public in sorted(
            n for n in vars(module) if n.lower().startswith(("nixl", "default", "dram", "vram", "blk", "obj", "file_"))
        ):
            out[public] = getattr(nx.top, public, None) is getattr(module, public)
    # Two enums have this name, and only one of them can be the attribute.
    out["nixl_thread_sync_t"] = nx.top.nixl_thread_sync_t is nx.api.nixl_thread_sync_t
    return out


@case(facade=True)
def from_imports(nx, _):
    """The imports that clients write."""
    said = {}
    for line in (
        "from nixl import nixl_agent, nixl_agent_config",
        "from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t",
        "from nixl._bindings import nixlBackendError, nixlCancelledError, nixlRemoteDisconnectError, nixlXferTelemetry",
        "from nixl._api import nixlBind, nixl_prepped_dlist_handle, nixl_xfer_handle",
        "from nixl.logging import get_logger",
        "import nixl._utils as nixl_utils",
        "from nixl import nixlBackendError, nixlXferDList, DRAM_SEG, DEFAULT_COMM_PORT",
        "from nixl._bindings import DRAM_SEG, NIXL_READ, nixlXferDList, nixlNotFoundError",
    ):
        names: dict = {}
        exec(line, names)
        said[line] = sorted(n for n in names if not n.startswith("__"))
    return said


@case(facade=True)
def classes_are_shared(nx, _):
    """An exception or list of `nixl` is the one of the package behind it."""
    behind = importlib.import_module("nixl_cu12")
    bindings, api = importlib.import_module("nixl_cu12._bindings"), importlib.import_module("nixl_cu12._api")
    return [
        nx.bindings.nixlBackendError is bindings.nixlBackendError,
        nx.bindings.nixlXferDList is bindings.nixlXferDList,
        nx.api.nixl_agent is api.nixl_agent,
        behind.nixl_agent is nx.top.nixl_agent,
    ]


@case(facade=True)
def transfer(nx, ctx):
    """A transfer between an agent of `nixl` and one of `nixl_cu12` in one process."""
    other = importlib.import_module("nixl_cu12._api")
    a = ctx.side("a")
    b = other.nixl_agent(ctx.name("b"), other.nixl_agent_config(backends=["UCX"]))
    ctx.keep.append(b)
    buffer = ctx.buffer(4096, 5)
    b.register_memory([buffer.region()], "DRAM")
    a.agent.add_remote_agent(b.get_agent_metadata())
    state = ctx.finish(
        a.agent,
        a.agent.initialize_xfer("READ", a.descs(4096, 1), b.get_xfer_descs(buffer.blocks(4096), "DRAM"), b.name),
    )
    return [state, int(a.buffer.bytes[:4096].sum())]


@case(facade=True)
def bindings_pickle_by_their_name(nx, _):
    """A list of `nixl` is read back by `nixl_cu12`."""
    import pickle

    made = nx.bindings.nixlXferDList(nx.bindings.DRAM_SEG, [(1, 2, 3)])
    back = pickle.loads(pickle.dumps(made))
    return [
        type(back).__name__,
        back == made,
        isinstance(back, importlib.import_module("nixl_cu12._bindings").nixlXferDList),
    ]

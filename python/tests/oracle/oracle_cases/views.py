"""Memory views for GPU kernels, on a machine without a GPU."""

from __future__ import annotations

from .normal import attempt
from .registry import case

NO_VIEWS = "stock tries and says that a backend failed, or succeeds in nothing; kvferry has no views and says so"
BACKEND = {"raises": "nixlBackendError", "status": "NIXL_ERR_BACKEND"}
NOT_FOUND = {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}
UNSUPPORTED = {"raises": "nixlNotSupportedError", "status": "NIXL_ERR_NOT_SUPPORTED"}


@case(
    differs=NO_VIEWS,
    stock={"outcome": "ok", "result": [BACKEND, NOT_FOUND, NOT_FOUND]},
    ours={"outcome": "ok", "result": [UNSUPPORTED] * 3},
)
def local(nx, ctx):
    """A view of host memory, and one of device memory that is not there."""
    a = ctx.side("a")
    vram = a.agent.get_xfer_descs(a.buffer.blocks(64, 1), "VRAM")
    view = a.agent.prep_mem_view
    return [attempt(view, a.descs(64, 1)), attempt(view, vram), attempt(view, vram, backends=["UCX"])]


@case(
    differs=NO_VIEWS,
    stock={"outcome": "ok", "result": BACKEND},
    ours={"outcome": "ok", "result": UNSUPPORTED},
)
def remote(nx, ctx):
    """A view of a peer's memory."""
    a, b = ctx.pair()
    descs = a.agent.get_remote_descs([(b.buffer.address, 64, 0, b.name)], "DRAM")
    return attempt(a.agent.prep_mem_view, descs)


@case()
def refused(nx, ctx):
    """Backends that are none, and backends by position."""
    a = ctx.side("a")
    view = a.agent.prep_mem_view
    return [attempt(view, a.descs(64, 1), backends=["NO_SUCH"]), attempt(view, a.descs(64, 1), ["UCX"])]


@case(
    alone=True,
    differs=NO_VIEWS,
    stock={"outcome": "ok", "result": {"returns": None}},
    ours={"outcome": "ok", "result": UNSUPPORTED},
)
def releasing_a_fake_view(nx, ctx):
    """Releasing a view that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"]).release_mem_view, 0)

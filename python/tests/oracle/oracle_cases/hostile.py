"""Calls that no caller should make. Where stock dies of them, the case says so."""

from __future__ import annotations

import numpy as np

from .normal import attempt, attempt_type
from .registry import CRASHED, VARIES, case

INVALID = {"raises": "nixlInvalidParamError", "status": "NIXL_ERR_INVALID_PARAM"}
NO_HANDLE = "a number that is no handle is used as an address by stock, which dies; here handles are checked"


def made(ctx):
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    return a, b, handle


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def state_of_a_fake_handle(nx, ctx):
    """The state of a number that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"]).agent.getXferStatus, 0x1234)


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def posting_a_fake_handle(nx, ctx):
    """Posting a number that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"]).agent.postXferReq, 0x1234)


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def releasing_a_fake_handle(nx, ctx):
    """Releasing a number that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"]).agent.releaseXferReq, 0x1234)


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def releasing_a_fake_list(nx, ctx):
    """Releasing a prepared list that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"]).agent.releasedDlistH, 0x1234)


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def transfer_of_fake_lists(nx, ctx):
    """A transfer by index from prepared lists that nobody gave out."""
    a = ctx.side("a")
    raw = a.agent.agent
    return attempt(raw.makeXferReq, nx.bindings.NIXL_WRITE, 0x1234, [0], 0x5678, [0])


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def telemetry_of_a_fake_handle(nx, ctx):
    """Telemetry of a number that nobody gave out."""
    return attempt(ctx.agent(backends=["UCX"], capture_telemetry=True).agent.getXferTelemetry, 0x1234)


@case(alone=True, differs=NO_HANDLE, stock=CRASHED, ours={"outcome": "ok", "result": INVALID})
def registering_with_a_fake_backend(nx, ctx):
    """Registering with a backend's number that nobody gave out."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return attempt(agent.agent.registerMem, agent.get_reg_descs([buffer.region()], "DRAM"), [0x1234])


@case(
    alone=True,
    differs="stock frees a released transfer once more and dies; here the second release is an error",
    stock=CRASHED,
    ours={"outcome": "ok", "result": [True, INVALID]},
)
def raw_release_twice(nx, ctx):
    """Releasing a transfer of the bindings twice."""
    a, _, handle = made(ctx)
    first = a.agent.agent.releaseXferReq(handle._handle) == nx.bindings.NIXL_SUCCESS
    again = attempt(a.agent.agent.releaseXferReq, handle._handle)
    handle._released = True
    return [first, again]


@case(alone=True)
def handle_after_its_release(nx, ctx):
    """A released handle of the API is asked for its state."""
    a, _, handle = made(ctx)
    handle.release()
    return "raises" in attempt(a.agent.check_xfer_state, handle)


@case(alone=True)
def handle_outlives_its_agent(nx, ctx):
    """The agent goes first, the handle is released later."""
    a, _, handle = made(ctx)
    agent = a.agent
    ctx.keep.clear()
    a.agent = None
    del agent
    return attempt(handle.release)


@case(alone=True)
def prepared_list_outlives_its_agent(nx, ctx):
    """The same with a prepared list."""
    a, _, _ = made(ctx)
    local = a.agent.prep_xfer_dlist("", a.descs(64, 4))
    ctx.keep.clear()
    a.agent = None
    return attempt(local.release)


@case(alone=True)
def handle_of_another_agent(nx, ctx):
    """A prepared list of one agent used with another."""
    a, b = ctx.pair()
    local, remote = b.agent.prep_xfer_dlist("", b.descs(64, 4)), a.agent.prep_xfer_dlist(b.name, b.descs(64, 4))
    return attempt_type(a.agent.make_prepped_xfer, "WRITE", local, [0], remote, [0])


@case(alone=True)
def list_of_a_size_registered(nx, ctx):
    """A registration list of which nobody set the descriptors."""
    agent = ctx.agent(backends=["UCX"])
    return "raises" in attempt_type(agent.register_memory, nx.bindings.nixlRegDList(nx.bindings.VRAM_SEG, 2))


@case(
    alone=True,
    differs="stock keeps a part of what it read before it saw the damage, and then refuses the good metadata of that "
    "name",
    stock=VARIES,
    ours={"outcome": "ok", "result": [{"returns": {"bytes": b"hostile.blob_with_changed_bytes:b".hex()}}, True]},
)
def blob_with_changed_bytes(nx, ctx):
    """Two hundred damaged copies of metadata do not end the process, and the good ones load afterwards."""
    a, b = ctx.side("a"), ctx.side("b")
    good = b.agent.get_agent_metadata()
    rng = np.random.default_rng(7)
    for _ in range(200):
        bad = bytearray(good)
        for at in rng.integers(0, len(bad), 4):
            bad[at] ^= int(rng.integers(1, 256))
        name = attempt(a.agent.add_remote_agent, bytes(bad))
        if "returns" in name:
            a.agent.remove_remote_agent(bytes.fromhex(name["returns"]["bytes"]))
    return [attempt(a.agent.add_remote_agent, good), a.agent.check_remote_metadata(b.name)]


@case(alone=True)
def constructor_of_handles(nx, _):
    """Handles made by hand from things that are no agent and no number."""
    return [
        attempt_type(nx.api.nixl_xfer_handle, None, "x"),
        attempt_type(nx.api.nixl_prepped_dlist_handle, None, None),
    ]


@case(
    alone=True,
    differs="a process that used stock's UCX backend may be killed by a signal when it ends, on some machines always; "
    "here it ends as it should",
    stock=VARIES,
    ours={"outcome": "ok", "result": {"exit": 0, "said": ["DONE"]}},
)
def end_of_a_process(nx, ctx):
    """The exit code of a program that made a transfer."""
    return ctx.script("""
import numpy as np
from NAME._api import nixl_agent
a = nixl_agent("end")
x = np.zeros(8192, dtype=np.uint8)
r = a.register_memory([(x.ctypes.data, 8192, 0, "")], "DRAM")
l = a.get_xfer_descs([(x.ctypes.data, 64, 0)], "DRAM")
d = a.get_xfer_descs([(x.ctypes.data + 4096, 64, 0)], "DRAM")
h = a.initialize_xfer("WRITE", l, d, "end")
s = a.transfer(h)
while s == "PROC":
    s = a.check_xfer_state(h)
print("> " + s, flush=True)
""")


@case(alone=True)
def end_of_a_process_without_backends(nx, ctx):
    """The exit code of a program that made an agent and nothing more."""
    return ctx.script("""
from NAME._api import nixl_agent, nixl_agent_config
a = nixl_agent("end", nixl_agent_config(backends=[]))
print("> made", flush=True)
""")

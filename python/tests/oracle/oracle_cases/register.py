"""Registering and deregistering memory."""

from __future__ import annotations

import numpy as np

from .normal import attempt, attempt_type, dlist, normal
from .registry import case

NOTHING = {"list": "nixlRegDList", "kind": {"enum": "nixl_mem_t.DRAM_SEG"}, "empty": True, "rows": []}
REFUSED = {"raises": "nixlBackendError", "status": "NIXL_ERR_BACKEND"}


@case()
def one_region(nx, ctx):
    """A region comes back as a registration list that is true."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(8192)
    made = agent.register_memory([buffer.region("meta")], "DRAM")
    return [dlist(made, buffer.address), bool(made), attempt(agent.deregister_memory, made)]


@case()
def several_regions(nx, ctx):
    """Several regions in one call, taken back in one call."""
    agent, buffers = ctx.agent(backends=["UCX"]), [ctx.buffer(4096) for _ in range(5)]
    made = agent.register_memory([b.region() for b in buffers], "DRAM")
    return [made.descCount(), attempt(agent.deregister_memory, made)]


@case()
def by_list_object(nx, ctx):
    """A registration list made before; the same object comes back."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    descs = agent.get_reg_descs([buffer.region()], "DRAM")
    return [agent.register_memory(descs) is descs, attempt(agent.deregister_memory, descs)]


@case()
def by_array(nx, ctx):
    """An N x 3 array of regions."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(16384)
    rows = np.array([[buffer.address + i * 4096, 4096, 0] for i in range(4)], dtype=np.uint64)
    made = agent.register_memory(rows, "DRAM")
    return [dlist(made, buffer.address), attempt(agent.deregister_memory, made)]


@case()
def by_names_of_backends(nx, ctx):
    """With the backends named, by position and by keyword."""
    agent, a, b = ctx.agent(backends=["UCX"]), ctx.buffer(4096), ctx.buffer(4096)
    first = agent.register_memory([a.region()], "DRAM", ["UCX"])
    second = agent.register_memory([b.region()], mem_type="DRAM", backends=["UCX"])
    return [
        attempt(agent.deregister_memory, first, ["UCX"]),
        attempt(agent.deregister_memory, second, backends=["UCX"]),
    ]


@case()
def by_the_name_cpu(nx, ctx):
    """The deprecated name of host memory."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    made = agent.register_memory([buffer.region()], mem_type="cpu")
    return normal(made.getType())


@case()
def unknown_backend(nx, ctx):
    """A backend that the agent does not have."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return [
        attempt(agent.register_memory, [buffer.region()], "DRAM", ["NO_SUCH"]),
        attempt(agent.register_memory, [buffer.region()], "DRAM", ["POSIX"]),
    ]


@case()
def without_backends(nx, ctx):
    """An agent without backends can't register anything."""
    agent, buffer = ctx.agent(), ctx.buffer(4096)
    return attempt(agent.register_memory, [buffer.region()], "DRAM")


@case(
    differs="stock has no backend for a list without regions; here nothing is registered, which is what was asked for",
    stock={"outcome": "ok", "result": [REFUSED, {"raises": "IndexError"}]},
    ours={"outcome": "ok", "result": [{"returns": NOTHING}] * 2},
)
def empty_registration(nx, ctx):
    """Lists without regions: an object, and none."""
    agent = ctx.agent(backends=["UCX"])
    return [
        attempt(agent.register_memory, nx.bindings.nixlRegDList(nx.bindings.DRAM_SEG)),
        attempt(agent.register_memory, [], "DRAM"),
    ]


@case()
def nothing_to_register(nx, ctx):
    """Things that are no regions."""
    agent = ctx.agent(backends=["UCX"])
    return [
        attempt_type(agent.register_memory, None, "DRAM"),
        attempt_type(agent.register_memory, [(1, 2, 0)], "DRAM"),
        attempt_type(agent.register_memory, [(1, 2, 0, "")]),
    ]


@case()
def twice(nx, ctx):
    """The same region registered twice is taken back twice."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    first = agent.register_memory([buffer.region()], "DRAM")
    second = attempt_type(agent.register_memory, [buffer.region()], "DRAM")
    return [second, attempt(agent.deregister_memory, first)]


@case()
def overlapping(nx, ctx):
    """Regions that overlap."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(16384)
    rows = [(buffer.address, 8192, 0, ""), (buffer.address + 4096, 8192, 0, "")]
    made = agent.register_memory(rows, "DRAM")
    return [made.descCount(), attempt(agent.deregister_memory, made)]


@case()
def again_after_taking_back(nx, ctx):
    """One list object registered, taken back and registered again, as vLLM does for its sleep mode."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    descs = agent.get_reg_descs([buffer.region()], "DRAM")
    return [attempt_type(call, descs) for call in (agent.register_memory, agent.deregister_memory) * 2]


@case()
def taking_back_by_an_equal_list(nx, ctx):
    """A list built anew with the same regions takes them back."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    agent.register_memory([buffer.region()], "DRAM")
    return attempt(agent.deregister_memory, agent.get_reg_descs([buffer.region()], "DRAM"))


@case()
def taking_back_in_another_order(nx, ctx):
    """The regions of one call taken back in another order and in parts."""
    agent, buffers = ctx.agent(backends=["UCX"]), [ctx.buffer(4096) for _ in range(3)]
    agent.register_memory([b.region() for b in buffers], "DRAM")
    return [
        attempt(agent.deregister_memory, agent.get_reg_descs([buffers[2].region(), buffers[0].region()], "DRAM")),
        attempt(agent.deregister_memory, agent.get_reg_descs([buffers[1].region()], "DRAM")),
    ]


@case()
def taking_back_what_is_not_there(nx, ctx):
    """Regions that were never registered, or only in part."""
    agent, buffer, other = ctx.agent(backends=["UCX"]), ctx.buffer(8192), ctx.buffer(4096)
    made = agent.register_memory([buffer.region()], "DRAM")
    part = agent.get_reg_descs([(buffer.address, 4096, 0, "")], "DRAM")
    return [
        attempt(agent.deregister_memory, agent.get_reg_descs([other.region()], "DRAM")),
        attempt(agent.deregister_memory, part),
        attempt(agent.deregister_memory, made),
        attempt(agent.deregister_memory, made),
    ]


@case()
def taking_back_something_else(nx, ctx):
    """Arguments that are no registration list."""
    agent = ctx.agent(backends=["UCX"])
    return [attempt(agent.deregister_memory, bad) for bad in (None, [], agent.get_xfer_descs([(1, 2, 0)], "DRAM"))]


@case()
def device_memory_without_a_driver(nx, ctx):
    """Host memory named as device memory on a machine without a driver."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return [
        attempt_type(agent.register_memory, [buffer.region()], "VRAM"),
        attempt_type(agent.register_memory, [buffer.region()], "cuda", ["UCX"]),
    ]


@case(
    differs="stock says that it found no backend; kvferry says that it does not move this type",
    stock={
        "outcome": "ok",
        "result": {
            k: {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"} for k in ("OBJ", "BLOCK", "FILE")
        },
    },
    ours={
        "outcome": "ok",
        "result": {
            k: {"raises": "nixlNotSupportedError", "status": "NIXL_ERR_NOT_SUPPORTED"} for k in ("OBJ", "BLOCK", "FILE")
        },
    },
)
def other_memory_types(nx, ctx):
    """Memory types that the UCX backend does not move."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return {kind: attempt_type(agent.register_memory, [buffer.region()], kind) for kind in ("OBJ", "BLOCK", "FILE")}


@case(
    differs="stock pins nothing over shared memory and TCP, and accepts addresses where no memory is; here such a "
    "region is refused when it is registered",
    stock={"outcome": "ok", "result": [{"returns": "nixlRegDList"}, {"returns": "nixlRegDList"}]},
    ours={"outcome": "ok", "result": [REFUSED, REFUSED]},
)
def unmapped_memory(nx, ctx):
    """Regions where no memory is mapped."""
    agent = ctx.agent(backends=["UCX"])
    return [attempt_type(agent.register_memory, [(address, 4096, 0, "")], "DRAM") for address in (4096, 1 << 46)]


@case()
def region_without_bytes(nx, ctx):
    """A region of length zero, at an address and at none, taken back again."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    out = []
    for address in (buffer.address, 0):
        descs = agent.get_reg_descs([(address, 0, 0, "")], "DRAM")
        out.append(attempt_type(agent.register_memory, descs))
        out.append(len(agent.get_agent_metadata()) > 0)
        out.append(attempt(agent.deregister_memory, descs))
    return out


@case()
def region_that_wraps(nx, ctx):
    """A region that runs past the end of the address space."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    return attempt_type(agent.register_memory, [(buffer.address, (1 << 64) - 1, 0, "")], "DRAM")


@case()
def many_regions(nx, ctx):
    """Ten thousand regions of one mapping."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(10_000 * 512)
    rows = np.zeros((10_000, 3), dtype=np.uint64)
    rows[:, 0] = buffer.address + np.arange(10_000, dtype=np.uint64) * 512
    rows[:, 1] = 256
    made = agent.register_memory(rows, "DRAM")
    return [made.descCount(), attempt(agent.deregister_memory, made)]


@case()
def metadata_follows(nx, ctx):
    """Registering makes the metadata longer, taking back makes it as long as before."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(8192)
    before = len(agent.get_agent_metadata())
    made = agent.register_memory([buffer.region()], "DRAM")
    with_region = len(agent.get_agent_metadata())
    agent.deregister_memory(made)
    return [with_region > before, len(agent.get_agent_metadata()) == before]


@case()
def left_registered(nx, ctx):
    """An agent goes while its memory is registered."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    agent.register_memory([buffer.region()], "DRAM")
    ctx.keep.remove(agent)
    del agent
    return True


@case()
def raw_calls(nx, ctx):
    """The bindings answer with a status."""
    agent, buffer = ctx.agent(backends=["UCX"]), ctx.buffer(4096)
    descs = agent.get_reg_descs([buffer.region()], "DRAM")
    handle = [agent.backends["UCX"]]
    return [
        normal(agent.agent.registerMem(descs)),
        normal(agent.agent.deregisterMem(descs)),
        normal(agent.agent.registerMem(descs, handle)),
        normal(agent.agent.deregisterMem(descs=descs, backends=handle)),
        attempt(agent.agent.deregisterMem, descs),
        attempt(agent.agent.registerMem, 5),
    ]

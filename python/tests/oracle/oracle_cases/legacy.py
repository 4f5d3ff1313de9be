"""Calls as clients of version 0.7 and as today's engines write them, in their order."""

from __future__ import annotations

import uuid

import numpy as np

from .normal import attempt, normal
from .registry import case


@case()
def configuration_of_0_7(nx, ctx):
    """The arguments that version 0.7 had."""
    make = nx.api.nixl_agent_config
    return [
        attempt(lambda: type(make(True, False, 0)).__name__),
        attempt(lambda: type(make(enable_prog_thread=True, backends=["UCX"], num_threads=1)).__name__),
    ]


@case()
def initialised_with_text(nx, ctx):
    """Messages in text and the peer's name decoded, as Ray and TensorRT-LLM write it."""
    a, b = ctx.side("a"), ctx.side("b")
    peer = a.agent.add_remote_agent(b.agent.get_agent_metadata())
    peer = peer.decode("utf-8") if isinstance(peer, bytes) else peer
    b.agent.add_remote_agent(a.agent.get_agent_metadata())
    handle = a.agent.initialize_xfer("READ", a.descs(512, 4), b.descs(512, 4), peer, "UUID")
    return [peer == b.name, ctx.finish(a.agent, handle), normal(ctx.notifs(b.agent, 1))]


@case()
def deprecated_memory_types(nx, ctx):
    """`cpu` through all calls, as Ray and LMCache write it."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.agent("b", backends=["UCX"])
    x, y = ctx.buffer(4096, 3), ctx.buffer(4096)
    a.register_memory(a.get_reg_descs([x.region()], mem_type="cpu"))
    b.register_memory(b.get_reg_descs([y.region()], mem_type="cpu"))
    a.add_remote_agent(b.get_agent_metadata())
    local = a.prep_xfer_dlist("", x.blocks(1024), mem_type="cpu")
    remote = a.prep_xfer_dlist(b.name, y.blocks(1024), mem_type="cpu")
    return [ctx.finish(a, a.make_prepped_xfer("WRITE", local, [0, 3], remote, [3, 0])), int(y.bytes.sum())]


@case()
def sglang(nx, ctx):
    """SGLang's calls: STRICT mode, backend created apart, grids, no message, handles never released."""
    strict = nx.api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    agents, buffers = [], []
    for threads in (8, 0):
        agent = nx.api.nixl_agent(
            str(uuid.uuid4()), nx.api.nixl_agent_config(backends=[], num_threads=threads, sync_mode=strict)
        )
        agent.create_backend("UCX", {"num_threads": str(threads)} if threads else {})
        ctx.keep.append(agent)
        agents.append(agent)
        buffers.append(ctx.buffer(65536))
        assert "UCX" in agent.get_plugin_list()
        assert agent.register_memory([buffers[-1].region()], "DRAM")
    prefill, decode = agents
    prefill.add_remote_agent(decode.get_agent_metadata())
    buffers[0].pattern(1)
    local = prefill.prep_xfer_dlist("", np.array([[buffers[0].address, 1024, 0, 1024, 64]], dtype=np.uint64), "DRAM")
    remote = prefill.prep_xfer_dlist(
        decode.name, np.array([[buffers[1].address, 1024, 0, 1024, 64]], dtype=np.uint64), "DRAM"
    )
    states = []
    for chunk in np.array_split(np.arange(64, dtype=np.int32), 4):
        handle = prefill.make_prepped_xfer("WRITE", local, chunk, remote, chunk)
        assert handle
        states.append(ctx.finish(prefill, handle))
    return [states, bool((buffers[0].written == buffers[1].bytes).all()), prefill.check_remote_metadata(decode.name)]


@case()
def vllm(nx, ctx):
    """vLLM's calls: telemetry on, grids by keyword, READ with a message, telemetry read, handle released."""
    a, b = ctx.pair(num_threads=4, capture_telemetry=True)
    b.buffer.pattern(2)
    local = a.agent.prep_xfer_dlist(
        "NIXL_INIT_AGENT", np.array([[a.buffer.address, 2048, 0, 2048, 32]], dtype=np.uint64), mem_type="DRAM"
    )
    remote = a.agent.prep_xfer_dlist(
        b.name, np.array([[b.buffer.address, 2048, 0, 2048, 32]], dtype=np.uint64), mem_type="DRAM"
    )
    ids = np.array([7, 3, 30], dtype=np.int64)
    handle = a.agent.make_prepped_xfer("READ", local, ids, remote, ids, notif_msg=b"req:1")
    state = ctx.finish(a.agent, handle)
    found = a.agent.get_xfer_telemetry(handle)
    out = [state, found.totalBytes, a.agent.release_xfer_handle(handle), normal(ctx.notifs(b.agent, 1))]
    same = all(
        bool((a.buffer.bytes[i * 2048 : (i + 1) * 2048] == b.buffer.written[i * 2048 : (i + 1) * 2048]).all())
        for i in ids
    )
    a.agent.release_dlist_handle(local)
    a.agent.release_dlist_handle(remote)
    return [*out, same]


@case()
def lmcache(nx, ctx):
    """LMCache's calls: lists serialized and sent, prepared from what came, polled until not PROC."""
    a, b = ctx.side("a"), ctx.side("b")
    a.buffer.pattern(3)
    there = b.agent.get_serialized_descs(b.descs(4096, 16))
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    remote = a.agent.prep_xfer_dlist(b.name, a.agent.deserialize_descs(there))
    local = a.agent.prep_xfer_dlist("", a.descs(4096, 16))
    handle = a.agent.make_prepped_xfer("WRITE", local, list(range(16)), remote, list(range(16)))
    return [ctx.finish(a.agent, handle), bool((a.buffer.written == b.buffer.bytes).all())]


@case()
def tensorrt_llm(nx, ctx):
    """TensorRT-LLM's calls: an equal list built anew takes memory back."""
    a, b = ctx.agent("a", backends=["UCX"], enable_prog_thread=True, num_threads=1), ctx.side("b")
    x = ctx.buffer(8192)
    a.register_memory(a.get_reg_descs([(x.address, x.size, 0, "name")], "DRAM"))
    name = a.add_remote_agent(b.agent.get_agent_metadata())
    handle = a.initialize_xfer("WRITE", a.get_xfer_descs(x.blocks(4096), "DRAM"), b.descs(4096, 2), name, b"sync")
    out = [ctx.finish(a, handle), normal(ctx.notifs(b.agent, 1))]
    handle.release()
    return [*out, attempt(a.deregister_memory, a.get_reg_descs([(x.address, x.size, 0, "name")], "DRAM"))]

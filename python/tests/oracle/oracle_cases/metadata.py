"""Metadata: taking it, loading it, dropping it, whole and in parts."""

from __future__ import annotations

from .normal import attempt, attempt_type, failure, normal
from .registry import case

NOT_FOUND = {"raises": "nixlNotFoundError", "status": "NIXL_ERR_NOT_FOUND"}


@case()
def kind_of_answer(nx, ctx):
    """Metadata are bytes, and loading them answers with the name as bytes."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_agent_metadata()
    answer = a.agent.add_remote_agent(data)
    return [type(data).__name__, len(data) > 0, normal(answer), answer.decode() == b.name]


@case()
def of_an_agent_without_memory(nx, ctx):
    """An agent that has registered nothing has metadata all the same."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.agent("b", backends=["UCX"])
    return [normal(a.add_remote_agent(b.get_agent_metadata())), a.check_remote_metadata(b.name)]


@case()
def of_an_agent_without_backends(nx, ctx):
    """Metadata of an agent that can't move anything."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.agent("b")
    data = attempt_type(b.get_agent_metadata)
    return [data, attempt(a.add_remote_agent, b.get_agent_metadata()) if "returns" in data else None]


@case()
def between_agents_without_backends(nx, ctx):
    """Loading where no backend can use it."""
    a, b = ctx.agent("a"), ctx.side("b")
    return attempt(a.add_remote_agent, b.agent.get_agent_metadata())


@case()
def own(nx, ctx):
    """An agent does not load its own metadata."""
    a = ctx.side("a")
    return attempt(a.agent.add_remote_agent, a.agent.get_agent_metadata())


@case()
def loaded_twice(nx, ctx):
    """Loading the same metadata again is fine."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_agent_metadata()
    return [
        normal(a.agent.add_remote_agent(data)),
        attempt(a.agent.add_remote_agent, data),
        a.agent.check_remote_metadata(b.name),
    ]


@case()
def loaded_as_other_types(nx, ctx):
    """Metadata given as something else than bytes."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_agent_metadata()
    return [attempt(a.agent.add_remote_agent, given) for given in (bytearray(data), None, 5)]


@case()
def damaged(nx, ctx):
    """Bytes that are no metadata, cut metadata, nothing."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_agent_metadata()
    return [
        attempt(a.agent.add_remote_agent, bad) for bad in (b"", b"not metadata", data[: len(data) // 2], b"\0" * 64)
    ]


@case()
def good_after_damaged(nx, ctx):
    """After damaged metadata of a name the good ones of that name can be loaded."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_agent_metadata()
    attempt(a.agent.add_remote_agent, data[: len(data) // 2])
    return [attempt(a.agent.add_remote_agent, data), a.agent.check_remote_metadata(b.name)]


@case()
def checking(nx, ctx):
    """`check_remote_metadata` for names that are known and unknown."""
    a, b = ctx.side("a"), ctx.side("b")
    before = a.agent.check_remote_metadata(b.name)
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    return [
        before,
        a.agent.check_remote_metadata(b.name),
        a.agent.check_remote_metadata("nobody"),
        a.agent.check_remote_metadata(a.name),
        attempt(a.agent.check_remote_metadata, ""),
    ]


@case()
def checking_descriptors(nx, ctx):
    """With descriptors: whether they are covered by what was loaded."""
    a, b = ctx.pair()
    inside = b.descs(4096, 4)
    across = a.agent.get_xfer_descs([(b.buffer.address + b.buffer.size - 64, 128, 0)], "DRAM")
    elsewhere = a.agent.get_xfer_descs([(64, 64, 0)], "DRAM")
    other_kind = a.agent.get_xfer_descs(b.buffer.blocks(64, 1), "VRAM")
    other_device = a.agent.get_xfer_descs([(b.buffer.address, 64, 5)], "DRAM")
    return [a.agent.check_remote_metadata(b.name, d) for d in (inside, across, elsewhere, other_kind, other_device)]


@case()
def checking_with_other_objects(nx, ctx):
    """Descriptors that are no transfer list."""
    a, b = ctx.pair()
    return [attempt(a.agent.check_remote_metadata, b.name, bad) for bad in ([], 5, a.registered)]


@case()
def older_after_newer(nx, ctx):
    """Metadata of an earlier moment, loaded after later ones: taken, and what is known stays."""
    a, b = ctx.side("a"), ctx.side("b")
    more, first = ctx.buffer(8192), b.agent.get_agent_metadata()
    made = b.agent.register_memory([more.region()], "DRAM")
    second = b.agent.get_agent_metadata()
    loaded = [normal(a.agent.add_remote_agent(data)) for data in (second, first, first, second)]
    both = [a.agent.check_remote_metadata(b.name, d) for d in (made.trim(), b.descs(64, 1))]
    return [loaded, both, ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(64, 1), b.descs(64, 1), b.name))]


@case()
def removing(nx, ctx):
    """After removing, the name is unknown; it can be loaded again."""
    a, b = ctx.pair()
    out = [
        a.agent.check_remote_metadata(b.name),
        a.agent.remove_remote_agent(b.name),
        a.agent.check_remote_metadata(b.name),
    ]
    out.append(normal(a.agent.add_remote_agent(b.agent.get_agent_metadata())))
    return [*out, a.agent.check_remote_metadata(b.name)]


@case()
def removing_nobody(nx, ctx):
    """Removing a name that is not there, one's own, none."""
    a = ctx.side("a")
    return [attempt(a.agent.remove_remote_agent, name) for name in ("nobody", a.name, "")]


@case()
def removing_twice(nx, ctx):
    """Removing again."""
    a, b = ctx.pair()
    return [attempt(a.agent.remove_remote_agent, b.name), attempt(a.agent.remove_remote_agent, b.name)]


@case()
def name_of_removed_as_bytes(nx, ctx):
    """The answer of loading, as it is, names the agent in the other calls."""
    a, b = ctx.side("a"), ctx.side("b")
    name = a.agent.add_remote_agent(b.agent.get_agent_metadata())
    return [
        a.agent.check_remote_metadata(name),
        attempt(a.agent.make_connection, name),
        attempt(a.agent.remove_remote_agent, name),
        a.agent.check_remote_metadata(b.name),
    ]


@case()
def newer_metadata(nx, ctx):
    """After more memory was registered, loading again makes it known."""
    a, b = ctx.pair()
    more = ctx.buffer(8192)
    b.agent.register_memory([more.region()], "DRAM")
    descs = a.agent.get_xfer_descs(more.blocks(4096), "DRAM")
    before = a.agent.check_remote_metadata(b.name, descs)
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    return [before, a.agent.check_remote_metadata(b.name, descs), a.agent.check_remote_metadata(b.name, b.descs(4096))]


@case()
def partial_without_connection(nx, ctx):
    """A part without connection info for an agent that is known already."""
    a, b = ctx.pair()
    more = ctx.buffer(8192)
    made = b.agent.register_memory([more.region()], "DRAM")
    data = b.agent.get_partial_agent_metadata(made)
    answer = a.agent.add_remote_agent(data)
    return [
        type(data).__name__,
        normal(answer),
        a.agent.check_remote_metadata(b.name, a.agent.get_xfer_descs(more.blocks(4096), "DRAM")),
    ]


@case()
def partial_parts_add_up(nx, ctx):
    """Connection info first, then regions one by one."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.agent("b", backends=["UCX"])
    buffers = [ctx.buffer(4096) for _ in range(2)]
    made = [b.register_memory([x.region()], "DRAM") for x in buffers]
    descs = [a.get_xfer_descs(x.blocks(4096), "DRAM") for x in buffers]
    none = nx.bindings.nixlRegDList(nx.bindings.DRAM_SEG)
    out = [normal(a.add_remote_agent(b.get_partial_agent_metadata(none, True, ["UCX"])))]
    out.append([a.check_remote_metadata(b.name), *[a.check_remote_metadata(b.name, d) for d in descs]])
    for part in made:
        a.add_remote_agent(b.get_partial_agent_metadata(part, True, ["UCX"]))
        out.append([a.check_remote_metadata(b.name, d) for d in descs])
    return out


@case()
def partial_by_keyword(nx, ctx):
    """The names of the arguments of `get_partial_agent_metadata`."""
    b = ctx.side("b")
    return [
        attempt_type(b.agent.get_partial_agent_metadata, descs=b.registered, inc_conn_info=True, backends=["UCX"]),
        attempt_type(b.agent.get_partial_agent_metadata, b.registered, True, ["NO_SUCH"]),
        attempt_type(b.agent.get_partial_agent_metadata, None),
        attempt_type(b.agent.get_partial_agent_metadata, b.descs(64, 1)),
    ]


@case()
def partial_of_unregistered(nx, ctx):
    """A part that names memory that is not registered."""
    b, other = ctx.side("b"), ctx.buffer(4096)
    return attempt_type(b.agent.get_partial_agent_metadata, b.agent.get_reg_descs([other.region()], "DRAM"), True)


@case(
    differs="stock refuses regions of an agent whose connection info has not come; here the order does not matter, and "
    "what was loaded is kept for when it comes",
    stock={"outcome": "ok", "result": [NOT_FOUND, False]},
    ours={"outcome": "ok", "result": [{"returns": {"bytes": b"metadata.partial_before_connection:b".hex()}}, True]},
)
def partial_before_connection(nx, ctx):
    """Regions without connection info of an agent that nobody knows yet."""
    a, b = ctx.side("a"), ctx.side("b")
    data = b.agent.get_partial_agent_metadata(b.registered, False)
    return [attempt(a.agent.add_remote_agent, data), a.agent.check_remote_metadata(b.name)]


@case(
    differs="the same: with connection info after the regions, a transfer is possible here and not in stock",
    stock={"outcome": "ok", "result": [True, False, NOT_FOUND]},
    ours={"outcome": "ok", "result": [True, True, "DONE"]},
)
def connection_after_regions(nx, ctx):
    """Regions first, connection info alone after them, and a transfer."""
    a, b = ctx.side("a"), ctx.side("b")
    attempt(a.agent.add_remote_agent, b.agent.get_partial_agent_metadata(b.registered, False))
    none = nx.bindings.nixlRegDList(nx.bindings.DRAM_SEG)
    a.agent.add_remote_agent(b.agent.get_partial_agent_metadata(none, True))
    known = [a.agent.check_remote_metadata(b.name), a.agent.check_remote_metadata(b.name, b.descs(64, 1))]
    try:
        handle = a.agent.initialize_xfer("READ", a.descs(64, 1), b.descs(64, 1), b.name)
    except nx.bindings.nixlNotFoundError as error:
        return [*known, failure(error)]
    return [*known, ctx.finish(a.agent, handle)]


@case(
    differs="the same: a try before the connection info has come fails as in stock, and the regions stay for when it "
    "comes",
    stock={"outcome": "ok", "result": [NOT_FOUND, True, NOT_FOUND]},
    ours={"outcome": "ok", "result": [NOT_FOUND, True, "DONE"]},
)
def transfer_between_regions_and_connection(nx, ctx):
    """Regions, a try to transfer, connection info, the transfer again."""
    a, b = ctx.side("a"), ctx.side("b")

    def transfer():
        try:
            return ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(64, 1), b.descs(64, 1), b.name))
        except (nx.bindings.nixlNotFoundError, nx.bindings.nixlRemoteDisconnectError) as error:
            return failure(error)

    attempt(a.agent.add_remote_agent, b.agent.get_partial_agent_metadata(b.registered, False))
    early = transfer()
    none = nx.bindings.nixlRegDList(nx.bindings.DRAM_SEG)
    a.agent.add_remote_agent(b.agent.get_partial_agent_metadata(none, True))
    return [early, a.agent.check_remote_metadata(b.name), transfer()]


@case()
def connecting(nx, ctx):
    """`make_connection` to an agent that is known, unknown, oneself."""
    a, b = ctx.pair()
    return [
        attempt(a.agent.make_connection, b.name),
        attempt(a.agent.make_connection, b.name, ["UCX"]),
        attempt(a.agent.make_connection, b.name),
        attempt(a.agent.make_connection, "nobody"),
        attempt(a.agent.make_connection, b.name, ["NO_SUCH"]),
    ]


@case(
    differs="stock knows no connection to itself, although it transfers to itself; here nothing is left to do, and "
    "that is fine",
    stock={"outcome": "ok", "result": NOT_FOUND},
    ours={"outcome": "ok", "result": {"returns": None}},
)
def connecting_to_oneself(nx, ctx):
    """`make_connection` with one's own name."""
    a = ctx.side("a")
    return attempt(a.agent.make_connection, a.name)


@case()
def raw_calls(nx, ctx):
    """The bindings: names in bytes, statuses."""
    a, b = ctx.side("a"), ctx.side("b")
    raw, empty = a.agent.agent, nx.bindings.nixlXferDList(nx.bindings.DRAM_SEG)
    loaded = raw.loadRemoteMD(b.agent.agent.getLocalMD())
    return [
        normal(loaded),
        normal(raw.checkRemoteMD(b.name, empty)),
        attempt(raw.checkRemoteMD, "nobody", empty),
        attempt(raw.makeConnection, b.name, [a.agent.backends["UCX"]]),
        normal(raw.invalidateRemoteMD(b.name)),
        attempt(raw.invalidateRemoteMD, b.name),
        attempt(raw.checkRemoteMD, b.name, empty),
    ]


@case()
def sending_to_no_store(nx, ctx):
    """Without a listener and a central store, the calls that exchange metadata are refused."""
    a = ctx.side("a")
    return [
        attempt(a.agent.send_local_metadata),
        attempt(a.agent.fetch_remote_metadata, "nobody"),
        attempt(a.agent.invalidate_local_metadata),
        attempt(a.agent.send_partial_agent_metadata, a.registered, True, ["UCX"]),
    ]

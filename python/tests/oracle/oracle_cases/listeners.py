"""The exchange of metadata over a listener, on the loopback address."""

from __future__ import annotations

from .normal import attempt, normal
from .registry import case


def listening(ctx, tag: str):
    """An agent that listens, with a buffer, and its port."""
    port = ctx.port()
    return ctx.side(tag, enable_listen_thread=True, listen_port=port), port


@case(limit=60)
def sending(nx, ctx):
    """Metadata sent to a listener are known there."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    answer = a.agent.send_local_metadata("127.0.0.1", port)
    return [answer, ctx.until(lambda: b.agent.check_remote_metadata(a.name)), a.agent.check_remote_metadata(b.name)]


@case(limit=60)
def fetching(nx, ctx):
    """Metadata fetched from a listener are known here."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    answer = a.agent.fetch_remote_metadata(b.name, "127.0.0.1", port)
    return [answer, ctx.until(lambda: a.agent.check_remote_metadata(b.name)), b.agent.check_remote_metadata(a.name)]


@case(limit=60)
def fetching_by_keyword(nx, ctx):
    """The names of the arguments, with a label, which a peer does not need."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    a.agent.fetch_remote_metadata(remote_agent=b.name, ip_addr="127.0.0.1", port=port, label="x")
    return ctx.until(lambda: a.agent.check_remote_metadata(b.name))


@case(limit=60)
def transfer_after_fetching(nx, ctx):
    """What was fetched is enough for a transfer."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    b.buffer.pattern(1)
    a.agent.fetch_remote_metadata(b.name, "127.0.0.1", port)
    ctx.until(lambda: a.agent.check_remote_metadata(b.name))
    state = ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(4096, 4), b.descs(4096, 4), b.name))
    return [state, bool((a.buffer.bytes[:16384] == b.buffer.written[:16384]).all())]


@case(limit=60)
def withdrawing(nx, ctx):
    """`invalidate_local_metadata` makes the peer forget."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    a.agent.send_local_metadata("127.0.0.1", port)
    known = ctx.until(lambda: b.agent.check_remote_metadata(a.name))
    answer = a.agent.invalidate_local_metadata("127.0.0.1", port)
    return [known, answer, ctx.until(lambda: not b.agent.check_remote_metadata(a.name))]


@case(limit=60)
def sending_a_part(nx, ctx):
    """A part sent to a listener: its region is known there, the other is not."""
    (a, _), (b, port) = listening(ctx, "a"), listening(ctx, "b")
    more = ctx.buffer(8192)
    made = a.agent.register_memory([more.region()], "DRAM")
    a.agent.send_partial_agent_metadata(made, True, ["UCX"], "127.0.0.1", port)
    covered = ctx.until(lambda: b.agent.check_remote_metadata(a.name, made.trim()))
    return [covered, b.agent.check_remote_metadata(a.name, a.descs(64, 1))]


@case(limit=60)
def nobody_listens(nx, ctx):
    """Sending to and fetching from a port where nobody listens: no error at the call, and nothing known."""
    a, _ = listening(ctx, "a")
    free = ctx.port()
    return [
        attempt(a.agent.send_local_metadata, "127.0.0.1", free),
        attempt(a.agent.fetch_remote_metadata, "nobody", "127.0.0.1", free),
        ctx.until(lambda: a.agent.check_remote_metadata("nobody"), patience=1.0),
    ]


@case(limit=60)
def several_at_one_listener(nx, ctx):
    """Three agents send to one."""
    target, port = listening(ctx, "t")
    senders = [listening(ctx, f"s{i}")[0] for i in range(3)]
    for s in senders:
        s.agent.send_local_metadata("127.0.0.1", port)
    return [ctx.until(lambda s=s: target.agent.check_remote_metadata(s.name)) for s in senders]


@case(limit=60)
def port_chosen_by_the_system(nx, ctx):
    """Port 0 is accepted."""
    agent = ctx.agent(enable_listen_thread=True, listen_port=0)
    return agent.name


@case(limit=60)
def port_that_is_taken(nx, ctx):
    """Two agents on one port."""
    _, port = listening(ctx, "a")
    second = attempt(lambda: ctx.side("b", enable_listen_thread=True, listen_port=port).name)
    return normal("returns" in second or second["raises"])


@case(limit=60)
def without_listener_of_ones_own(nx, ctx):
    """An agent that does not listen itself can't exchange over a listener."""
    a, (b, port) = ctx.side("a"), listening(ctx, "b")
    return [
        attempt(a.agent.send_local_metadata, "127.0.0.1", port),
        attempt(a.agent.fetch_remote_metadata, b.name, "127.0.0.1", port),
        attempt(a.agent.invalidate_local_metadata, "127.0.0.1", port),
    ]


@case(limit=60)
def addresses_that_are_none(nx, ctx):
    """Addresses that can't be read."""
    a, _ = listening(ctx, "a")
    return [
        attempt(a.agent.send_local_metadata, "not-an-address", 1),
        attempt(a.agent.send_local_metadata, 5, 1),
        attempt(a.agent.send_local_metadata, "127.0.0.1", "x"),
    ]

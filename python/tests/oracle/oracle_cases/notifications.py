"""Notifications: with transfers, alone, gathered, looked up."""

from __future__ import annotations

from .normal import attempt, normal
from .registry import case


def transfer(ctx, a, b, message=b"", op="WRITE"):
    return a.agent.initialize_xfer(op, a.descs(64, 1), b.descs(64, 1), b.name, message)


@case()
def nothing_new(nx, ctx):
    """Without messages the answer is an empty dictionary."""
    a, b = ctx.pair()
    return [
        normal(a.agent.get_new_notifs()),
        normal(a.agent.update_notifs()),
        normal(a.agent.notifs),
        normal(b.agent.get_new_notifs(["UCX"])),
    ]


@case()
def with_a_write(nx, ctx):
    """The message of a WRITE: sender's name, bytes, once."""
    a, b = ctx.pair()
    state = ctx.finish(a.agent, transfer(ctx, a, b, b"done:1"))
    return [state, normal(ctx.notifs(b.agent, 1)), normal(b.agent.get_new_notifs()), normal(a.agent.get_new_notifs())]


@case()
def with_a_read(nx, ctx):
    """The message of a READ goes to the side that was read from."""
    a, b = ctx.pair()
    state = ctx.finish(a.agent, transfer(ctx, a, b, b"read it", "READ"))
    return [state, normal(ctx.notifs(b.agent, 1))]


@case()
def content(nx, ctx):
    """Messages with zeros, bytes that are no text, one of some length."""
    a, b = ctx.pair()
    messages = [b"\0", b"a\0b\0", b"\xff\xfe\x80", b"x" * 5000]
    for message in messages:
        ctx.finish(a.agent, transfer(ctx, a, b, message))
    return normal({k: sorted(v) for k, v in ctx.notifs(b.agent, 4).items()})


@case()
def given_as_text(nx, ctx):
    """A message given as text arrives as its UTF-8 bytes."""
    a, b = ctx.pair()
    ctx.finish(a.agent, transfer(ctx, a, b, "häh"))
    a.agent.send_notif(b.name, "ŝalom")
    return normal({k: sorted(v) for k, v in ctx.notifs(b.agent, 2).items()})


@case()
def given_as_other_types(nx, ctx):
    """Messages that are neither text nor bytes."""
    a, b = ctx.pair()
    return {
        name: [attempt(a.agent.send_notif, b.name, m), attempt(lambda m=m: type(transfer(ctx, a, b, m)).__name__)]
        for name, m in (("number", 5), ("none", None), ("list", [b"a"]), ("bytearray", bytearray(b"a")))
    }


@case()
def at_posting(nx, ctx):
    """A message given at posting, instead of the one from before, and on every later posting anew."""
    a, b = ctx.pair()
    handle = transfer(ctx, a, b, b"from the start")
    out = []
    for given in (b"", b"from posting", b"", "as text"):
        state = a.agent.transfer(handle, given) if given else a.agent.transfer(handle)
        ctx.finish(a.agent, handle, state)
        out.append(normal(ctx.notifs(b.agent, 1)))
    return out


@case()
def at_posting_only(nx, ctx):
    """A transfer made without a message gets one at posting; the next posting has none again or keeps it."""
    a, b = ctx.pair()
    handle = transfer(ctx, a, b)
    ctx.finish(a.agent, handle, a.agent.transfer(handle, b"once"))
    first = normal(ctx.notifs(b.agent, 1))
    ctx.finish(a.agent, handle)
    return [first, normal(ctx.notifs(b.agent, 1, patience=1.0))]


@case()
def no_message(nx, ctx):
    """A transfer without a message tells nobody."""
    a, b = ctx.pair()
    ctx.finish(a.agent, transfer(ctx, a, b))
    return normal(ctx.notifs(b.agent, 1, patience=0.5))


@case()
def every_posting_tells(nx, ctx):
    """Each posting of one handle sends its message."""
    a, b = ctx.pair()
    handle = transfer(ctx, a, b, b"again")
    for _ in range(4):
        ctx.finish(a.agent, handle)
    return normal(ctx.notifs(b.agent, 4))


@case()
def alone(nx, ctx):
    """A message without a transfer."""
    a, b = ctx.pair()
    return [a.agent.send_notif(b.name, b"hello"), normal(ctx.notifs(b.agent, 1))]


@case()
def alone_by_keyword(nx, ctx):
    """The way vLLM calls it."""
    a, b = ctx.pair()
    a.agent.send_notif(b.name, notif_msg=b"HB:1,2")
    return normal(ctx.notifs(b.agent, 1))


@case()
def alone_many_in_order(nx, ctx):
    """Two hundred messages of one sender: all arrive."""
    a, b = ctx.pair()
    for i in range(200):
        a.agent.send_notif(b.name, b"%03d" % i)
    got = ctx.notifs(b.agent, 200)
    return {k: [len(v), sorted(v) == [b"%03d" % i for i in range(200)]] for k, v in got.items()}


@case()
def alone_and_empty(nx, ctx):
    """An empty message of its own."""
    a, b = ctx.pair()
    answer = attempt(a.agent.send_notif, b.name, b"")
    a.agent.send_notif(b.name, b"after")
    return [answer, normal({k: sorted(v) for k, v in ctx.notifs(b.agent, 2, patience=2.0).items()})]


@case(
    differs="stock hands the backend's number where its bindings take a list, so naming a backend never works; here "
    "it does",
    stock={"outcome": "ok", "result": [{"raises": "TypeError"}, {}]},
    ours={
        "outcome": "ok",
        "result": [{"returns": None}, {"notifications.alone_with_a_backend:a": [{"bytes": "76696120554358"}]}],
    },
)
def alone_with_a_backend(nx, ctx):
    """A message with its backend named."""
    a, b = ctx.pair()
    return [attempt(a.agent.send_notif, b.name, b"via UCX", "UCX"), normal(ctx.notifs(b.agent, 1, patience=1.0))]


@case()
def alone_with_an_unknown_backend(nx, ctx):
    """A message by a backend that does not exist."""
    a, b = ctx.pair()
    return attempt(a.agent.send_notif, b.name, b"x", "NO_SUCH")


@case()
def alone_to_nobody(nx, ctx):
    """A message to an agent that was never loaded, and to one that was removed."""
    a, b = ctx.pair()
    before = attempt(a.agent.send_notif, "nobody", b"x")
    a.agent.remove_remote_agent(b.name)
    return [before, attempt(a.agent.send_notif, b.name, b"x")]


@case()
def alone_to_oneself(nx, ctx):
    """A message to one's own name."""
    a = ctx.side("a")
    return [attempt(a.agent.send_notif, a.name, b"self"), normal(ctx.notifs(a.agent, 1, patience=2.0))]


@case()
def with_a_loopback_transfer(nx, ctx):
    """The message of a transfer to oneself."""
    a = ctx.side("a")
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), a.descs(64, 1, start=4096), a.name, b"to me")
    return [ctx.finish(a.agent, handle), normal(ctx.notifs(a.agent, 1, patience=2.0))]


@case()
def from_several_senders(nx, ctx):
    """Messages are kept by sender."""
    c = ctx.side("c")
    senders = [ctx.side(f"s{i}") for i in range(3)]
    for i, s in enumerate(senders):
        s.agent.add_remote_agent(c.agent.get_agent_metadata())
        c.agent.add_remote_agent(s.agent.get_agent_metadata())
        s.agent.send_notif(c.name, b"from %d" % i)
    return normal(ctx.notifs(c.agent, 3))


@case()
def gathered(nx, ctx):
    """`update_notifs` keeps what it has seen, in the attribute too; `get_new_notifs` does not."""
    a, b = ctx.pair()
    a.agent.send_notif(b.name, b"1")
    ctx.until(lambda: sum(map(len, b.agent.update_notifs().values())) == 1)
    a.agent.send_notif(b.name, b"2")
    ctx.until(lambda: sum(map(len, b.agent.update_notifs().values())) == 2)
    return [
        normal(b.agent.notifs),
        normal(b.agent.update_notifs(["UCX"])),
        normal(b.agent.get_new_notifs()),
        b.agent.update_notifs() is b.agent.notifs,
    ]


@case()
def changing_what_was_gathered(nx, ctx):
    """Callers take messages out of the attribute."""
    a, b = ctx.pair()
    a.agent.send_notif(b.name, b"1")
    ctx.until(lambda: b.agent.update_notifs().get(a.name))
    b.agent.notifs[a.name].clear()
    a.agent.send_notif(b.name, b"2")
    ctx.until(lambda: b.agent.update_notifs().get(a.name))
    return normal(b.agent.notifs)


def arrived(ctx, a, b, *messages):
    """Sends, and waits until all have been gathered at the other agent."""
    for message in messages:
        a.agent.send_notif(b.name, message)
    ctx.until(lambda: len(b.agent.update_notifs().get(a.name, [])) >= len(messages))


@case()
def looked_up_by_prefix(nx, ctx):
    """`check_remote_xfer_done` finds a message by how it begins, and takes that one away."""
    a, b = ctx.pair()
    arrived(ctx, a, b, b"req-1:done", b"req-2:done")
    look = b.agent.check_remote_xfer_done
    return [look(a.name, b"done"), look(a.name, b"req-2"), look(a.name, b"req-2"), normal(b.agent.notifs)]


@case()
def looked_up_anywhere(nx, ctx):
    """The same by a part of the message."""
    a, b = ctx.pair()
    arrived(ctx, a, b, b"req-1:done")
    look = b.agent.check_remote_xfer_done
    return [
        look(a.name, b"done", tag_is_prefix=True),
        look(a.name, b"done", tag_is_prefix=False),
        look(a.name, b"done", [], False),
        normal(b.agent.notifs),
    ]


@case()
def looked_up_takes_one(nx, ctx):
    """Of several that match, one is taken."""
    a, b = ctx.pair()
    arrived(ctx, a, b, b"same", b"same")
    look = b.agent.check_remote_xfer_done
    return [look(a.name, b"same"), normal(b.agent.notifs), look(a.name, b"same", ["UCX"]), look(a.name, b"same")]


@case()
def looked_up_with_an_empty_tag(nx, ctx):
    """An empty tag is how every message begins."""
    a, b = ctx.pair()
    before = b.agent.check_remote_xfer_done(a.name, b"")
    arrived(ctx, a, b, b"any")
    return [before, b.agent.check_remote_xfer_done(a.name, b""), normal(b.agent.notifs)]


@case(
    differs="stock can't compare a tag in text with its bytes; here a text means its UTF-8 bytes, as it does for "
    "messages",
    stock={"outcome": "ok", "result": {"raises": "TypeError"}},
    ours={"outcome": "ok", "result": {"returns": True}},
)
def looked_up_by_text(nx, ctx):
    """A tag given as text."""
    a, b = ctx.pair()
    arrived(ctx, a, b, b"msg")
    return attempt(b.agent.check_remote_xfer_done, a.name, "msg")


@case()
def looked_up_where_nothing_is(nx, ctx):
    """Looking up what an unknown agent sent, and by an unknown backend."""
    a, b = ctx.pair()
    look = b.agent.check_remote_xfer_done
    return [attempt(look, "nobody", b"msg"), attempt(look, a.name, b"msg"), attempt(look, a.name, b"msg", ["NO_SUCH"])]


@case()
def looking_up_gathers(nx, ctx):
    """Looking up takes in what is new by itself."""
    a, b = ctx.pair()
    a.agent.send_notif(b.name, b"tag:1")
    found = ctx.until(lambda: b.agent.check_remote_xfer_done(a.name, b"tag"))
    return [found, normal(b.agent.notifs)]


@case()
def unknown_backend(nx, ctx):
    """Looking with a backend that does not exist."""
    a = ctx.side("a")
    return [attempt(a.agent.get_new_notifs, ["NO_SUCH"]), attempt(a.agent.update_notifs, ["NO_SUCH"])]


@case()
def without_backends(nx, ctx):
    """An agent without backends looks for messages, and sends one."""
    a = ctx.agent()
    return [attempt(a.get_new_notifs), attempt(a.update_notifs), attempt(a.send_notif, "nobody", b"x")]


@case()
def from_an_agent_that_is_not_known(nx, ctx):
    """The receiver has not loaded the sender."""
    a, b = ctx.side("a"), ctx.side("b")
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    a.agent.send_notif(b.name, b"stranger")
    return normal(ctx.notifs(b.agent, 1))


@case()
def raw_calls(nx, ctx):
    """The bindings: a dictionary is filled and handed back."""
    a, b = ctx.pair()
    sent = a.agent.agent.genNotif(b.name, b"raw", [a.agent.backends["UCX"]])
    held = {"other": [b"kept"]}
    got: dict = {}
    ctx.until(lambda: got.update(b.agent.agent.getNotifs(held, [])) or a.name in got)
    return [
        normal(sent),
        normal(got),
        normal(b.agent.agent.getNotifs(notif_map={}, backends=[])),
        attempt(b.agent.agent.getNotifs, None),
    ]


@case(
    differs="stock finds an empty message but never takes it away, so that it is found for ever; here it is taken "
    "like any other",
    stock={"outcome": "ok", "result": [True, True, {"notifications.looked_up_when_empty:a": [{"bytes": ""}]}]},
    ours={"outcome": "ok", "result": [True, False, {"notifications.looked_up_when_empty:a": []}]},
)
def looked_up_when_empty(nx, ctx):
    """An empty message is found."""
    a, b = ctx.pair()
    arrived(ctx, a, b, b"")
    look = b.agent.check_remote_xfer_done
    return [look(a.name, b""), look(a.name, b""), normal(b.agent.notifs)]

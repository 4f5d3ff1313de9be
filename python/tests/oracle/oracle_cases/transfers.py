"""Transfers made from two lists: both directions, states, posting again, what is refused."""

from __future__ import annotations

import numpy as np

from .context import pattern
from .normal import attempt, failure, normal, type_name
from .registry import case


@case()
def write(nx, ctx):
    """A WRITE to another agent of this process; all bytes arrive, none beside them."""
    a, b = ctx.pair()
    a.buffer.pattern(1)
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 8), b.descs(4096, 8), b.name)
    state = ctx.finish(a.agent, handle)
    return [
        type_name(handle),
        state,
        bool((b.buffer.bytes[:32768] == a.buffer.written[:32768]).all()),
        int(b.buffer.bytes[32768:].sum()),
    ]


@case()
def read(nx, ctx):
    """A READ from another agent of this process."""
    a, b = ctx.pair()
    b.buffer.pattern(2)
    handle = a.agent.initialize_xfer("READ", a.descs(4096, 8), b.descs(4096, 8), b.name)
    state = ctx.finish(a.agent, handle)
    return [state, bool((b.buffer.written[:32768] == a.buffer.bytes[:32768]).all()), int(a.buffer.bytes[32768:].sum())]


@case()
def loopback(nx, ctx):
    """An agent is its own peer, without loading its metadata."""
    a = ctx.side("a")
    a.buffer.bytes[:4096] = pattern(4096, 3)
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 1), a.descs(4096, 1, start=8192), a.name)
    state = ctx.finish(a.agent, handle)
    return [state, bool((a.buffer.bytes[8192:12288] == pattern(4096, 3)).all())]


@case()
def scattered(nx, ctx):
    """Blocks in another order on each side land where their partner is."""
    a, b = ctx.pair()
    a.buffer.pattern(4)
    here, there = a.buffer.blocks(1024, 16), b.buffer.blocks(1024, 16)[::-1]
    local, remote = a.agent.get_xfer_descs(here, "DRAM"), a.agent.get_xfer_descs(there, "DRAM")
    state = ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", local, remote, b.name))
    want = a.buffer.written[:16384].reshape(16, 1024)[::-1].reshape(-1)
    return [state, bool((b.buffer.bytes[:16384] == want).all())]


@case()
def unequal_sizes(nx, ctx):
    """Blocks of several sizes in one transfer, one byte too."""
    a, b = ctx.pair()
    a.buffer.pattern(5)
    at, rows = 0, []
    for length in (1, 3, 64, 4095, 4097, 20000):
        rows.append((at, length))
        at += length + 7
    local = a.agent.get_xfer_descs([(a.buffer.address + o, n, 0) for o, n in rows], "DRAM")
    remote = a.agent.get_xfer_descs([(b.buffer.address + o, n, 0) for o, n in rows], "DRAM")
    state = ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", local, remote, b.name))
    want = np.zeros(b.buffer.size, dtype=np.uint8)
    for o, n in rows:
        want[o : o + n] = a.buffer.written[o : o + n]
    return [state, bool((b.buffer.bytes == want).all())]


@case()
def large(nx, ctx):
    """4 MiB in one block, followed from posting to the end."""
    a, b = ctx.pair(4 << 20)
    a.buffer.pattern(6)
    handle = a.agent.initialize_xfer("WRITE", a.descs(4 << 20, 1), b.descs(4 << 20, 1), b.name)
    state = a.agent.transfer(handle)
    return [
        state in ("PROC", "DONE"),
        ctx.finish(a.agent, handle, state),
        bool((a.buffer.written == b.buffer.bytes).all()),
    ]


@case()
def many_blocks(nx, ctx):
    """4,096 blocks of 64 bytes."""
    a, b = ctx.pair(4096 * 128)
    a.buffer.pattern(7)
    rows = np.zeros((4096, 3), dtype=np.uint64)
    rows[:, 0] = np.arange(4096, dtype=np.uint64) * 128
    rows[:, 1] = 64
    here, there = rows.copy(), rows.copy()
    here[:, 0] += a.buffer.address
    there[:, 0] += b.buffer.address
    local, remote = a.agent.get_xfer_descs(here, "DRAM"), a.agent.get_xfer_descs(there, "DRAM")
    state = ctx.finish(a.agent, a.agent.initialize_xfer("READ", local, remote, b.name))
    halves = b.buffer.bytes.reshape(4096, 2, 64)
    got = a.buffer.bytes.reshape(4096, 2, 64)
    return [
        state,
        bool((got[:, 0] == halves[:, 0]).all()),
        bool((got[:, 1] == pattern(a.buffer.size, 7).reshape(4096, 2, 64)[:, 1]).all()),
    ]


@case()
def peer_named_in_bytes(nx, ctx):
    """The name as `add_remote_agent` gave it."""
    a, b = ctx.side("a"), ctx.side("b")
    name = a.agent.add_remote_agent(b.agent.get_agent_metadata())
    return ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), name))


@case()
def by_keyword(nx, ctx):
    """All arguments by name, with the backend and a text as message."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer(
        operation="READ",
        local_descs=a.descs(64, 1),
        remote_descs=b.descs(64, 1),
        remote_agent=b.name,
        notif_msg="text",
        backends=["UCX"],
    )
    return [ctx.finish(a.agent, handle), normal(ctx.notifs(b.agent, 1))]


@case()
def posted_again(nx, ctx):
    """A finished transfer is posted again and moves what is there then."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 4), b.descs(4096, 4), b.name)
    out = []
    for seed in range(5):
        a.buffer.pattern(seed)
        out.append([ctx.finish(a.agent, handle), bool((b.buffer.bytes[:16384] == a.buffer.written[:16384]).all())])
    return out


@case()
def state_after_the_end(nx, ctx):
    """A finished transfer stays DONE however often it is asked."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    ctx.finish(a.agent, handle)
    return [a.agent.check_xfer_state(handle) for _ in range(3)]


@case()
def never_posted(nx, ctx):
    """The state of a transfer that was not posted, and its release."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    return [attempt(a.agent.check_xfer_state, handle), attempt(a.agent.release_xfer_handle, handle)]


@case()
def released(nx, ctx):
    """Releasing by the agent and by the handle, also twice."""
    a, b = ctx.pair()
    first = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    second = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    ctx.finish(a.agent, first)
    ctx.finish(a.agent, second)
    return [a.agent.release_xfer_handle(first), a.agent.release_xfer_handle(first), second.release(), second.release()]


@case()
def handle_is_opaque(nx, ctx):
    """What a handle shows: its text, its truth, and that it has a number."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    dlist = a.agent.prep_xfer_dlist("", a.descs(64, 1))
    before = [repr(h).split("(")[0] + repr(h)[-15:] for h in (handle, dlist)]
    handle.release()
    dlist.release()
    after = [repr(h).split("(")[0] + repr(h)[-14:] for h in (handle, dlist)]
    return [before, after, bool(handle), bool(dlist)]


@case()
def handle_dropped(nx, ctx):
    """Handles that nobody releases go with their last reference."""
    a, b = ctx.pair()
    for _ in range(50):
        ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name))
    return attempt(a.agent.deregister_memory, a.registered)


@case()
def inside_of_overlapping_regions(nx, ctx):
    """A block inside of two registered regions at once."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.side("b")
    buffer = ctx.buffer(16384)
    a.register_memory([(buffer.address, 12288, 0, ""), (buffer.address + 4096, 12288, 0, "")], "DRAM")
    a.add_remote_agent(b.agent.get_agent_metadata())
    local = a.get_xfer_descs(
        [(buffer.address + 5000, 200, 0), (buffer.address + 15000, 200, 0), (buffer.address, 200, 0)], "DRAM"
    )
    return ctx.finish(a, a.initialize_xfer("WRITE", local, b.descs(200, 3), b.name))


@case()
def backend_of_a_transfer(nx, ctx):
    """`query_xfer_backend`, before and after posting."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    before = a.agent.query_xfer_backend(handle)
    ctx.finish(a.agent, handle)
    return [before, a.agent.query_xfer_backend(handle)]


@case()
def cost(nx, ctx):
    """`estimate_xfer_cost`: two numbers and a word."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 4), b.descs(4096, 4), b.name)
    answer = a.agent.estimate_xfer_cost(handle)
    return [type_name(answer), len(answer), [type_name(x) for x in answer], answer[2], answer[0] >= 0]


@case()
def posted_after_the_peer_was_removed(nx, ctx):
    """A transfer outlives its peer's metadata: posting it is refused."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    a.agent.remove_remote_agent(b.name)
    return [attempt(a.agent.transfer, handle), attempt(a.agent.release_xfer_handle, handle)]


@case()
def posted_after_the_peer_came_back(nx, ctx):
    """Removed and loaded again: transfers of the time before are refused, new ones work."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    a.agent.remove_remote_agent(b.name)
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    old = attempt(a.agent.transfer, handle)
    return [old, ctx.finish(a.agent, a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name))]


@case()
def lists_are_used_again(nx, ctx):
    """A list serves many transfers and may go before they end."""
    a, b = ctx.pair()
    local, remote = a.descs(4096, 4), b.descs(4096, 4)
    handles = [a.agent.initialize_xfer(op, local, remote, b.name) for op in ("WRITE", "READ", "WRITE")]
    del local, remote
    return [ctx.finish(a.agent, h) for h in handles]


@case()
def several_at_once(nx, ctx):
    """Sixteen transfers under way together."""
    a, b = ctx.pair(1 << 20)
    a.buffer.pattern(8)
    handles = [
        a.agent.initialize_xfer("WRITE", a.descs(65536, 1, start=i * 65536), b.descs(65536, 1, start=i * 65536), b.name)
        for i in range(16)
    ]
    states = [a.agent.transfer(h) for h in handles]
    return [
        [ctx.finish(a.agent, h, s) for h, s in zip(handles, states)],
        bool((a.buffer.written == b.buffer.bytes).all()),
    ]


@case()
def both_directions(nx, ctx):
    """Each agent writes into the other's memory."""
    a, b = ctx.pair()
    a.buffer.bytes[:4096], b.buffer.bytes[:4096] = pattern(4096, 1), pattern(4096, 2)
    one = a.agent.initialize_xfer("WRITE", a.descs(4096, 1), b.descs(4096, 1, start=8192), b.name)
    two = b.agent.initialize_xfer("WRITE", b.descs(4096, 1), a.descs(4096, 1, start=8192), a.name)
    states = [ctx.finish(a.agent, one), ctx.finish(b.agent, two)]
    return [
        states,
        bool((b.buffer.bytes[8192:12288] == pattern(4096, 1)).all()),
        bool((a.buffer.bytes[8192:12288] == pattern(4096, 2)).all()),
    ]


@case()
def only_the_initiator_knows_the_peer(nx, ctx):
    """The target need not have loaded the initiator's metadata."""
    a, b = ctx.side("a"), ctx.side("b")
    b.buffer.pattern(9)
    a.agent.add_remote_agent(b.agent.get_agent_metadata())
    state = ctx.finish(a.agent, a.agent.initialize_xfer("READ", a.descs(4096, 1), b.descs(4096, 1), b.name))
    return [state, bool((a.buffer.bytes[:4096] == b.buffer.written[:4096]).all())]


@case(
    differs="stock needs the target to call in for a transfer to end when it has no progress thread; the engine here "
    "has threads of its own, always",
    stock={"outcome": "ok", "result": "PROC for too long"},
    ours={"outcome": "ok", "result": "DONE"},
)
def without_progress_threads(nx, ctx):
    """Agents without the progress thread, and a target that does nothing."""
    a, b = ctx.pair(enable_prog_thread=False)
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 4), b.descs(4096, 4), b.name)
    return ctx.finish(a.agent, handle, patience=3)


@case()
def without_progress_threads_but_with_calls(nx, ctx):
    """Agents without the progress thread, and a target that looks for notifications."""
    a, b = ctx.pair(enable_prog_thread=False)
    a.buffer.pattern(10)
    handle = a.agent.initialize_xfer("WRITE", a.descs(4096, 4), b.descs(4096, 4), b.name)
    state = ctx.finish(a.agent, handle, meanwhile=b.agent.get_new_notifs)
    return [state, bool((b.buffer.bytes[:16384] == a.buffer.written[:16384]).all())]


@case()
def taken_back_under_a_transfer(nx, ctx):
    """Deregistering memory that an idle transfer names, and posting that transfer then."""
    a, b = ctx.pair()
    handle = a.agent.initialize_xfer("WRITE", a.descs(64, 1), b.descs(64, 1), b.name)
    ctx.finish(a.agent, handle)
    return attempt(a.agent.deregister_memory, a.registered)


@case()
def raw_calls(nx, ctx):
    """The bindings: statuses, numbers, keywords."""
    a, b = ctx.pair()
    raw, bd = a.agent.agent, nx.bindings
    try:
        number = raw.createXferReq(
            operation=bd.NIXL_WRITE,
            local_descs=a.descs(64, 1),
            remote_descs=b.descs(64, 1),
            remote_agent=b.name,
            notif_msg=b"m",
            backend=[a.agent.backends["UCX"]],
        )
    except Exception as error:
        return failure(error)
    state = raw.postXferReq(number, b"")
    ctx.until(lambda: raw.getXferStatus(number) == bd.NIXL_SUCCESS)
    return [
        type_name(number),
        type_name(state),
        normal(raw.getXferStatus(number)),
        raw.queryXferBackend(number) == a.agent.backends["UCX"],
        [type_name(v) for v in raw.estimateXferCost(number)],
        normal(raw.releaseXferReq(number)),
    ]


@case()
def posted_while_running(nx, ctx):
    """Posting a transfer that has not ended raises nixlRepostActiveError, or it had ended meanwhile."""
    a, b = ctx.pair(8 << 20)
    handle = a.agent.initialize_xfer("WRITE", a.descs(8 << 20, 1), b.descs(8 << 20, 1), b.name)
    answers = []
    for _ in range(5):
        state = a.agent.transfer(handle)
        again = attempt(a.agent.transfer, handle)
        answers.append(again.get("raises") == "nixlRepostActiveError" or again.get("returns") in ("PROC", "DONE"))
        ctx.finish(a.agent, handle, "PROC" if state == "PROC" or again.get("returns") == "PROC" else "DONE")
    return all(answers)


@case()
def released_while_running(nx, ctx):
    """Releasing a transfer that has not ended succeeds or raises nixlRepostActiveError; in the end it succeeds."""
    a, b = ctx.pair(8 << 20)
    seen = []
    for _ in range(5):
        handle = a.agent.initialize_xfer("READ", a.descs(8 << 20, 1), b.descs(8 << 20, 1), b.name)
        a.agent.transfer(handle)
        first = attempt(handle.release)
        seen.append(first == {"returns": None} or first.get("raises") == "nixlRepostActiveError")
        seen.append(ctx.until(lambda h=handle: attempt(h.release) == {"returns": None}))
    return all(seen)


def _empty(side, *lengths):
    """Blocks of these lengths; one without bytes is at no address."""
    return side.agent.get_xfer_descs([(side.buffer.address if size else 0, size, 0) for size in lengths], "DRAM")


def _with_an_empty_region(nx, ctx):
    a, b = ctx.side("a"), ctx.side("b")
    for side in (a, b):
        side.agent.register_memory([(0, 0, 0, "")], "DRAM")
    for one, other in ((a, b), (b, a)):
        one.agent.add_remote_agent(other.agent.get_agent_metadata())
    b.buffer.pattern(7)
    return a, b


@case()
def blocks_without_bytes(nx, ctx):
    """Blocks of length zero beside one with bytes, as Ray sends empty tensors, with a message."""
    a, b = _with_an_empty_region(nx, ctx)
    states = [
        ctx.finish(a.agent, a.agent.initialize_xfer(op, _empty(a, 0, 64, 0), _empty(b, 0, 64, 0), b.name, b"empty"))
        for op in ("READ", "WRITE")
    ]
    same = bool((a.buffer.bytes[:64] == b.buffer.written[:64]).all()) and not a.buffer.bytes[64:].any()
    return [states, same, normal(ctx.notifs(b.agent, 2)), a.agent.check_remote_metadata(b.name, _empty(b, 0, 64))]


@case()
def nothing_but_blocks_without_bytes(nx, ctx):
    """A transfer that moves nothing ends well, notifies, can be posted again and is released."""
    a, b = _with_an_empty_region(nx, ctx)
    handle = a.agent.initialize_xfer("READ", _empty(a, 0, 0), _empty(b, 0, 0), b.name, b"nothing")
    before = attempt(a.agent.check_xfer_state, handle)
    states = [ctx.finish(a.agent, handle) for _ in range(2)]
    told = normal(ctx.notifs(b.agent, 2))
    return [before, states, told, attempt(handle.release), attempt(a.agent.initialize_xfer, "READ", _empty(a, 0), _empty(b, 0), "nobody")]


@case()
def bytes_on_one_side_alone(nx, ctx):
    """A block of length zero paired with one that has bytes."""
    a, b = _with_an_empty_region(nx, ctx)
    pairs = [(0, 64), (64, 0)]
    return [attempt(a.agent.initialize_xfer, "READ", _empty(a, x), _empty(b, y), b.name) for x, y in pairs]

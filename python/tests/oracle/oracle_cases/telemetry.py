"""What a transfer took: on, off, by configuration and by environment."""

from __future__ import annotations

from .normal import attempt, type_name
from .registry import case

FIELDS = ("startTime", "postDuration", "xferDuration", "totalBytes", "descCount")


def shown(found) -> dict:
    """The exact numbers, and of the times whether they can be."""
    return {
        "type": type_name(found),
        "types": {name: type_name(getattr(found, name)) for name in FIELDS},
        "bytes": found.totalBytes,
        "count": found.descCount,
        "times": [
            found.startTime > 0 if isinstance(found.startTime, int) else True,
            numbers(found.postDuration),
            numbers(found.xferDuration),
        ],
    }


def numbers(value) -> bool:
    return value >= 0 if isinstance(value, (int, float)) else value.total_seconds() >= 0


def transfer(ctx, **config):
    a, b = ctx.pair(**config)
    handle = a.agent.initialize_xfer("WRITE", a.descs(1024, 4), b.descs(1024, 4), b.name)
    return a, b, handle


@case()
def switched_on(nx, ctx):
    """With `capture_telemetry`: an object with five numbers."""
    a, _, handle = transfer(ctx, capture_telemetry=True)
    ctx.finish(a.agent, handle)
    return shown(a.agent.get_xfer_telemetry(handle))


@case()
def switched_off(nx, ctx):
    """Without it: an error of its own class."""
    a, _, handle = transfer(ctx)
    ctx.finish(a.agent, handle)
    return attempt(a.agent.get_xfer_telemetry, handle)


@case()
def before_posting(nx, ctx):
    """Asked before the transfer was posted."""
    a, _, handle = transfer(ctx, capture_telemetry=True)
    return attempt(a.agent.get_xfer_telemetry, handle)


@case()
def of_a_prepped_transfer(nx, ctx):
    """Bytes and descriptors of a transfer by index that can't merge."""
    a, b = ctx.pair(capture_telemetry=True)
    local, remote = a.agent.prep_xfer_dlist("", a.descs(256, 16)), a.agent.prep_xfer_dlist(b.name, b.descs(256, 16))
    handle = a.agent.make_prepped_xfer("READ", local, [0, 2, 4], remote, [5, 3, 1])
    ctx.finish(a.agent, handle)
    return shown(a.agent.get_xfer_telemetry(handle))


def merged(ctx, skip: bool) -> list:
    a, b = ctx.pair(capture_telemetry=True)
    local, remote = a.agent.prep_xfer_dlist("", a.descs(256, 16)), a.agent.prep_xfer_dlist(b.name, b.descs(256, 16))
    handle = a.agent.make_prepped_xfer("WRITE", local, [4, 5, 6, 7], remote, [0, 1, 2, 3], b"", [], skip)
    ctx.finish(a.agent, handle)
    found = a.agent.get_xfer_telemetry(handle)
    return [found.totalBytes, found.descCount]


@case()
def without_merging(nx, ctx):
    """Bytes and descriptors of neighbours that are not to be merged."""
    return merged(ctx, True)


@case(
    differs="stock merges neighbours when the transfer is made and counts what is left; kvferry merges while it "
    "copies and counts the blocks that were asked for",
    stock={"outcome": "ok", "result": [1024, 1]},
    ours={"outcome": "ok", "result": [1024, 4]},
)
def with_merging(nx, ctx):
    """Bytes and descriptors of neighbours that may be merged."""
    return merged(ctx, False)


@case()
def of_each_posting(nx, ctx):
    """A second posting has its own start."""
    a, _, handle = transfer(ctx, capture_telemetry=True)
    ctx.finish(a.agent, handle)
    first = a.agent.get_xfer_telemetry(handle)
    ctx.finish(a.agent, handle)
    second = a.agent.get_xfer_telemetry(handle)
    return [first.totalBytes == second.totalBytes, second.startTime >= first.startTime]


@case(env={"NIXL_TELEMETRY_ENABLE": "y"})
def switched_on_by_the_environment(nx, ctx):
    """The variable NIXL_TELEMETRY_ENABLE does the same as the configuration."""
    a, _, handle = transfer(ctx)
    ctx.finish(a.agent, handle)
    return shown(a.agent.get_xfer_telemetry(handle))


@case(
    env={"NIXL_TELEMETRY_ENABLE": "n"},
    differs="stock lets the variable overrule an agent that asked for telemetry, whose caller then takes each "
    "finished transfer for a failed one; here what the caller asked for holds",
    stock={"outcome": "ok", "result": {"raises": "nixlNoTelemetryError", "status": "NIXL_ERR_NO_TELEMETRY"}},
    ours={"outcome": "ok", "result": {"returns": {"type": "nixlXferTelemetry"}}},
)
def switched_off_by_the_environment_and_on_by_the_caller(nx, ctx):
    """NIXL_TELEMETRY_ENABLE=n against `capture_telemetry`."""
    a, _, handle = transfer(ctx, capture_telemetry=True)
    ctx.finish(a.agent, handle)
    return attempt(a.agent.get_xfer_telemetry, handle)


@case(env={"NIXL_TELEMETRY_ENABLE": "n"})
def switched_off_by_the_environment(nx, ctx):
    """NIXL_TELEMETRY_ENABLE=n for an agent that did not ask."""
    a, _, handle = transfer(ctx)
    ctx.finish(a.agent, handle)
    return attempt(a.agent.get_xfer_telemetry, handle)


@case()
def made_by_hand(nx, _):
    """The telemetry object can be made without values, and its fields are readable."""
    made = attempt(nx.bindings.nixlXferTelemetry)
    return [made, [hasattr(nx.bindings.nixlXferTelemetry, name) for name in FIELDS]]


@case()
def of_no_handle(nx, ctx):
    """Arguments that are no handle."""
    a = ctx.agent(backends=["UCX"])
    return [attempt(a.get_xfer_telemetry, None), attempt(a.get_xfer_telemetry, 5)]


@case()
def raw_call(nx, ctx):
    """The bindings' call with the number of a transfer."""
    a, _, handle = transfer(ctx, capture_telemetry=True)
    ctx.finish(a.agent, handle)
    found = a.agent.agent.getXferTelemetry(handle._handle)
    return [type_name(found), found.totalBytes, found.descCount]

"""`_utils` and `logging`."""

from __future__ import annotations

import ctypes
import logging

from .normal import attempt, type_name
from .registry import case


@case()
def memory(nx, _):
    """Memory from `malloc_passthru` can be written, filled and given back."""
    at = nx.utils.malloc_passthru(4096)
    nx.utils.ba_buf(at, 4096)
    held = ctypes.string_at(at, 4096)
    return [type_name(at), at > 0, held == bytes([held[0]]) * 4096, held[0], nx.utils.free_passthru(at)]


@case()
def filling_a_part(nx, _):
    """`ba_buf` fills as many bytes as it is told."""
    at = nx.utils.malloc_passthru(64)
    ctypes.memset(at, 0, 64)
    answer = nx.utils.ba_buf(at, 16)
    held = ctypes.string_at(at, 64)
    nx.utils.free_passthru(at)
    return [answer, held.hex()]


@case()
def comparing_equal(nx, _):
    """`verify_transfer` of equal bytes."""
    one, two = nx.utils.malloc_passthru(256), nx.utils.malloc_passthru(256)
    nx.utils.ba_buf(one, 256)
    nx.utils.ba_buf(two, 256)
    answer = attempt(nx.utils.verify_transfer, one, two, 256)
    nx.utils.free_passthru(one)
    nx.utils.free_passthru(two)
    return answer


@case(
    alone=True,
    differs="stock's helper is built without its check and finds all bytes equal; here it says that they are not",
    stock={"outcome": "ok", "result": {"returns": None}},
    ours={"outcome": "ok", "result": {"raises": "RuntimeError"}},
)
def comparing_unequal(nx, _):
    """`verify_transfer` of unequal bytes."""
    one, two = nx.utils.malloc_passthru(256), nx.utils.malloc_passthru(256)
    ctypes.memset(one, 1, 256)
    ctypes.memset(two, 2, 256)
    return attempt(nx.utils.verify_transfer, one, two, 256)


@case()
def arguments(nx, _):
    """Arguments of other types."""
    return [
        attempt(nx.utils.malloc_passthru, "8"),
        attempt(nx.utils.ba_buf, 1),
        attempt(nx.utils.verify_transfer, None, None, 1),
    ]


@case()
def transfer_between_helpers(nx, ctx):
    """A transfer between memory of the helpers, compared by them, as stock's own tests do."""
    a, b = ctx.agent("a", backends=["UCX"]), ctx.agent("b", backends=["UCX"])
    one, two = nx.utils.malloc_passthru(1024), nx.utils.malloc_passthru(1024)
    nx.utils.ba_buf(one, 1024)
    ra, rb = (x.register_memory([(at, 1024, 0, "")], "DRAM") for x, at in ((a, one), (b, two)))
    a.add_remote_agent(b.get_agent_metadata())
    state = ctx.finish(a, a.initialize_xfer("WRITE", ra.trim(), rb.trim(), b.name))
    out = [
        state,
        attempt(nx.utils.verify_transfer, one, two, 1024),
        ctypes.string_at(one, 1024) == ctypes.string_at(two, 1024),
    ]
    a.deregister_memory(ra)
    b.deregister_memory(rb)
    return out


@case()
def loggers(nx, _):
    """Loggers lie under `nixl`, without leading underscores."""
    get = nx.logging.get_logger
    made = get("_api")
    return [
        type_name(made),
        made.name,
        get("x.y").name,
        get("__main__").name,
        get("_api") is made,
        isinstance(made, logging.Logger),
    ]


@case()
def root_logger(nx, _):
    """The logger `nixl`: its level, its handlers, whether it propagates."""
    nx.logging.get_logger("x")
    root = logging.getLogger("nixl")
    return [logging.getLevelName(root.level), [type_name(h) for h in root.handlers], root.propagate]


@case(env={"NIXL_LOG_LEVEL": "DEBUG"})
def level_from_the_environment(nx, _):
    """NIXL_LOG_LEVEL sets the level."""
    nx.logging.get_logger("x")
    return logging.getLevelName(logging.getLogger("nixl").level)


@case(env={"NIXL_LOG_LEVEL": "LOUD"})
def unknown_level(nx, _):
    """An unknown level is not an error."""
    nx.logging.get_logger("x")
    return logging.getLevelName(logging.getLogger("nixl").level)


@case()
def functions_of_logging(nx, _):
    """The functions that callers use exist and can be called again."""
    out = [
        hasattr(nx.logging, name) for name in ("get_logger", "setup_logging", "set_log_level_by_env", "LOGGING_CONFIG")
    ]
    return [out, attempt(nx.logging.setup_logging), attempt(nx.logging.set_log_level_by_env, logging.getLogger("nixl"))]


@case(alone=True)
def levels_by_name(nx, ctx):
    """What each value of NIXL_LOG_LEVEL means."""
    out = {}
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "warn"):
        said = ctx.script(f"""
import os, logging
os.environ["NIXL_LOG_LEVEL"] = {level!r}
import NAME.logging as l
l.get_logger("x")
print("> " + logging.getLevelName(logging.getLogger("nixl").level))
""")
        out[level] = said["said"]
    return out

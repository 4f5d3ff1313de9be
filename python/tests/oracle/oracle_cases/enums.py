"""Constants, enum members with their numbers, and the exception classes."""

from __future__ import annotations

import pickle

from .normal import attempt, normal, type_name
from .registry import case

ERRORS = (
    "nixlNotPostedError nixlInvalidParamError nixlBackendError nixlNotFoundError nixlMismatchError nixlNotAllowedError "
    "nixlRepostActiveError nixlUnknownError nixlNotSupportedError nixlRemoteDisconnectError nixlCancelledError "
    "nixlNoTelemetryError"
).split()
ENUMS = ("nixl_mem_t", "nixl_status_t", "nixl_xfer_op_t", "nixl_cost_t", "nixl_thread_sync_t")


def members(enum) -> dict:
    return {name: [int(m), m.value, m.name, str(m), repr(m)] for name, m in enum.__members__.items()}


@case()
def memory_types(nx, _):
    """Names, numbers and texts of the memory types."""
    return members(nx.bindings.nixl_mem_t)


@case()
def statuses(nx, _):
    """Names, numbers and texts of the statuses that Python knows."""
    return members(nx.bindings.nixl_status_t)


@case()
def operations(nx, _):
    """Names, numbers and texts of READ and WRITE."""
    return members(nx.bindings.nixl_xfer_op_t)


@case()
def costs(nx, _):
    """The one way of estimating a cost."""
    return members(nx.bindings.nixl_cost_t)


@case()
def sync_modes(nx, _):
    """The thread modes of the bindings, where DEFAULT is another name for NONE."""
    return members(nx.bindings.nixl_thread_sync_t)


@case()
def sync_modes_of_the_api(nx, _):
    """The Python enum over the thread modes: members, alias and values."""
    enum = nx.api.nixl_thread_sync_t
    return {
        "members": [m.name for m in enum],
        "names": list(enum.__members__),
        "values": {name: int(m.value) for name, m in enum.__members__.items()},
        "value type": sorted({type_name(m.value) for m in enum}),
        "alias": enum.NIXL_THREAD_SYNC_DEFAULT is enum.NIXL_THREAD_SYNC_NONE,
    }


@case()
def exported_members(nx, _):
    """Members that are also names of the module, and that they are the same values."""
    out = {}
    for enum in ENUMS:
        for name, member in getattr(nx.bindings, enum).__members__.items():
            out[f"{enum}.{name}"] = normal(getattr(nx.bindings, name)) if hasattr(nx.bindings, name) else "not exported"
            out[f"{enum}.{name} equal"] = getattr(nx.bindings, name, None) == member
    return out


@case()
def plain_constants(nx, _):
    """The constants that are no enum members."""
    b = nx.bindings
    return [
        b.NIXL_INIT_AGENT,
        b.DEFAULT_COMM_PORT,
        nx.api.DEFAULT_COMM_PORT,
        nx.top.DEFAULT_COMM_PORT,
        type_name(b.HAVE_UCX_GPU_DEVICE_API),
    ]


@case(
    differs="a view for GPU kernels needs a device, which kvferry does not drive: it says that it has no such views",
    stock={"outcome": "ok", "result": True},
    ours={"outcome": "ok", "result": False},
)
def gpu_views_offered(nx, _):
    """The flag by which callers find out whether memory views for GPU kernels exist."""
    return nx.bindings.HAVE_UCX_GPU_DEVICE_API


@case()
def comparing_members(nx, _):
    """Members are equal to themselves and to their number, not to members of another enum; they have no order."""
    b = nx.bindings
    return {
        "same": b.DRAM_SEG == b.nixl_mem_t.DRAM_SEG,
        "other": b.DRAM_SEG != b.VRAM_SEG,
        "number": b.DRAM_SEG == 0,
        "another enum": b.DRAM_SEG == b.NIXL_READ,
        "in a dict": {b.DRAM_SEG: 1}[b.nixl_mem_t(0)],
        "index": ["a", "b", "c"][b.BLK_SEG],
        "true": [bool(b.DRAM_SEG), bool(b.VRAM_SEG)],
        "order": attempt(lambda: b.DRAM_SEG < b.VRAM_SEG),
    }


@case()
def members_by_number(nx, _):
    """Making a member from its number."""
    b = nx.bindings
    return [
        normal(b.nixl_mem_t(4)),
        normal(b.nixl_xfer_op_t(1)),
        normal(b.nixl_status_t(-4)),
        attempt(b.nixl_mem_t, "DRAM"),
    ]


@case()
def member_of_no_number(nx, _):
    """A number that no memory type has."""
    return attempt(nx.bindings.nixl_mem_t, 99)


@case()
def pickled_members(nx, _):
    """Members survive pickling."""
    b = nx.bindings
    return [normal(pickle.loads(pickle.dumps(m))) for m in (b.VRAM_SEG, b.NIXL_ERR_BACKEND, b.NIXL_WRITE)]


@case()
def exception_classes(nx, _):
    """The exception classes and the public classes that they descend from."""
    return {
        name: [c.__name__ for c in getattr(nx.bindings, name).__mro__ if not c.__name__.startswith("_")]
        for name in ERRORS
    }


@case()
def exceptions_are_raised_by_hand(nx, _):
    """Clients raise and catch these classes themselves, in tests."""
    out = []
    for name in ERRORS:
        error = getattr(nx.bindings, name)
        try:
            raise error("NIXL_ERR_BACKEND")
        except Exception as caught:
            out.append([type(caught).__name__, str(caught), caught.args == ("NIXL_ERR_BACKEND",)])
    return out


@case()
def exceptions_are_distinct(nx, _):
    """No class catches another's."""
    classes = [getattr(nx.bindings, name) for name in ERRORS]
    return [len(set(classes)), any(issubclass(a, b) for a in classes for b in classes if a is not b)]


@case()
def names_of_the_bindings(nx, _):
    """The public names of the bindings and what they are."""
    return {
        name: type_name(value) if not isinstance(value, type) else "class"
        for name, value in sorted(vars(nx.bindings).items())
        if not name.startswith("_")
    }


@case()
def public_names_of_the_package(nx, _):
    """What `from package import *` gives."""
    return sorted(nx.top.__all__)


@case()
def api_keeps_the_bindings(nx, _):
    """Clients reach the bindings through `_api.nixlBind`."""
    return [nx.api.nixlBind is nx.bindings, nx.api.nixl_backend_handle is int]

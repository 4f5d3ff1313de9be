"""The list classes themselves: constructors, methods, comparison, pickling."""

from __future__ import annotations

import pickle

import numpy as np

from .normal import attempt, normal
from .registry import CRASHED, VARIES, case


def xfer(nx, rows=((1, 2, 0), (3, 4, 5)), kind="DRAM_SEG"):
    return nx.bindings.nixlXferDList(getattr(nx.bindings, kind), list(rows))


def reg(nx, rows=((1, 2, 0, "a"), (3, 4, 5, "b")), kind="DRAM_SEG"):
    return nx.bindings.nixlRegDList(getattr(nx.bindings, kind), list(rows))


def remote(nx, rows=((1, 2, 0, "p"), (3, 4, 5, "q"))):
    return nx.bindings.nixlRemoteDList(nx.bindings.VRAM_SEG, list(rows))


@case()
def constructors(nx, _):
    """Empty, with a size, from tuples, from an array."""
    b = nx.bindings
    array = np.array([[1, 2, 0], [3, 4, 5]], dtype=np.uint64)
    return [
        normal(v)
        for v in (
            b.nixlXferDList(b.DRAM_SEG),
            b.nixlXferDList(b.DRAM_SEG, [(1, 2, 3)]),
            b.nixlXferDList(b.DRAM_SEG, array),
            b.nixlRegDList(b.FILE_SEG),
            b.nixlRegDList(b.OBJ_SEG, 2),
            b.nixlRegDList(b.DRAM_SEG, [(1, 2, 3, "m")]),
            b.nixlRegDList(b.DRAM_SEG, array),
            b.nixlRemoteDList(b.DRAM_SEG),
            b.nixlRemoteDList(b.VRAM_SEG, 2),
            b.nixlRemoteDList(b.VRAM_SEG, [(1, 2, 3, "p")]),
        )
    ]


@case()
def constructors_by_keyword(nx, _):
    """The names of the constructors' parameters."""
    b = nx.bindings
    return [
        b.nixlXferDList(type=b.VRAM_SEG, init_size=3).descCount(),
        attempt(b.nixlXferDList, type=b.DRAM_SEG, descs=[(1, 2, 3)]),
        attempt(b.nixlRegDList, type=b.DRAM_SEG, descs=[(1, 2, 3, "m")]),
        attempt(b.nixlRemoteDList, type=b.DRAM_SEG, descs=[(1, 2, 3, "p")]),
    ]


@case()
def constructors_refuse(nx, _):
    """Arguments of another type or shape."""
    b = nx.bindings
    return {
        "nothing": attempt(b.nixlXferDList),
        "type": attempt(b.nixlXferDList, 0),
        "text": attempt(b.nixlXferDList, b.DRAM_SEG, "abc"),
        "short tuples": attempt(b.nixlXferDList, b.DRAM_SEG, [(1, 2)]),
        "long tuples": attempt(b.nixlXferDList, b.DRAM_SEG, [(1, 2, 3, 4)]),
        "numbers": attempt(b.nixlXferDList, b.DRAM_SEG, [1, 2]),
        "short reg tuples": attempt(b.nixlRegDList, b.DRAM_SEG, [(1, 2, 3)]),
        "narrow array": attempt(b.nixlXferDList, b.DRAM_SEG, np.zeros((2, 2), dtype=np.uint64)),
        "flat array": attempt(b.nixlXferDList, b.DRAM_SEG, np.zeros(3, dtype=np.uint64)),
        "float array": attempt(b.nixlXferDList, b.DRAM_SEG, np.zeros((2, 3))),
        "column array": attempt(b.nixlXferDList, b.DRAM_SEG, np.asfortranarray(np.ones((2, 3), dtype=np.uint64))),
        "remote array": attempt(b.nixlRemoteDList, b.DRAM_SEG, np.zeros((2, 4), dtype=np.uint64)),
        "outer tuple": attempt(b.nixlXferDList, b.DRAM_SEG, ((1, 2, 3),)),
        "negative size": attempt(b.nixlXferDList, b.DRAM_SEG, -1),
    }


@case()
def empty_sequence(nx, _):
    """An empty list of tuples, and an empty array."""
    b = nx.bindings
    return [
        normal(b.nixlXferDList(b.DRAM_SEG, [])),
        normal(b.nixlRegDList(b.DRAM_SEG, [])),
        attempt(b.nixlXferDList, b.DRAM_SEG, np.zeros((0, 3), dtype=np.uint64)),
    ]


@case()
def adding(nx, _):
    """`addDesc` and `append` put one descriptor at the end."""
    out = []
    for made, row in ((xfer(nx), (9, 8, 7)), (reg(nx), (9, 8, 7, "z")), (remote(nx), (9, 8, 7, "z"))):
        answers = [made.addDesc(row), made.append(row)]
        out.append([answers, normal(made)])
    return out


@case()
def adding_refuses(nx, _):
    """Descriptors of the wrong form."""
    made = xfer(nx)
    refused = [attempt(made.addDesc, bad) for bad in ((1, 2), (1, 2, 3, 4), [1, 2, 3], None, ("a", 2, 3), (-1, 2, 3))]
    return [refused, made.descCount(), attempt(reg(nx).addDesc, (1, 2, 3)), attempt(remote(nx).addDesc, (1, 2, 3))]


@case()
def items(nx, _):
    """Reading and replacing by position."""
    made, registered, far = xfer(nx), reg(nx), remote(nx)
    made[1], registered[0], far[1] = (7, 7, 7), (8, 8, 8, b"x"), (9, 9, 9, "w")
    return [normal(made), normal(registered), normal(far), normal(made[0])]


@case()
def items_refuse(nx, _):
    """Replacing by something that is no descriptor."""
    made = xfer(nx)
    return [
        attempt(made.__setitem__, 0, (1, 2)),
        attempt(made.__setitem__, 0, "abc"),
        attempt(made.__getitem__, "0"),
        attempt(made.__getitem__, slice(0, 1)),
        attempt(made.__getitem__, 1.0),
    ]


@case(
    alone=True,
    differs="stock reads outside of the list and kills the process, or hands back what lies there; an index out of "
    "range is an IndexError here",
    stock=CRASHED,
    ours={"outcome": "ok", "result": {"raises": "IndexError"}},
)
def item_far_out_of_range(nx, _):
    """An index far behind the end."""
    return attempt(xfer(nx).__getitem__, 1_000_000_000)


@case(alone=True)
def item_before_the_list(nx, _):
    """A negative index."""
    return [attempt(made.__getitem__, -1) for made in (xfer(nx), reg(nx), remote(nx))]


@case(alone=True)
def removing_outside(nx, _):
    """Removing by a position that does not exist."""
    return [attempt(made.remDesc, at) for made in (xfer(nx), reg(nx), remote(nx)) for at in (2, -1)]


@case()
def index(nx, _):
    """Where a descriptor is in the list."""
    made, registered = xfer(nx), reg(nx)
    return [
        made.index((3, 4, 5)),
        attempt(made.index, (3, 4, 6)),
        registered.index((3, 4, 5, "b")),
        attempt(registered.index, (3, 4, 5, "other")),
        attempt(registered.index, (9, 9, 9, "b")),
        hasattr(remote(nx), "index"),
    ]


@case()
def removing(nx, _):
    """`remDesc` by position, and `clear`."""
    out = []
    for made in (xfer(nx), reg(nx), remote(nx)):
        answer = made.remDesc(0)
        one = normal(made)
        out.append([answer, one, made.clear(), normal(made)])
    return out


@case()
def counting(nx, _):
    """`descCount`, `isEmpty`, `getType`; no length and no truth value, so that an empty list is true."""
    made = xfer(nx, rows=())
    return [made.descCount(), made.isEmpty(), normal(made.getType()), bool(made), attempt(len, made)]


@case(
    alone=True,
    differs="stock shows the memory that was there before; a descriptor that nobody set is zero here",
    stock=VARIES,
    ours={"outcome": "ok", "result": [1000, True]},
)
def rows_of_a_size(nx, _):
    """A list made with a size holds that many descriptors, of zeros."""
    b = nx.bindings
    held = np.full(3000, 7, dtype=np.uint64)
    del held
    made = b.nixlXferDList(b.DRAM_SEG, 1000)
    rows = [made[i] for i in range(made.descCount())]
    return [len(rows), all(row == (0, 0, 0) for row in rows)]


@case(
    alone=True,
    differs="stock's lists have no end for a loop, which reads on until the process dies; here a loop ends after the "
    "last descriptor",
    stock=CRASHED,
    ours={"outcome": "ok", "result": {"returns": [{"tuple": [1, 2, 0]}, {"tuple": [3, 4, 5]}]}},
)
def iterating(nx, _):
    """Looping over a list."""
    return attempt(list, xfer(nx))


@case()
def equality(nx, _):
    """Lists are equal by type and content."""
    return {
        "same": xfer(nx) == xfer(nx),
        "other order": xfer(nx) == xfer(nx, rows=((3, 4, 5), (1, 2, 0))),
        "other type": xfer(nx) == xfer(nx, kind="VRAM_SEG"),
        "other count": xfer(nx) == xfer(nx, rows=((1, 2, 0),)),
        "unequal": xfer(nx) != xfer(nx),
        "reg": reg(nx) == reg(nx),
        "reg with other meta": reg(nx) == reg(nx, rows=((1, 2, 0, "a"), (3, 4, 5, "c"))),
        "remote": remote(nx) == remote(nx),
        "remote of other agent": remote(nx) == remote(nx, rows=((1, 2, 0, "p"), (3, 4, 5, "r"))),
        "xfer and reg": xfer(nx) == reg(nx),
        "with a number": xfer(nx) == 5,
        "hash": attempt(hash, xfer(nx)),
    }


@case()
def pickled(nx, _):
    """Transfer and registration lists survive pickling with their type."""
    out = []
    for made in (xfer(nx, kind="VRAM_SEG"), reg(nx, kind="FILE_SEG"), xfer(nx, rows=()), reg(nx, rows=())):
        back = pickle.loads(pickle.dumps(made))
        out.append([normal(back), back == made])
    return out


@case()
def pickled_remote(nx, _):
    """Remote lists can't be pickled."""
    return attempt(pickle.dumps, remote(nx))


@case()
def pickled_at_every_protocol(nx, _):
    """Pickling with the protocols that exist."""
    return [
        attempt(lambda p=p: pickle.loads(pickle.dumps(xfer(nx), protocol=p)))
        for p in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]


@case()
def serialized(nx, ctx):
    """`get_serialized_descs` gives bytes which `deserialize_descs` of another agent reads."""
    a, b = ctx.agent("a"), ctx.agent("b")
    out = []
    for made in (xfer(nx), reg(nx)):
        data = a.get_serialized_descs(made)
        out.append([type(data).__name__, normal(b.deserialize_descs(data)), pickle.loads(data) == made])
    return out


@case()
def serialized_other_objects(nx, ctx):
    """The two methods are plain pickle for everything else."""
    agent = ctx.agent()
    return [
        normal(agent.deserialize_descs(agent.get_serialized_descs({"a": [1, b"x"]}))),
        attempt(agent.deserialize_descs, b"no pickle"),
        attempt(agent.deserialize_descs, b""),
    ]


@case()
def serialized_size(nx, ctx):
    """A thousand descriptors of a transfer list take no more than 24 bytes each and a little."""
    agent = ctx.agent()
    made = agent.get_xfer_descs([(i * 4096, 4096, 0) for i in range(1, 1001)], "DRAM")
    return len(agent.get_serialized_descs(made)) < 24_400


@case()
def printing(nx, _):
    """`print` returns nothing."""
    return [xfer(nx).print(), reg(nx).print(), remote(nx).print(), xfer(nx, rows=()).print()]


METHODS = {
    "nixlXferDList": "addDesc append clear descCount getType index isEmpty print remDesc",
    "nixlRegDList": "addDesc append clear descCount getType index isEmpty print remDesc trim",
    "nixlRemoteDList": "addDesc append clear descCount getType index isEmpty print remDesc trim",
    "nixlAgent": """
        checkRemoteMD createBackend createXferReq deregisterMem estimateXferCost fetchRemoteMD genNotif
        getAvailPlugins getBackendParams getLocalMD getLocalPartialMD getNotifs getPluginParams getXferStatus
        getXferTelemetry invalidateLocalMD invalidateRemoteMD loadRemoteMD makeConnection makeXferReq postXferReq
        prepMemView prepXferDlist queryMem queryXferBackend registerMem releaseMemView releaseXferReq
        releasedDlistH sendLocalMD sendLocalPartialMD
    """,
}


@case()
def methods(nx, _):
    """Which methods the classes of the bindings have."""
    return {
        f"{cls}.{name}": hasattr(getattr(nx.bindings, cls), name)
        for cls, names in METHODS.items()
        for name in names.split()
    }

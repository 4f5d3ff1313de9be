"""Lists of descriptors. They hold arrays, so that ten thousand descriptors are one block of memory and not as many objects."""

from __future__ import annotations

import struct
from typing import Any, List, Optional

import numpy

from kvferry._kvferry import blocks_from_tuples
from kvferry_nixl._enums import nixl_mem_t
from kvferry_nixl._errors import nixlNotFoundError

_EMPTY = numpy.zeros((0, 3), numpy.uint64)
# Magic, version, memory type, length of the extras.
_HEADER = struct.Struct("<4sBBxxQ")
_MAGIC = b"kfdl"


def as_meta(meta: Any) -> bytes:
    """The fourth member of a registration's tuple."""
    if isinstance(meta, str):
        return meta.encode()
    if isinstance(meta, bytes):
        return meta
    if isinstance(meta, bytearray):
        return bytes(meta)
    raise RuntimeError(f"a descriptor's metadata is str or bytes, not {type(meta).__name__}")


def as_agent_name(name: Any) -> str:
    """The fourth member of a remote descriptor."""
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return name.decode()
    raise RuntimeError(f"an agent's name is str or bytes, not {type(name).__name__}")


class _DList:
    """What the three lists have in common. No ``__len__`` and no ``__bool__``: a list is always true."""

    _width = 3
    _from_array = True
    _extra = staticmethod(lambda extra: extra)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, type: nixl_mem_t, descs: Any = 0, *, init_size: Optional[int] = None) -> None:
        if not isinstance(type, nixl_mem_t):
            raise TypeError(f"{self.__class__.__name__}: the first argument is a nixl_mem_t, not {type!r}")
        self._type = type
        self._array = _EMPTY
        self._late: List[tuple] = []
        self._extras: Optional[list] = [] if self._width > 3 else None
        if init_size is not None:
            descs = init_size
        if isinstance(descs, numpy.ndarray) and self._from_array:
            self._take_array(descs)
        elif isinstance(descs, list):
            self._take_tuples(descs)
        elif isinstance(descs, int):
            if descs < 0 or descs > 1 << 32:
                raise ValueError(f"{descs} is no size of a list")
            self._array = numpy.zeros((descs, 3), numpy.uint64)
            if self._extras is not None:
                self._extras = [self._extra("")] * descs
        else:
            raise TypeError(
                f"{self.__class__.__name__}: a size, a list of tuples or an N x 3 array, "
                f"not {descs.__class__.__name__}"
            )

    def _take_array(self, array: numpy.ndarray) -> None:
        if array.ndim != 2 or array.shape[1] != 3 or array.dtype not in (numpy.uint64, numpy.int64):
            raise ValueError("descs must be an N x 3 array of uint64 or int64")
        if not array.flags.c_contiguous:
            raise ValueError("descs must be C-contiguous")
        self._array = array.astype(numpy.uint64)
        if self._extras is not None:
            self._extras = [self._extra("")] * len(array)

    def _take_tuples(self, tuples: list) -> None:
        try:
            numbers, extras = blocks_from_tuples(tuples, self._width)
        except (OverflowError, ValueError) as error:
            raise RuntimeError(f"a descriptor's numbers are integers from 0 to 2**64-1: {error}") from None
        except TypeError as error:
            if "tuple" in str(error):
                if all(isinstance(item, tuple) for item in tuples):
                    raise ValueError(f"each descriptor is a tuple of {self._width}") from None
                raise
            raise RuntimeError(f"a descriptor's numbers are integers from 0 to 2**64-1: {error}") from None
        self._array = numbers.reshape(-1, 3)
        if extras is not None:
            extra = self._extra
            plain = extra("")
            self._extras = [plain if item == "" else extra(item) for item in extras]

    def _rows(self) -> numpy.ndarray:
        """All descriptors as an N x 3 array; not to be changed."""
        if self._late:
            late = numpy.array(self._late, numpy.uint64)
            self._array, self._late = numpy.concatenate([self._array, late]), []
        return self._array

    def _numbers(self, desc: tuple) -> tuple:
        if not isinstance(desc, tuple):
            raise TypeError(f"a descriptor is a tuple, not {type(desc).__name__}")
        if len(desc) < self._width:
            raise IndexError("tuple index out of range")
        try:
            numbers = tuple(number.__index__() for number in desc[:3])
        except AttributeError:
            raise RuntimeError("a descriptor's numbers are integers") from None
        if any(not 0 <= number < 1 << 64 for number in numbers):
            raise RuntimeError("a descriptor's numbers are integers from 0 to 2**64-1")
        return numbers

    def _at(self, index: Any) -> int:
        if not hasattr(index, "__index__"):
            raise TypeError(f"an index into a list of descriptors is a number, not {type(index).__name__}")
        index = index.__index__()
        if index < 0:
            raise TypeError("an index into a list of descriptors is not negative")
        if index >= self.descCount():
            raise IndexError("Index is out of range")
        return index

    def getType(self) -> nixl_mem_t:
        """The memory type."""
        return self._type

    def descCount(self) -> int:
        """Number of descriptors."""
        return len(self._array) + len(self._late)

    def isEmpty(self) -> bool:
        """Whether there are none."""
        return self.descCount() == 0

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        same = self._type == other._type and numpy.array_equal(self._rows(), other._rows())
        return bool(same and self._extras == other._extras)

    def __getitem__(self, index: int) -> tuple:
        index = self._at(index)
        desc = tuple(self._rows()[index].tolist())
        return desc if self._extras is None else (*desc, self._extras[index])

    def __setitem__(self, index: int, desc: tuple) -> None:
        index, numbers = self._at(index), self._numbers(desc)
        extra = None if self._extras is None else self._extra(desc[3])
        rows = self._rows()
        if not rows.flags.writeable or rows.base is not None:
            rows = self._array = rows.copy()
        rows[index] = numbers
        if self._extras is not None:
            self._extras[index] = extra

    def addDesc(self, desc: tuple) -> None:
        """Adds a descriptor at the end."""
        numbers = self._numbers(desc)
        if self._extras is not None:
            self._extras.append(self._extra(desc[3]))
        self._late.append(numbers)

    append = addDesc

    def remDesc(self, index: int) -> None:
        """Takes a descriptor out."""
        index = index.__index__()
        if not 0 <= index < self.descCount():
            raise IndexError("Index is out of range")
        self._array = numpy.delete(self._rows(), index, axis=0)
        if self._extras is not None:
            del self._extras[index]

    def clear(self) -> None:
        """Takes all out."""
        self._array, self._late = _EMPTY, []
        if self._extras is not None:
            self._extras = []

    def print(self) -> None:
        """Prints the list."""
        print(f"{type(self).__name__} of {self._type.name}, {self.descCount()} descriptors")
        for index in range(self.descCount()):
            addr, size, device, *extra = self[index]
            print(f"  {index}: {addr:#x}, {size} bytes, device {device}", *map(repr, extra))


class _Searched(_DList):
    """Lists that can be searched and pickled."""

    def index(self, desc: tuple) -> int:
        """The place of a descriptor, whatever its metadata."""
        numbers = self._numbers(desc)
        hits = numpy.flatnonzero((self._rows() == numpy.array(numbers, numpy.uint64)).all(axis=1))
        if len(hits):
            return int(hits[0])
        raise nixlNotFoundError.of("there is no such descriptor in the list")

    def __getstate__(self) -> bytes:
        extras = b""
        if self._extras and any(self._extras):
            extras = b"".join(struct.pack("<I", len(extra)) + extra for extra in self._extras)
        header = _HEADER.pack(_MAGIC, 1, int(self._type), len(extras))
        return header + extras + self._rows().tobytes()

    def __setstate__(self, state: bytes) -> None:
        bad = ValueError(f"these bytes are no {type(self).__name__}")
        if not isinstance(state, bytes) or len(state) < _HEADER.size:
            raise bad
        magic, version, number, length = _HEADER.unpack_from(state)
        body = state[_HEADER.size :]
        if magic != _MAGIC or version != 1 or number > 4 or length > len(body) or (len(body) - length) % 24:
            raise bad
        array = numpy.frombuffer(body, "<u8", offset=length).reshape(-1, 3).astype(numpy.uint64)
        extras: Optional[list] = None
        if self._width > 3:
            extras = _unpack(body[:length], len(array)) if length else [b""] * len(array)
            if extras is None:
                raise bad
        elif length:
            raise bad
        self._type, self._array, self._late, self._extras = nixl_mem_t(number), array, [], extras


def _unpack(packed: bytes, count: int) -> Optional[list]:
    extras, at = [], 0
    while at + 4 <= len(packed):
        (size,) = struct.unpack_from("<I", packed, at)
        at += 4 + size
        extras.append(packed[at - size : at])
    return extras if at == len(packed) and len(extras) == count else None


class nixlXferDList(_Searched):
    """Descriptors (address, bytes, device) of a transfer."""


class nixlRegDList(_Searched):
    """Descriptors (address, bytes, device, metadata) of a registration."""

    _width = 4
    _extra = staticmethod(as_meta)

    def trim(self) -> nixlXferDList:
        """The same without the metadata."""
        return nixlXferDList(self._type, self._rows())


class nixlRemoteDList(_DList):
    """Descriptors (address, bytes, device, agent) of several peers' memory."""

    _width = 4
    _from_array = False
    _extra = staticmethod(as_agent_name)

    def __reduce_ex__(self, protocol: int) -> Any:
        raise TypeError("cannot pickle 'nixlRemoteDList' object")

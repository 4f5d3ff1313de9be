"""Reads GGUF files: their metadata, and their tensors as float32."""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
#: Values of a block of the quantised types.
BLOCK = 32

#: Scalar types of metadata by their number: how `struct` calls them.
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9

#: A block of Q4_1: scale, smallest value, and 32 numbers of 4 bits.
Q4_1 = numpy.dtype([("scale", "<f2"), ("least", "<f2"), ("quants", "u1", BLOCK // 2)])
#: A block of Q8_0: scale, and 32 numbers of 8 bits.
Q8_0 = numpy.dtype([("scale", "<f2"), ("quants", "i1", BLOCK)])


class GgufError(Exception):
    """The file is not one that this module can read; the text says what is wrong."""


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies, and what it is."""

    #: As numpy has it: the last axis is the one whose values are neighbours.
    shape: tuple[int, ...]
    type: int
    #: In bytes, from the beginning of the tensors.
    offset: int


class Gguf:
    """An opened file. `metadata` maps keys to values, `entries` names to tensors."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._take(4) != MAGIC:
            raise GgufError(f"{path} is no GGUF file")
        version = self._scalar("<I")
        if version not in VERSIONS:
            raise GgufError(f"{path} has version {version}; known are {VERSIONS}")
        tensors, pairs = self._scalar("<Q"), self._scalar("<Q")
        self.metadata = {self._string(): self._value(self._scalar("<I")) for _ in range(pairs)}
        self.entries = dict(self._entry() for _ in range(tensors))
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        self._tensors = math.ceil(self._at / alignment) * alignment

    def tensor(self, name: str) -> numpy.ndarray:
        """A tensor's values as float32. Raises `GgufError` for an unknown name or type."""
        entry = self.entries.get(name)
        if entry is None:
            raise GgufError(f"there is no tensor {name}")
        start, count = self._tensors + entry.offset, math.prod(entry.shape)
        if entry.type == 0:
            values = numpy.frombuffer(self._bytes, "<f4", count, start)
        elif entry.type == 1:
            values = numpy.frombuffer(self._bytes, "<f2", count, start)
        elif entry.type == 3:
            values = from_q4_1(numpy.frombuffer(self._bytes, Q4_1, count // BLOCK, start))
        elif entry.type == 8:
            values = from_q8_0(numpy.frombuffer(self._bytes, Q8_0, count // BLOCK, start))
        else:
            raise GgufError(f"tensor {name} has type {entry.type}; known are F32, F16, Q4_1 and Q8_0")
        return values.astype(numpy.float32).reshape(entry.shape)

    def _take(self, count: int) -> bytes:
        piece = self._bytes[self._at : self._at + count]
        if len(piece) != count:
            raise GgufError("the file ends too early")
        self._at += count
        return piece

    def _scalar(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _string(self) -> str:
        return self._take(self._scalar("<Q")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(inner) for _ in range(count)]
        if kind not in SCALARS:
            raise GgufError(f"metadata of the unknown type {kind}")
        return self._scalar(SCALARS[kind])

    def _entry(self) -> tuple[str, Entry]:
        name, axes = self._string(), self._scalar("<I")
        shape = tuple(self._scalar("<Q") for _ in range(axes))[::-1]
        return name, Entry(shape, self._scalar("<I"), self._scalar("<Q"))


def from_q4_1(blocks: numpy.ndarray) -> numpy.ndarray:
    """The values of Q4_1 blocks. The low halves of the bytes are a block's first 16 values, the high ones the rest."""
    quants = blocks["quants"]
    numbers = numpy.concatenate([quants & 0x0F, quants >> 4], axis=1).astype(numpy.float32)
    return numbers * blocks["scale"].astype(numpy.float32)[:, None] + blocks["least"].astype(numpy.float32)[:, None]


def from_q8_0(blocks: numpy.ndarray) -> numpy.ndarray:
    """The values of Q8_0 blocks."""
    return blocks["quants"].astype(numpy.float32) * blocks["scale"].astype(numpy.float32)[:, None]

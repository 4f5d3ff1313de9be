"""Helpers of tests: memory by address."""

from __future__ import annotations

from typing import Any, Dict

# Held by address: freeing what is not here is refused instead of corrupting the process.
_held: Dict[int, Any] = {}


def malloc_passthru(size: int) -> int:
    """Allocates that many bytes and returns their address."""
    import ctypes

    buffer = (ctypes.c_uint8 * size)()
    address = ctypes.addressof(buffer)
    _held[address] = buffer
    return address


def free_passthru(address: int) -> None:
    """Frees what malloc_passthru gave."""
    if _held.pop(address, None) is None:
        raise ValueError(f"{address:#x} was not given by malloc_passthru, or is free already")


def ba_buf(address: int, size: int) -> None:
    """Fills memory of malloc_passthru with a pattern."""
    _check(address, size)
    import ctypes

    ctypes.memset(address, 0xBA, size)


def verify_transfer(address1: int, address2: int, size: int) -> None:
    """Raises unless the two pieces of memory hold the same bytes."""
    _check(address1, size)
    _check(address2, size)
    import ctypes

    if ctypes.string_at(address1, size) != ctypes.string_at(address2, size):
        raise RuntimeError(f"the {size} bytes at {address1:#x} and {address2:#x} differ")


def _check(address: int, size: int) -> None:
    for start, buffer in _held.items():
        if start <= address and address + size <= start + len(buffer):
            return
    raise ValueError(f"{size} bytes at {address:#x} are not within memory of malloc_passthru")

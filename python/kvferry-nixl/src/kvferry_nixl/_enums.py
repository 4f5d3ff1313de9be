"""Enumerations that behave as the stock ones do: they compare with their number and with their own kind, and an unknown
number makes a nameless member."""

from __future__ import annotations

from typing import Any, Dict


class Enumeration:
    """A number with a name. Subclasses list their members by :func:`members`."""

    __members__: Dict[str, "Enumeration"] = {}
    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        if not hasattr(value, "__index__"):
            raise TypeError(f"{type(self).__name__} is made of a number, not of {type(value).__name__}")
        object.__setattr__(self, "_value", value.__index__())

    @property
    def value(self) -> int:
        """The number."""
        return self._value

    @property
    def name(self) -> str:
        """The name; ``???`` for a number without one."""
        for name, member in type(self).__members__.items():
            if member._value == self._value:
                return name
        return "???"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Enumeration):
            return type(self) is type(other) and self._value == other._value
        return isinstance(other, int) and self._value == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self._value}>"

    def __reduce__(self) -> tuple:
        return type(self), (self._value,)


def members(cls: type, **numbers: int) -> None:
    """Gives an enumeration its members."""
    cls.__members__ = {name: cls(number) for name, number in numbers.items()}
    for name, member in cls.__members__.items():
        setattr(cls, name, member)


class nixl_mem_t(Enumeration):
    """Kinds of memory."""

    __slots__ = ()


class nixl_xfer_op_t(Enumeration):
    """Which way a transfer moves."""

    __slots__ = ()


class nixl_status_t(Enumeration):
    """How a call went."""

    __slots__ = ()


class nixl_cost_t(Enumeration):
    """How a cost was estimated."""

    __slots__ = ()


class nixl_thread_sync_t(Enumeration):
    """What was asked for in the way of locking. An agent of ours can always be used from any thread."""

    __slots__ = ()


members(nixl_mem_t, DRAM_SEG=0, VRAM_SEG=1, BLK_SEG=2, OBJ_SEG=3, FILE_SEG=4)
members(nixl_xfer_op_t, NIXL_READ=0, NIXL_WRITE=1)
members(
    nixl_status_t,
    NIXL_IN_PROG=1,
    NIXL_SUCCESS=0,
    NIXL_ERR_NOT_POSTED=-1,
    NIXL_ERR_INVALID_PARAM=-2,
    NIXL_ERR_BACKEND=-3,
    NIXL_ERR_NOT_FOUND=-4,
    NIXL_ERR_MISMATCH=-5,
    NIXL_ERR_NOT_ALLOWED=-6,
    NIXL_ERR_REPOST_ACTIVE=-7,
    NIXL_ERR_UNKNOWN=-8,
    NIXL_ERR_NOT_SUPPORTED=-9,
)
members(nixl_cost_t, NIXL_COST_ANALYTICAL_BACKEND=0)
members(
    nixl_thread_sync_t,
    NIXL_THREAD_SYNC_NONE=0,
    NIXL_THREAD_SYNC_STRICT=1,
    NIXL_THREAD_SYNC_RW=2,
    NIXL_THREAD_SYNC_DEFAULT=0,
)

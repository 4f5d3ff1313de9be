"""Normal forms: how values of either implementation are written down so that they can be compared."""

from __future__ import annotations

import enum
import re
from typing import Any, Callable

STATUS = re.compile(r"^NIXL_[A-Z_]+")


def type_name(value: Any) -> str:
    """The name of the value's class, without its module."""
    return type(value).__name__


def normal(value: Any) -> Any:
    """`value` as plain data; objects of the implementations become their type's name and their content."""
    if value is None or isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, tuple):
        return {"tuple": [normal(v) for v in value]}
    if isinstance(value, list):
        return [normal(v) for v in value]
    if isinstance(value, dict):
        return {str(k): normal(v) for k, v in sorted(value.items(), key=lambda item: str(item[0]))}
    name = type_name(value)
    if name in ("nixlXferDList", "nixlRegDList", "nixlRemoteDList"):
        return dlist(value)
    if name.startswith("nixl_") and hasattr(value, "name"):
        return {"enum": f"{name}.{value.name}"}
    return {"type": name}


def dlist(value: Any, base: int = 0) -> dict:
    """A list object: class, memory type, descriptors; addresses are written relative to `base`."""
    rows = []
    for i in range(value.descCount()):
        row = value[i]
        rows.append([row[0] - base, *[normal(v) for v in row[1:]]])
    return {"list": type_name(value), "kind": normal(value.getType()), "empty": value.isEmpty(), "rows": rows}


def failure(error: BaseException) -> dict:
    """An exception: its class, and the status that its text begins with.

    Clients match on the class or look for the status name in the text; the rest of a text is free.
    """
    name = type(error).__name__
    record: dict[str, Any] = {"raises": name}
    if name.startswith("nixl"):
        found = STATUS.match(str(error))
        record["status"] = found.group(0) if found else None
    if isinstance(error, KeyError):
        record["key"] = normal(error.args[0]) if error.args else None
    return record


def attempt(call: Callable, *args: Any, **kwargs: Any) -> Any:
    """What a call returned or raised."""
    try:
        return {"returns": normal(call(*args, **kwargs))}
    except Exception as error:
        return failure(error)


def attempt_type(call: Callable, *args: Any, **kwargs: Any) -> Any:
    """The type of what a call returned, or what it raised."""
    try:
        return {"returns": type_name(call(*args, **kwargs))}
    except Exception as error:
        return failure(error)

"""The cases of the oracle suite: small functions that make the same calls on either implementation.

A case takes the imported modules (`Modules`) and a `Context`, and returns plain data (what JSON can hold)
that says what happened: values, type names, states, exception classes. Two implementations agree on a case
when those data are equal. Where they are meant to differ, the case carries the reason and what each returns.
"""

from __future__ import annotations

import importlib
import pkgutil

from .registry import CASES, Case

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    if _module not in ("registry", "normal", "context"):
        importlib.import_module(f"{__name__}.{_module}")

__all__ = ["CASES", "Case"]

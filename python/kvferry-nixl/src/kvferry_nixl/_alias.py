"""Gives the names nixl, nixl_cu12 and nixl_cu13 their contents."""

from __future__ import annotations

import sys


def install(name: str, namespace: dict) -> None:
    """Makes a package of that name out of ours: its modules are the same objects under every name."""
    from kvferry_nixl import _api, _bindings, _utils, logging

    parts = {"_api": _api, "_bindings": _bindings, "_utils": _utils, "logging": logging}
    for part, module in parts.items():
        sys.modules[f"{name}.{part}"] = module
        namespace[part] = module
    # What the stock dispatcher offers by itself. Two enumerations have one name: that of the API stands.
    sources = (_api, _bindings, _utils) if name == "nixl" else (_api,)
    for module in sources:
        for public in getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]:
            namespace.setdefault(public, getattr(module, public))
    namespace.setdefault("get_logger", logging.get_logger)
    namespace["__all__"] = [name for name in _api.__all__ if name != "nixlBind"]
    namespace["__version__"] = __import__("kvferry_nixl").__version__
    namespace["__kvferry__"] = True

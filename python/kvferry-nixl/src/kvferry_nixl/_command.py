"""`kvferry nixl status|enable|disable`: whose the name nixl is."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import List

import _kvferry_nixl_hook as hook

from kvferry_nixl import __version__

_USAGE = """usage: kvferry nixl status|enable|disable

status   show who answers to the names nixl, nixl_cu12 and nixl_cu13
enable   lead the names to kvferry (the default once kvferry-nixl is installed)
disable  leave the names to what else is installed under them

KVFERRY_NIXL=1 or 0 does the same for one process."""


def main(args: List[str]) -> int:
    """Runs the command and returns its exit code."""
    if args in (["--help"], ["-h"]):
        print(_USAGE)
        return 0
    if args == ["status"]:
        return _status()
    if args == ["enable"]:
        return _set(True)
    if args == ["disable"]:
        return _set(False)
    print(_USAGE, file=sys.stderr)
    return 2


def _status() -> int:
    wish = os.environ.get("KVFERRY_NIXL")
    for name in hook.NAMES:
        if hook.enabled():
            print(f"{name:<10} kvferry (kvferry-nixl {__version__})")
        else:
            others = _others(name)
            print(f"{name:<10} {', '.join(others) if others else 'not installed'}")
    stock = sorted({other for name in hook.NAMES for other in _others(name)})
    if hook.enabled():
        print(f"also installed: {', '.join(stock) or 'nothing'}, {'left alone' if stock else 'kvferry alone has the names'}")
        print("to use it: kvferry nixl disable" if stock else "to switch off: kvferry nixl disable")
    else:
        print("kvferry-nixl is installed and switched off: kvferry nixl enable")
    if wish:
        print(f"(KVFERRY_NIXL={wish} decides for this process)")
    return 0


def _others(name: str) -> List[str]:
    """Other distributions with files under a name."""
    found = []
    for distribution in ("nixl", "nixl-cu12", "nixl-cu13"):
        try:
            files = metadata.files(distribution) or []
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
        if any(file.parts and file.parts[0] == name for file in files):
            found.append(f"{distribution} {version}")
    return found


def _set(on: bool) -> int:
    try:
        if on:
            if os.path.exists(hook.MARK):
                os.remove(hook.MARK)
        else:
            with open(hook.MARK, "w") as mark:
                mark.write("kvferry nixl disable\n")
    except OSError as error:
        print(f"error: can't write {hook.MARK}: {error}; KVFERRY_NIXL={int(on)} does it for one process", file=sys.stderr)
        return 1
    return _status()

"""Leads the names nixl, nixl_cu12 and nixl_cu13 to kvferry, whatever else is installed under them.

Loaded at the start of every Python of the environment by kvferry_nixl.pth, so it imports nothing that is not there yet. It
overwrites no file of another distribution: switched off or uninstalled, that one is as it was.
"""

import os
import sys

NAMES = ("nixl", "nixl_cu12", "nixl_cu13")
HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "kvferry_nixl", "path")
MARK = os.path.join(HERE, "kvferry_nixl.disabled")


def enabled():
    """Whether the names are led to kvferry: KVFERRY_NIXL says so, or else `kvferry nixl enable` and `disable`."""
    wish = os.environ.get("KVFERRY_NIXL", "").strip().lower()
    if wish in ("0", "off", "no", "false"):
        return False
    return wish in ("1", "on", "yes", "true") or not os.path.exists(MARK)


class Finder:
    """Answers for the three names before the path is searched."""

    # What the first of the names found, for all of them: a switch thrown later must not split a running process.
    decided = None

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """The import system's question."""
        if name not in NAMES:
            return None
        if cls.decided is None:
            cls.decided = enabled()
        if not cls.decided:
            return None
        from importlib.util import spec_from_file_location

        folder = os.path.join(PATH, name)
        file = os.path.join(folder, "__init__.py")
        if not os.path.exists(file):
            # Half uninstalled.
            return None
        return spec_from_file_location(name, file, submodule_search_locations=[folder])


def install():
    """Once."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


install()

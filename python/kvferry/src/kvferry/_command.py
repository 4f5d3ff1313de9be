"""The command `kvferry`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command with the arguments of this process."""
    if sys.argv[1:2] == ["nixl"]:
        try:
            from kvferry_nixl import _command
        except ModuleNotFoundError:
            print("error: the package kvferry-nixl is not installed: pip install kvferry-nixl", file=sys.stderr)
            return 2
        return _command.main(sys.argv[2:])

    from kvferry import _kvferry

    # Ctrl-C ends it, as it does the command that is a program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _kvferry.run_command(["kvferry", *sys.argv[1:]], [sys.executable, "-m", "kvferry"])
    if not sys.argv[1:] or sys.argv[1:] in (["--help"], ["-h"], ["help"]):
        print("\nIn Python's package also: kvferry nixl status|enable|disable, the drop-in for nixl")
    return code

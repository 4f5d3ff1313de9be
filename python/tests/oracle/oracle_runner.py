"""The process in which cases run: imports one implementation, runs the cases that it is given, writes a line for each.

    python oracle_runner.py MODULE FD CASE...

Lines go to file descriptor FD, because implementations log to standard output. A line is written before a case begins,
so that the parent knows which one a crash or a hang belongs to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from oracle_cases import CASES
from oracle_cases.context import Context, Modules
from oracle_cases.normal import failure


def run(modules: Modules, case_id: str) -> dict[str, Any]:
    """One case, to its record."""
    context = Context(modules, case_id)
    try:
        result = {"outcome": "ok", "result": CASES[case_id].run(modules, context)}
    except Exception as error:
        result = {"outcome": "raised", "result": failure(error), "text": f"{type(error).__name__}: {error}"}
    finally:
        context.close()
    # Beside the result, because the original's processes do not always end as they should.
    result["peers"] = [peer.child.returncode for peer in context.peers if not peer.killed]
    return result


def main() -> None:
    """Runs the cases in order."""
    module, fd, *cases = sys.argv[1:]
    with os.fdopen(int(fd), "w") as out:

        def say(line: dict) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        modules = Modules(module)
        say({"ready": modules.top.__file__})
        for case_id in cases:
            say({"start": case_id})
            say({"case": case_id, **run(modules, case_id)})


if __name__ == "__main__":
    main()

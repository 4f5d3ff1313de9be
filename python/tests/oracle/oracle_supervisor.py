"""Runs all cases against one implementation: in few processes, a new one after each crash or hang.

    python oracle_supervisor.py INTERPRETER [--module nixl_cu12] [--facade nixl] [--out FILE] [--cases CASE...]

writes JSON lines; useful to look at one side alone.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oracle_cases import CASES, Case
from oracle_cases.registry import CRASHED, HUNG

RUNNER = Path(__file__).resolve().parent / "oracle_runner.py"
#: Seconds for the interpreter to start and import the implementation.
START_LIMIT = 60.0
#: Cases in one process: more save time, fewer keep a leak of one case from another.
SHARE = 24
#: Settings of the caller that would change what is compared.
FOREIGN = ("NIXL_", "UCX_", "KVFERRY_REQUIRE", "KVFERRY_FORBID", "KVFERRY_TOKEN", "PYTHONPATH", "PYTHONHOME")


class Side:
    """One implementation: its interpreter, its import names, what its processes recorded."""

    def __init__(self, python: str, module: str, facade: str) -> None:
        self.python, self.module, self.facade = python, module, facade
        self.records: dict[str, dict] = {}
        #: For each process: the cases it had, its exit code, whether it was killed for a hang.
        self.processes: list[dict] = []

    def run(self, cases: list[Case]) -> dict[str, dict]:
        """Runs the cases and returns their records by id."""
        for group in grouped(cases):
            waiting = list(group)
            while waiting:
                waiting = self.share(waiting)
        return self.records

    def share(self, cases: list[Case]) -> list[Case]:
        """Runs cases in one process until all are done or it ends; returns those that still have to run."""
        read, write = os.pipe()
        module = self.facade if cases[0].facade else self.module
        command = [self.python, str(RUNNER), module, str(write), *[c.id for c in cases]]
        env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        env.update({"NIXL_LOG_LEVEL": "ERROR", "PYTHONDONTWRITEBYTECODE": "1", **cases[0].env})
        child = subprocess.Popen(
            command,
            pass_fds=[write],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        os.close(write)
        lines = Lines(read, child.stdout.fileno())
        running, left, hung, begun = None, list(cases), False, time.monotonic()
        limit = START_LIMIT
        try:
            while True:
                line = lines.next(limit)
                if line is None:
                    break
                if "start" in line:
                    running, begun = CASES[line["start"]], time.monotonic()
                    limit = running.limit
                elif "case" in line:
                    done = line.pop("case")
                    self.records[done] = {**line, "seconds": round(time.monotonic() - begun, 3)}
                    left = [c for c in left if c.id != done]
                    running, limit = None, START_LIMIT
        except TimeoutError:
            hung = True
            child.kill()
        try:
            code = child.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            hung = True
            child.kill()
            code = child.wait()
        lines.close()
        child.stdout.close()
        self.processes.append(
            {
                "cases": [c.id for c in cases],
                "exit": code,
                "hung": hung,
                "unfinished": [c.id for c in left],
                "said": lines.tail(),
            }
        )
        if left:
            # The first case that is not done took the process with it, also if it did so before it began.
            victim = running or left[0]
            self.records[victim.id] = {**(HUNG if hung else CRASHED), "exit": code, "said": lines.tail()}
            left = [c for c in left if c.id != victim.id]
        return left


class Lines:
    """JSON lines of one descriptor, while what comes on the other is kept for messages."""

    def __init__(self, results: int, noise: int) -> None:
        self.results, self.noise = results, noise
        self.pending, self.said = b"", b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(results, selectors.EVENT_READ)
        self.selector.register(noise, selectors.EVENT_READ)

    def next(self, limit: float) -> dict[str, Any] | None:
        """The next line; None at the end; TimeoutError after `limit` seconds without one."""
        end = time.monotonic() + limit
        while b"\n" not in self.pending:
            ready = self.selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                got = os.read(key.fd, 65536)
                if key.fd == self.noise:
                    self.said = (self.said + got)[-8000:]
                    if not got:
                        self.selector.unregister(self.noise)
                elif not got:
                    return None
                else:
                    self.pending += got
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def tail(self) -> str:
        """The last words on the other descriptor."""
        return self.said.decode(errors="replace")[-2000:]

    def close(self) -> None:
        """Lets the result descriptor go."""
        self.selector.close()
        os.close(self.results)


def grouped(cases: list[Case]) -> Iterator[list[Case]]:
    """Cases that may share a process."""
    shared: dict[tuple, list[Case]] = {}
    for case in cases:
        if case.alone:
            yield [case]
        else:
            shared.setdefault((case.facade, tuple(sorted(case.env.items()))), []).append(case)
    for group in shared.values():
        for start in range(0, len(group), SHARE):
            yield group[start : start + SHARE]


def main() -> None:
    """Runs one side from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--module", default="nixl_cu12")
    parser.add_argument("--facade", default="nixl")
    parser.add_argument("--out", default="-")
    parser.add_argument("--cases", nargs="*", default=[], help="ids or beginnings of ids")
    given = parser.parse_args()
    chosen = [c for c in CASES.values() if not given.cases or c.id.startswith(tuple(given.cases))]
    side = Side(given.python, given.module, given.facade)
    side.run(chosen)
    out = sys.stdout if given.out == "-" else open(given.out, "w")
    for case_id, record in side.records.items():
        out.write(json.dumps({"case": case_id, **record}) + "\n")


if __name__ == "__main__":
    main()

"""Fixtures: both implementations, run once a session over the cases that were collected.

KVFERRY_TEST_STOCK_PYTHON   interpreter of an environment that `stock_environment.py` made
KVFERRY_TEST_TARGET         without the former: the folder in which that environment is made, as `oracle-stock`
KVFERRY_TEST_OURS_PYTHON    interpreter of an environment with kvferry-nixl and numpy; this one if not set

Tests that need the original are skipped with the reason when it can't be had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stock_environment
from oracle_cases import CASES
from oracle_supervisor import Side

IDENTITY = """
import importlib.metadata as m, json, nixl_cu12
owners = sorted(set(m.packages_distributions().get("nixl_cu12", [])))
found = {"ours": getattr(nixl_cu12, "__kvferry__", False), "owners": [[d, m.version(d)] for d in owners]}
print("\\n" + json.dumps(found))
"""


def identity(python: str) -> dict:
    """Whose package an interpreter imports as `nixl_cu12`: nobody is to compare one side with itself."""
    run = subprocess.run([python, "-c", IDENTITY], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def stock_python() -> str:
    """The interpreter that has the original."""
    python = os.environ.get("KVFERRY_TEST_STOCK_PYTHON")
    if not python:
        target = os.environ.get("KVFERRY_TEST_TARGET")
        if not target:
            pytest.skip(
                "neither KVFERRY_TEST_STOCK_PYTHON nor KVFERRY_TEST_TARGET says where the wheel nixl-cu12 1.5.1 is"
            )
        try:
            python = str(stock_environment.make(Path(target) / "oracle-stock"))
        except stock_environment.Unavailable as why:
            pytest.skip(f"the wheel nixl-cu12 1.5.1 can't be had: {why}")
    found = identity(python)
    assert not found["ours"] and found["owners"] == [["nixl-cu12", "1.5.1"]], (
        f"{python} does not hold the original: {found}"
    )
    return python


@pytest.fixture(scope="session")
def ours_python() -> str:
    """The interpreter that has kvferry-nixl."""
    python = os.environ.get("KVFERRY_TEST_OURS_PYTHON") or sys.executable
    found = identity(python)
    assert found["ours"], f"{python} does not import kvferry-nixl: {found}"
    return python


@pytest.fixture(scope="session")
def sides(request: pytest.FixtureRequest, stock_python: str, ours_python: str) -> dict[str, Side]:
    """Both sides after they have run every case that this session compares."""
    specs = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = {params["case_id"] for params in specs if "case_id" in params}
    cases = [c for c in CASES.values() if c.id in wanted]
    made = {"stock": Side(stock_python, "nixl_cu12", "nixl"), "ours": Side(ours_python, "nixl_cu12", "nixl")}
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(side.run, cases) for side in made.values()]:
            run.result()
    return made

"""Both implementations, run once a session over the cases that were collected.

KVFERRY_TEST_STOCK_PYTHON   interpreter of the environment that `stock_environment.py` made
KVFERRY_TEST_STOCK_MISSING  why there is none; the tests that need it are skipped with these words
KVFERRY_TEST_OURS_PYTHON    interpreter of an environment with kvferry-nixl and numpy; this one if not set
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from oracle_cases import CASES  # noqa: E402
from oracle_supervisor import Side  # noqa: E402

IDENTITY = """
import importlib.metadata as m, json, nixl_cu12
owners = sorted(set(m.packages_distributions().get("nixl_cu12", [])))
print("\\n" + json.dumps({"ours": getattr(nixl_cu12, "__kvferry__", False), "owners": [[d, m.version(d)] for d in owners], "file": nixl_cu12.__file__}))
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
        why = os.environ.get("KVFERRY_TEST_STOCK_MISSING", "KVFERRY_TEST_STOCK_PYTHON is not set")
        pytest.skip(f"the wheel nixl-cu12 1.5.1 is not there: {why}")
    found = identity(python)
    assert not found["ours"] and found["owners"] == [["nixl-cu12", "1.5.1"]], f"{python} does not hold the original: {found}"
    return python


@pytest.fixture(scope="session")
def ours_python() -> str:
    """The interpreter that has kvferry-nixl."""
    python = os.environ.get("KVFERRY_TEST_OURS_PYTHON") or sys.executable
    found = identity(python)
    assert found["ours"], f"{python} does not import kvferry-nixl: {found}"
    return python


@pytest.fixture(scope="session")
def sides(request, stock_python: str, ours_python: str) -> dict[str, Side]:
    """Both sides after they have run every case that this session compares."""
    wanted = {item.callspec.params["case_id"] for item in request.session.items if hasattr(item, "callspec")}
    cases = [c for c in CASES.values() if c.id in wanted]
    made = {"stock": Side(stock_python, "nixl_cu12", "nixl"), "ours": Side(ours_python, "nixl_cu12", "nixl")}
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(side.run, cases) for side in made.values()]:
            run.result()
    return made

"""The script of docs/python.md runs as it stands there, and prints what stands there."""

import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_the_script_of_two_processes(unbuffered):
    script = pathlib.Path(__file__).with_name("pages.py")
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == (
        "decode: prefill says: request 1 is there\n"
        "decode: pages [4, 9, 30] hold [2, 1, 3]\n"
        "prefill: done, over same_host\n"
    )
    page = pathlib.Path(__file__).parents[2] / "docs/python.md"
    assert f"```\n{done.stdout}```\n" in page.read_text()

"""The script of docs/python.md runs as it stands there."""

import pathlib
import subprocess
import sys


def test_the_script_of_two_processes():
    script = pathlib.Path(__file__).with_name("pages.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == [
        "decode: pages [4, 9, 30] hold [2, 1, 3]",
        "decode: prefill says: request 1 is there",
        "prefill: done, over same_host",
    ]
    page = pathlib.Path(__file__).parents[2] / "docs/python.md"
    assert all(line in page.read_text() for line in done.stdout.splitlines())

"""What the tests share: pairs of agents in one process, and children that must end with code 0."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy
import pytest

# What the programs that run clients share with the tests.
sys.path.append(str(Path(__file__).parents[1] / "clients"))

os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
for name in [name for name in os.environ if name.startswith(("KVFERRY_", "UCX_", "NIXL_TELEMETRY"))]:
    if name.startswith("KVFERRY_TEST_"):
        continue
    del os.environ[name]

POOL = 1 << 20


class Side:
    """An agent of nixl's API with a registered pool."""

    def __init__(self, name, config=None):
        from nixl._api import nixl_agent

        self.agent = nixl_agent(name, config)
        self.pool = numpy.zeros(POOL, numpy.uint8)
        self.address = self.pool.ctypes.data
        self.descs = self.agent.register_memory([(self.address, POOL, 0, "")], "DRAM")

    def xfer(self, offset, size):
        return self.agent.get_xfer_descs([(self.address + offset, size, 0)], "DRAM")


@pytest.fixture
def pair():
    """An initiator that knows a target."""
    near, far = Side("near"), Side("far")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    yield near, far
    near.agent.agent.close()
    far.agent.agent.close()


def until(condition, seconds=10.0):
    """Waits for a condition; its last answer."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(0.002)


def finish(agent, handle, seconds=20.0):
    """Waits for the end of a transfer of nixl's API."""
    end = time.monotonic() + seconds
    while (state := agent.check_xfer_state(handle)) == "PROC":
        assert time.monotonic() < end, "the transfer does not end"
        time.sleep(0.0005)
    return state


def run_child(code, *args, timeout=60, env=None, check=0):
    """Runs a script in a Python of its own; its standard output. It must end with that code."""
    environment = {**os.environ, **(env or {})}
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )
    assert finished.returncode == check, f"code {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def start_child(code, *args, env=None):
    """Starts a script with pipes; the caller sees to its end."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )

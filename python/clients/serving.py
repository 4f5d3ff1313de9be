"""vLLM servers as processes: started, asked, watched and killed."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

from ports import free_port

HOST = "127.0.0.1"
#: Seconds until a server that does not answer `/health` counts as failed.
START_LIMIT = 900.0
STOP_LIMIT = 90.0

#: A small machine, no hub, and everything on the loopback device.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": HOST,
    "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
    "VLLM_LOG_STATS_INTERVAL": "2",
    "KVFERRY_ADDRESS": HOST,
    "UCX_NET_DEVICES": "lo",
}


class ServingError(Exception):
    """A server did not do what it was asked for; the text says what it did."""


class Refused(ServingError):
    """A server answered with an error."""


def chosen_path() -> dict[str, str]:
    """What lets the KV cache go by this host's own path only, unless the environment has chosen another."""
    if "KVFERRY_FORBID" in os.environ or "UCX_TLS" in os.environ:
        return {}
    return {"KVFERRY_FORBID": "tcp", "UCX_TLS": "tcp,self,sm"}


def ours() -> bool:
    """Whether kvferry answers to the name nixl. The stock package may crash at exit on a machine without a GPU."""
    return importlib.util.find_spec("kvferry_nixl") is not None


@dataclass
class Footprint:
    """What the processes of a server hold."""

    #: Resident memory, in bytes.
    resident: int
    #: Open file descriptors.
    descriptors: int


@dataclass
class Server:
    """One `vllm serve` with everything it starts, in a session of its own."""

    name: str
    #: `kv_producer` or `kv_consumer`.
    role: str
    model: Path
    log: Path
    environment: dict[str, str]
    #: More of `kv_connector_extra_config`.
    extra: dict[str, Any] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    side_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server, under the same ports each time. Does not wait for it."""
        transfer = {
            "kv_connector": "NixlConnector",
            "kv_role": self.role,
            "kv_buffer_device": "cpu",
            "kv_connector_extra_config": self.extra,
        }
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(self.model)]
        command += ["--served-model-name", "model"]
        command += ["--host", HOST, "--port", str(self.port), "--dtype", "float32", "--enforce-eager"]
        command += ["--max-model-len", "512", "--max-num-seqs", "4", "--block-size", "32", "--no-enable-prefix-caching"]
        command += ["--kv-transfer-config", json.dumps(transfer)]
        own = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_port)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, **self.environment, **own},
                start_new_session=True,
            )

    def ready(self) -> None:
        """Waits until the server answers. Raises `ServingError` if it ends, or takes too long."""
        assert self.process is not None
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end:
            if self.process.poll() is not None:
                code = self.process.returncode
                raise ServingError(f"{self.name} ended with {code} as it started: {self.last_words()}")
            try:
                if self.request("GET", "/health", timeout=5.0)[0] == 200:
                    self.unpin()
                    return
            except OSError:
                pass
            time.sleep(0.25)
        raise ServingError(f"{self.name} does not answer after {START_LIMIT:.0f} s: {self.last_words()}")

    def unpin(self) -> None:
        """Lets every thread of the server run on any core. vLLM's connector binds a worker on a CPU to the last core of the
        machine: those of two servers would share it, and as a worker that waits yields in a loop, one would stand still
        for up to a minute while the other computes."""
        for process in self.processes():
            for thread in Path(f"/proc/{process}/task").glob("*"):
                try:
                    os.sched_setaffinity(int(thread.name), os.sched_getaffinity(0))
                except ProcessLookupError:
                    continue

    def last_words(self) -> str:
        """The last line of the log that says something about an error."""
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if "Error" in line or "error:" in line] or lines
        return told[-1].strip() if told else "its log is empty"

    def processes(self) -> list[int]:
        """The server's processes: all of its session."""
        return [] if self.process is None else list(in_session(self.process.pid))

    def kill(self) -> None:
        """Kills the server and everything it started with SIGKILL."""
        assert self.process is not None
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self._gone(5.0)

    def stop(self) -> int:
        """Stops the server as a user would; its exit code. Raises `ServingError` if something of it stays."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServingError(f"{self.name} does not stop within {STOP_LIMIT:.0f} s") from None
        if not self._gone(10.0):
            self.kill()
            raise ServingError(f"{self.name} ended, but left processes behind")
        return code

    def end(self) -> None:
        """Sees to it that nothing of the server is left, whatever state it is in."""
        if self.process is not None:
            self.kill()

    def _gone(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def footprint(self) -> Footprint:
        """What the server holds at present."""
        resident = descriptors = 0
        for process in self.processes():
            try:
                pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
                descriptors += len(os.listdir(f"/proc/{process}/fd"))
            except OSError:
                continue
            resident += pages * os.sysconf("SC_PAGE_SIZE")
        return Footprint(resident, descriptors)

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout: float = 300.0
    ) -> tuple[int, bytes]:
        """A whole exchange: status and body."""
        connection = self.send(method, path, body, timeout)
        try:
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def send(
        self, method: str, path: str, body: dict[str, Any] | None, timeout: float = 300.0
    ) -> http.client.HTTPConnection:
        """The first half of an exchange: the connection, which the caller closes."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        return connection

    def complete(self, body: dict[str, Any], timeout: float = 300.0) -> dict[str, Any]:
        """A completion. Raises `Refused` if the server answers with an error."""
        status, answer = self.request("POST", "/v1/completions", {"model": "model", **body}, timeout)
        if status != 200:
            raise Refused(f"{self.name} answers {status}: {answer.decode(errors='replace')[:300]}")
        return json.loads(answer)

    def stream(self, body: dict[str, Any], most: int, timeout: float = 300.0) -> list[int]:
        """The first tokens of a completion that is given up once `most` of them are there."""
        connection = self.send("POST", "/v1/completions", {"model": "model", "stream": True, **body}, timeout)
        try:
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(f"{self.name} answers {answer.status}: {answer.read(300).decode(errors='replace')}")
            tokens: list[int] = []
            for event in events(answer):
                for choice in event.get("choices", ()):
                    tokens += choice.get("token_ids") or ()
                if len(tokens) >= most:
                    break
            return tokens
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """The server's counters and gauges, each summed over its labels."""
        status, text = self.request("GET", "/metrics", timeout=30.0)
        if status != 200:
            raise ServingError(f"{self.name} answers {status} to /metrics")
        return parse_metrics(text.decode())


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream until its end."""
    for line in answer:
        text = line.decode().strip()
        if text == "data: [DONE]":
            return
        if text.startswith("data: "):
            yield json.loads(text[len("data: ") :])


def parse_metrics(text: str) -> dict[str, float]:
    """Sums over the labels of each metric of a page in Prometheus' format."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or " " not in line:
            continue
        key, value = line.rsplit(" ", 1)
        name = key.split("{", 1)[0]
        found[name] = found.get(name, 0.0) + float(value)
    return found


def in_session(leader: int) -> Iterator[int]:
    """Processes that live in the session of that leader."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        # Behind the name in brackets: state, parent, group, session.
        state, _, _, session = stat.rsplit(")", 1)[1].split()[:4]
        if int(session) == leader and state not in "ZX":
            yield int(entry)

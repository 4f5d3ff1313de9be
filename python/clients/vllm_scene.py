"""vLLM engines without a model as forked processes: told what to do, listened to, killed."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from ports import free_port

START_LIMIT = 300.0
#: Seconds that the end of an interpreter which holds all of vLLM may take on a busy machine.
END_LIMIT = 240.0
#: Seconds for which a producer keeps the blocks of a request that nobody fetches.
LEASE = 20


class Wrong(Exception):
    """A mode found what must not be; the text says what."""


def expect(condition: object, why: str) -> None:
    """Raises `Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(why)


class Process:
    """A forked child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def wait(self, seconds: float = END_LIMIT) -> int:
        """Waits for its end; its code, or minus the signal that ended it. Raises `Wrong` if it goes on."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise Wrong(f"process {self.pid} does not end within {seconds:.0f} s")
            else:
                time.sleep(0.005)
        return self.code

    def kill(self) -> None:
        """Kills it, if it lives, and waits for its end."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


class Engine:
    """The processes of an engine."""

    def __init__(self, scene: Scene, name: str, role: str, ranks: int = 1, port: int = 0, **options: Any) -> None:
        self.name, self.port = name, port or free_port()
        meeting = scene.folder / f"{name}-{uuid.uuid4().hex}"
        arguments = ["--role", role, "--engine", str(uuid.uuid4()), "--ranks", str(ranks), "--meeting", str(meeting)]
        arguments += ["--connector", scene.connector, "--lease", str(LEASE)]
        for option, value in options.items():
            arguments += [f"--{option}", str(value)]
        commands, self.commands = os.pipe()
        self.reader, events = os.pipe()
        self.rest = b""
        arguments += ["--events", str(events)]
        self.processes: list[Process] = []
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                scene.become(self, commands, rank)
                sys.exit(scene.main(["--rank", str(rank), *arguments]))
            self.processes.append(Process(pid))
        os.close(commands)
        os.close(events)
        scene.engines.append(self)

    @property
    def pid(self) -> int:
        """The first rank's."""
        return self.processes[0].pid

    def do(self, what: str, **more: Any) -> None:
        """Sends a command."""
        os.write(self.commands, json.dumps({"do": what, **more}).encode() + b"\n")

    def event(self, *kinds: str, seconds: float = 120.0) -> dict[str, Any]:
        """Waits for the next event, which must be of one of these kinds."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            readable, _, _ = select.select([self.reader], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self.reader, 1 << 16) if readable else b""
            if not readable:
                raise Wrong(f"{self.name} does not say {' or '.join(kinds)} within {seconds:.0f} s")
            if not piece:
                raise Wrong(f"{self.name} ended instead of saying {' or '.join(kinds)}; see its log")
            self.rest += piece
        line, self.rest = self.rest.split(b"\n", 1)
        told = json.loads(line)
        expect(told["event"] in kinds, f"{self.name} says {told} instead of {' or '.join(kinds)}")
        return told

    def ready(self) -> None:
        """Waits until the engine takes commands."""
        self.event("ready", seconds=START_LIMIT)

    def settled(self, seconds: float = 30.0) -> dict[str, Any]:
        """Nothing is in use, and nobody wrote where they should not; the event."""
        self.do("settle", seconds=seconds)
        told = self.event("settled", seconds=seconds + 30)
        for what in ("used", "held", "requests", "elsewhere"):
            expect(not told[what], f"{self.name} does not come to rest: {told}")
        return told

    def kill(self) -> None:
        """Kills all ranks with SIGKILL."""
        for process in self.processes:
            process.kill()

    def close(self, crash_allowed: bool) -> None:
        """Ends the engine in order; it must end well, and nothing may write into its cache afterwards."""
        self.do("end")
        told = self.event("ended", seconds=END_LIMIT)
        expect(not told["changed"], f"{self.name} after its shutdown: {told['changed']}")
        for process in self.processes:
            code = process.wait()
            expect(code == 0 or crash_allowed, f"{self.name} ended with {code}")


class Scene:
    """What the modes share."""

    def __init__(self, folder: Path, crash_allowed: bool) -> None:
        # Here, and not before somebody plays: importing vLLM takes most of a minute. The children are forked.
        from vllm_engine import main

        self.main = main
        self.folder, self.crash_allowed = folder, crash_allowed
        self.connector = "NixlConnector"
        self.engines: list[Engine] = []
        self.number = 0

    def become(self, engine: Engine, commands: int, rank: int) -> None:
        """Makes a forked child an engine's rank, with nothing left of the parent's."""
        for other in [*self.engines, engine]:
            os.close(other.commands)
            os.close(other.reader)
        self.engines.clear()
        log = os.open(self.folder / f"{engine.name}-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for target, source in enumerate((commands, log, log)):
            os.dup2(source, target)
        os.close(commands)
        os.close(log)
        os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(engine.port)

    def pair(self, ranks: tuple[int, int] = (1, 1), **options: Any) -> tuple[Engine, Engine]:
        """A producer and a consumer, ready."""
        producer = Engine(self, "producer", "kv_producer", ranks[0], **options)
        consumer = Engine(self, "consumer", "kv_consumer", ranks[1], **options)
        for engine in (producer, consumer):
            engine.ready()
        return producer, consumer

    def prefill(self, producer: Engine, tokens: int, **more: Any) -> dict[str, Any]:
        """Lets a producer compute a prompt; what a decode command needs."""
        self.number += 1
        producer.do("prefill", id=self.number, tokens=tokens, **more)
        told = producer.event("prefilled")
        return {"id": self.number, "tokens": tokens, "params": told["params"]}

    def move(self, producer: Engine, consumer: Engine, tokens: int) -> float:
        """A whole request; seconds until the consumer had it."""
        consumer.do("decode", **self.prefill(producer, tokens))
        told = consumer.event("received")
        expect(not told["wrong"], f"{tokens} tokens: {told['wrong']}")
        expect(told["blocks"] == -(-tokens // 32), f"{told['blocks']} blocks for {tokens} tokens")
        return float(told["seconds"])

    def close(self, *engines: Engine) -> None:
        """Both must be at rest, and end well."""
        for engine in engines:
            engine.settled()
        for engine in engines:
            engine.close(self.crash_allowed)

    def end(self) -> None:
        """Sees to it that no process is left."""
        for engine in self.engines:
            engine.kill()

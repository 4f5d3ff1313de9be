"""What the programs here share: a process for each side of a transfer, memory whose every byte is known, and the verdict."""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterable, Mapping, Optional

import numpy

PAGE = 4096


class Failed(Exception):
    """A run that went wrong; the text says how."""


class Side:
    """A process that holds one real object of a client and does what it is told.

    It runs `program --serve ROLE FD`. It ends by itself when this end of the socket goes away.
    """

    alive: list["Side"] = []

    def __init__(self, program: str, role: str, name: str, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        self.name = name
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-u", program, "--serve", role, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )
        self.pipe = Connection(ours.detach())
        Side.alive.append(self)

    def ask(self, method: str, *arguments: Any) -> None:
        """Starts a call; `answer` waits for it."""
        self.pipe.send((method, arguments))

    def answer(self, limit: float = 240.0) -> Any:
        """What the call returned. Raises `Failed` if it raised, did not end in time, or took the process with it."""
        if not self.pipe.poll(limit):
            raise Failed(f"{self.name} does not answer within {limit:g} s")
        try:
            good, result = self.pipe.recv()
        except (EOFError, ConnectionError):
            raise Failed(f"{self.name} ended with {self.process.wait()} in the middle of a call") from None
        if not good:
            raise Failed(f"{self.name}: {result}")
        return result

    def call(self, method: str, *arguments: Any, limit: float = 240.0) -> Any:
        """Asks and waits."""
        self.ask(method, *arguments)
        return self.answer(limit)

    def kill(self) -> None:
        """As when the machine's memory is short: no chance to say good-bye."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.pipe.close()
        Side.alive.remove(self)

    def end(self, limit: float = 30.0) -> None:
        """Lets it end. With kvferry behind `nixl` its exit code has to be 0."""
        ours = self.call("whose")
        self.pipe.close()
        Side.alive.remove(self)
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed(f"{self.name} does not end within {limit:g} s") from None
        if code != 0 and ours:
            raise Failed(f"{self.name} ended with {code}")
        if code != 0:
            print(f"{self.name} ended with {code}, after its work")


class Worker:
    """What each side can do besides its own."""

    def whose(self) -> bool:
        """Whether kvferry answers to the name `nixl`."""
        import nixl

        print(f"nixl of this process: {nixl.__file__}")
        return bool(getattr(nixl, "__kvferry__", False))

    def pid(self) -> int:
        """The process."""
        return os.getpid()


def serve(worker: Worker, fd: int) -> None:
    """Does what the other end of the socket asks for, until that goes away."""
    pipe = Connection(fd)
    while True:
        try:
            method, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = (True, getattr(worker, method)(*arguments))
        except Exception as error:
            traceback.print_exc()
            answer = (False, f"{type(error).__name__}: {error}")
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionError):
            return
        except (pickle.PicklingError, TypeError) as error:
            pipe.send((False, f"{method} returned what can't be sent: {error}"))


def pattern(seed: int, size: int) -> numpy.ndarray:
    """The bytes of a buffer that was filled with this seed."""
    return numpy.random.default_rng(seed).integers(0, 256, size, numpy.uint8)


def aligned(size: int) -> numpy.ndarray:
    """Bytes that begin at a page."""
    raw = numpy.zeros(size + PAGE, numpy.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + size]


def same(found: numpy.ndarray, wanted: numpy.ndarray, what: str) -> None:
    """Raises `Failed` with the first bytes that differ."""
    if found.shape != wanted.shape:
        raise Failed(f"{what}: {found.shape} instead of {wanted.shape}")
    wrong = numpy.flatnonzero(found != wanted)
    if len(wrong):
        raise Failed(f"{what}: {len(wrong)} of {found.size} bytes are wrong, the first at {wrong[0]}")


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition. Raises `Failed` if it does not come true."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:g} s")
        time.sleep(0.002)


def parser(description: Optional[str], modes: Mapping[str, Any]) -> argparse.ArgumentParser:
    """The arguments that each program takes."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--mode", nargs="+", choices=modes, default=list(modes))
    made.add_argument("--limit", type=float, default=600.0, help="seconds that all may take")
    return made


def one_by_one(modes: Mapping[str, Callable[..., str]], chosen: Iterable[str], *arguments: Any) -> None:
    """Runs modes, each with processes of its own, and prints what each says."""
    for mode in chosen:
        print(f"{mode}: {modes[mode](*arguments)}", flush=True)
        for side in list(Side.alive):
            side.end()


def in_short(error: Exception) -> str:
    """An error in one line. The text of some holds a whole traceback, whose last line says most."""
    if isinstance(error, Failed):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else repr(error)


def run(work: Callable[[], None], limit: float) -> int:
    """Runs a program's work, says the verdict and returns the exit code. Nothing outlives it."""
    begun = time.monotonic()

    def too_long() -> None:
        for side in list(Side.alive):
            side.process.kill()
        print(f"RESULT FAIL: not done within {limit:g} s", flush=True)
        os._exit(1)

    timer = threading.Timer(limit, too_long)
    timer.daemon = True
    timer.start()
    try:
        work()
        for side in list(Side.alive):
            side.end()
    except Exception as error:
        if not isinstance(error, Failed):
            traceback.print_exc()
        print(f"RESULT FAIL: {in_short(error)}", flush=True)
        return 1
    finally:
        timer.cancel()
        for side in list(Side.alive):
            side.process.kill()
            side.process.wait()
    print(f"{time.monotonic() - begun:.1f} s")
    print("RESULT PASS", flush=True)
    return 0

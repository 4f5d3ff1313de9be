"""Notifications that have come in and that nobody has asked for."""

from __future__ import annotations

import sys
from _thread import allocate_lock
from typing import Callable, Dict, List, Tuple

# Bytes that are kept; the engine's inbox comes on top. Beyond them peers have to wait.
MOST = 256 << 20


class Kept:
    """Takes in what has come for an application that may never ask for it.

    Some never do, while their peers send one with each transfer: after a million the engine's inbox would be full, and
    every transfer of that peer would fail.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._messages: Dict[str, List[bytes]] = {}
        self._bytes = 0

    def add(self, drain: Callable[[], List[Tuple[str, bytes]]]) -> None:
        """Takes what `drain` gives, if there is room."""
        with self._lock:
            if self._bytes > MOST:
                return
            for peer, payload in drain():
                messages = self._messages.setdefault(peer, [])
                if messages and messages[-1] == payload:
                    # Mostly it is the same word each time.
                    payload = messages[-1]
                else:
                    self._bytes += sys.getsizeof(payload)
                messages.append(payload)
                self._bytes += 8

    def take(self, into: Dict[str, List[bytes]], drain: Callable[[], List[Tuple[str, bytes]]]) -> None:
        """Hands all over, and then what `drain` gives."""
        with self._lock:
            kept, self._messages, self._bytes = self._messages, {}, 0
            new = drain()
        for peer, messages in kept.items():
            into.setdefault(peer, []).extend(messages)
        for peer, payload in new:
            into.setdefault(peer, []).append(payload)

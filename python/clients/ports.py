"""Ports for programs that have to be told one before they listen."""

from __future__ import annotations

import random
import socket
from pathlib import Path

#: Those that were given out: who got one may listen only a minute later.
_given: set[int] = set()


def free_port() -> int:
    """A TCP port of the loopback device that nobody has, and that nobody gets by chance before it is used.

    It lies below the range from which the system takes the port of a connection: one of that range is soon another's.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(low // 2, low)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port

"""What runs beside the agents: the thread that hands the engine's log lines to Python's logging, and the end of the process."""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock
from typing import Any, Optional

from kvferry import _kvferry

# A threading.Thread. That and logging are imported when there is an agent: they take longer than all the rest.
_thread: Any = None
_lock = allocate_lock()
_loggers: dict = {}


def begin() -> None:
    """Once, when the package is imported."""
    _kvferry.start_logs()
    atexit.register(_end)
    os.register_at_fork(after_in_child=_forked)


def watch() -> None:
    """Starts the thread that takes log lines, unless it runs. The engine's own threads never wait for it."""
    global _thread
    if _thread is not None:
        return
    import threading

    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_run, name="kvferry-logs", daemon=True)
            _thread.start()


def flush() -> None:
    """Hands over what has come in until now."""
    _log(_kvferry.next_logs(0.0))


def _run() -> None:
    while True:
        lines = _kvferry.next_logs(60.0)
        if lines is None:
            return
        _log(lines)


def _log(lines: Optional[list]) -> None:
    import logging

    for level, target, text in lines or ():
        logger = _loggers.get(target)
        if logger is None:
            # kvferry::peer is the logger kvferry.peer.
            logger = _loggers[target] = logging.getLogger(target.replace("::", "."))
        logger.log(level, "%s", text)


def _end() -> None:
    # Before the interpreter lets go of memory that peers or copies may touch.
    _kvferry.close_all()
    _kvferry.stop_logs()
    if _thread is not None:
        _thread.join(1.0)


def _forked() -> None:
    global _thread, _lock
    _kvferry.after_fork()
    _thread, _lock = None, allocate_lock()

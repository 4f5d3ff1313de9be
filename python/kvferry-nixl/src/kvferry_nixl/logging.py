"""The loggers below `nixl`: on standard output, from the level in NIXL_LOG_LEVEL on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import logging

# logging's own numbers. It is imported by the first call: see _log.
_LEVELS = {"TRACE": 10, "DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40, "FATAL": 50, "CRITICAL": 50}
_FORMAT = "%(asctime)s NIXL %(levelname)-7s %(filename)s:%(lineno)d %(message)s"
_DATES = "%Y-%m-%d %H:%M:%S"

LOGGING_CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"simpleFormatter": {"format": _FORMAT, "datefmt": _DATES}},
    "handlers": {
        "consoleHandler": {"class": "logging.StreamHandler", "formatter": "simpleFormatter", "stream": "ext://sys.stdout"}
    },
    "loggers": {"nixl": {"handlers": ["consoleHandler"], "level": "INFO", "propagate": False}},
}

_logging_configured = False


def setup_logging() -> None:
    """Gives the logger `nixl` its handler, once."""
    global _logging_configured
    if _logging_configured:
        return
    _logging_configured = True
    import logging

    root = logging.getLogger("nixl")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter(_FORMAT, _DATES))
        root.addHandler(handler)
    root.propagate = False
    set_log_level_by_env()


def set_log_level_by_env(logger: Optional["logging.Logger"] = None) -> None:
    """Takes the level from NIXL_LOG_LEVEL; without it, or with a word that is no level, INFO."""
    import logging

    level = os.environ.get("NIXL_LOG_LEVEL", "INFO").strip().upper()
    (logger or logging.getLogger("nixl")).setLevel(_LEVELS.get(level, _LEVELS["INFO"]))


def get_logger(name: str) -> "logging.Logger":
    """A logger below `nixl`."""
    setup_logging()
    import logging

    return logging.getLogger(f"nixl.{name.lstrip('_')}")

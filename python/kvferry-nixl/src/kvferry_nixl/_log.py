"""The logger of this package, made when it first has something to say: to import logging takes longer than all the rest."""

from __future__ import annotations

from typing import Any


class _Logger:
    """Answers with the methods of the logger `nixl.kvferry`."""

    def __getattr__(self, name: str) -> Any:
        from kvferry_nixl.logging import get_logger

        return getattr(get_logger("kvferry"), name)


logger = _Logger()

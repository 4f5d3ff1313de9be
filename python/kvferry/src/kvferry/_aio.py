"""Waiting for transfers in an event loop. The engine rings a descriptor; none of its threads runs Python."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Dict, Tuple
from weakref import WeakKeyDictionary

from kvferry import _kvferry

_towers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Tower]" = WeakKeyDictionary()


class _Tower:
    """The bell of one event loop, and who waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = _kvferry.Bell()
        self.waiting: Dict[int, Tuple[Any, asyncio.Future]] = {}
        self.tokens = itertools.count(1)
        self.loop = loop

    def wait(self, transfer: Any) -> asyncio.Future:
        future = self.loop.create_future()
        token = next(self.tokens)
        if transfer.ring(self.bell, token):
            future.set_result(None)
            return future
        if not self.waiting:
            # Watched only while somebody waits: a loop that is closed has nothing left to take out.
            self.loop.add_reader(self.bell.fileno(), self.rung)
        self.waiting[token] = transfer, future
        future.add_done_callback(lambda _: self.forget(token))
        return future

    def rung(self) -> None:
        for token in self.bell.take():
            transfer, future = self.waiting.get(token, (None, None))
            if future is None or future.done():
                continue
            try:
                ended = transfer.ring(self.bell, token)
            except Exception as error:
                future.set_exception(error)
            else:
                if ended:
                    future.set_result(None)

    def forget(self, token: int) -> None:
        self.waiting.pop(token, None)
        if not self.waiting and not self.loop.is_closed():
            self.loop.remove_reader(self.bell.fileno())


async def wait(transfer: Any) -> str:
    """Waits for the end of a transfer: ``done`` or ``cancelled``. Raises what it failed with.

    Cancelling the task changes nothing about the transfer.
    """
    loop = asyncio.get_running_loop()
    tower = _towers.get(loop)
    if tower is None:
        tower = _towers[loop] = _Tower(loop)
    await tower.wait(transfer)
    return transfer.wait(0.0)

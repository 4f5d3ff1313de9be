"""Which regions of the engine belong to which descriptors."""

from __future__ import annotations

from _thread import allocate_lock
from typing import Dict, List, Optional, Tuple

import numpy

_Key = Tuple[int, bytes]


class Registrations:
    """A descriptor may be registered several times, and counts as often.

    Whole lists are kept as they came, for most are given back as they came. Only when one is not, all are taken apart.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._batches: Dict[_Key, List[List[int]]] = {}
        self._single: Dict[_Key, List[int]] = {}

    def add(self, kind: int, rows: numpy.ndarray, ids: List[int]) -> None:
        """Remembers the ids of descriptors that were registered."""
        if ids:
            with self._lock:
                self._batches.setdefault((kind, rows.tobytes()), []).append(list(ids))

    def take(self, kind: int, rows: numpy.ndarray) -> Optional[List[int]]:
        """Takes out an id for each descriptor; None, and nothing taken, if one has none."""
        return self._look(kind, rows, remove=True)

    def find(self, kind: int, rows: numpy.ndarray) -> Optional[List[int]]:
        """As :meth:`take`, and leaves them in."""
        return self._look(kind, rows, remove=False)

    def _look(self, kind: int, rows: numpy.ndarray, remove: bool) -> Optional[List[int]]:
        if len(rows) == 0:
            return []
        key = kind, rows.tobytes()
        with self._lock:
            batch = self._batches.get(key)
            if batch:
                ids = batch[-1]
                if remove:
                    batch.pop()
                    if not batch:
                        del self._batches[key]
                return list(ids)
            self._take_apart()
            return self._look_singly(kind, key[1], remove)

    def _take_apart(self) -> None:
        for (kind, packed), batches in self._batches.items():
            for ids in batches:
                for place, number in enumerate(ids):
                    row = packed[24 * place : 24 * place + 24]
                    self._single.setdefault((kind, row), []).append(number)
        self._batches.clear()

    def _look_singly(self, kind: int, packed: bytes, remove: bool) -> Optional[List[int]]:
        found: List[Tuple[_Key, int]] = []
        for at in range(0, len(packed), 24):
            key = kind, packed[at : at + 24]
            left = self._single.get(key)
            if left and remove:
                found.append((key, left.pop()))
            elif left:
                found.append((key, left[-1]))
            else:
                if remove:
                    for taken, number in reversed(found):
                        self._single[taken].append(number)
                return None
        return [number for _, number in found]

"""Questions about files."""

from __future__ import annotations

import os
from typing import Dict, List, Optional


def query(paths: List[bytes]) -> List[Optional[Dict[str, str]]]:
    """Size, mode and time of change of each file; None for one that does not exist or may not be looked at."""
    return [_one(path) for path in paths]


def _one(path: bytes) -> Optional[Dict[str, str]]:
    if not path or b"\0" in path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return {"mtime": str(int(found.st_mtime)), "mode": str(found.st_mode), "size": str(found.st_size)}

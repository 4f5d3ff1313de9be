"""Cases that end in every way that a case can end; they are not compared."""

from __future__ import annotations

import os
import time

from .registry import case


@case(harness=True)
def returns(nx, _):
    """Ends with a result."""
    return 7


@case(harness=True)
def raises(nx, _):
    """Ends with an exception."""
    raise nx.bindings.nixlNotFoundError("NIXL_ERR_NOT_FOUND: and more")


@case(harness=True)
def dies(nx, _):
    """Ends the process."""
    os.abort()


@case(harness=True, limit=1.0)
def sleeps(nx, _):
    """Does not end."""
    time.sleep(3600)


@case(harness=True)
def comes_after(nx, _):
    """Runs in the process that replaces a dead one."""
    return os.getpid() > 0

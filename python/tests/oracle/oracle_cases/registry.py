"""What a case is, and the decorator that files it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Callable

#: Recorded instead of a result when the process died in the case.
CRASHED = {"outcome": "crashed"}
#: Recorded instead of a result when the case did not end within its limit.
HUNG = {"outcome": "hung"}
#: For a side whose result depends on what happens to lie in its memory, or on the machine: it is recorded, not judged.
VARIES = {"outcome": "varies"}


def ok(result: Any) -> dict:
    """The record of a case that returned `result`."""
    return {"outcome": "ok", "result": result}


def raised(name: str, status: str | None = None) -> dict:
    """The record of a case that let an exception of class `name` out."""
    record = {"raises": name}
    if status is not None:
        record["status"] = status
    return {"outcome": "raised", "result": record}


@dataclass(frozen=True)
class Case:
    """One comparison: the function, where it runs, and what each side returns if they differ on purpose."""

    id: str
    run: Callable
    #: Seconds until the case counts as hung.
    limit: float = 30.0
    #: Has a process of its own, because it may kill it or leaves something behind.
    alone: bool = False
    #: Environment variables of the process; cases with equal ones share it.
    env: dict[str, str] = field(default_factory=dict)
    #: Takes the import name of the dispatcher (`nixl`) on both sides, not that of the CUDA 12 package.
    facade: bool = False
    #: Not compared: it shows that the harness sees crashes and hangs.
    harness: bool = False
    #: Why the two sides differ; None where they have to be equal.
    differs: str | None = None
    stock: Any = None
    ours: Any = None

    @property
    def doc(self) -> str:
        """What the case looks at, in a sentence."""
        return inspect.getdoc(self.run) or self.id


CASES: dict[str, Case] = {}


def case(**options: Any) -> Callable:
    """Files the decorated function as the case `<module>.<function>`."""

    def file(run: Callable) -> Callable:
        name = f"{run.__module__.rsplit('.', 1)[-1]}.{run.__name__}"
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        differs = options.get("differs")
        if (differs is None) != ("stock" not in options and "ours" not in options):
            raise ValueError(f"{name}: a difference needs its reason and both sides")
        CASES[name] = Case(id=name, run=run, **options)
        return run

    return file

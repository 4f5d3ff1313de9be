"""Makes the environment that holds the original wheel.

    python stock_environment.py target/oracle-stock

prints the interpreter's path, or ends with code 3 and prints why the wheel can't be had.
An environment that is there and whole is left as it is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Without their dependencies, which are torch and the CUDA libraries.
ALONE = ("nixl-cu12==1.5.1", "nixl==1.5.1")
BESIDE = ("numpy==2.2.6",)
UNAVAILABLE = 3


class Unavailable(Exception):
    """The wheel can't be had here; the text says why."""


def whole(python: Path) -> bool:
    """Whether the original can be imported there."""
    if not python.exists():
        return False
    return (
        subprocess.run(
            [str(python), "-c", "import numpy, nixl_cu12, nixl"], capture_output=True, check=False
        ).returncode
        == 0
    )


def make(where: Path) -> Path:
    """The interpreter of the environment at `where`, which is made if it is not there. Raises `Unavailable`."""
    python = where.absolute() / "bin" / "python"
    if whole(python):
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(where)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for arguments in (["--no-deps", *ALONE], list(BESIDE)):
        run = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            last = (run.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise Unavailable(f"pip could not install {' '.join(arguments)}: {last}")
    if not whole(python):
        raise Unavailable("it is installed but can't be imported on this machine")
    return python


def main() -> int:
    """Makes the environment at the path given."""
    try:
        print(make(Path(sys.argv[1])))
    except Unavailable as why:
        print(why)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())

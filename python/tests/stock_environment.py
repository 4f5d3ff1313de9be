"""Gets the original wheels, and makes the environment that holds them.

    python stock_environment.py target/oracle-stock

prints the interpreter's path, or ends with code 3 and prints why the wheels can't be had.
An environment that is there and whole is left as it is; the wheels lie beside it, in `stock-wheels`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERSION = "1.5.1"
#: Without their dependencies, which are torch and the CUDA libraries.
ALONE = (f"nixl-cu12=={VERSION}", f"nixl=={VERSION}")
BESIDE = ("numpy==2.2.6",)
UNAVAILABLE = 3


class Unavailable(Exception):
    """The wheels can't be had here; the text says why."""


def wheels(where: Path) -> list[Path]:
    """The original's wheels for this Python, in the folder `where`: got if they are not there. Raises `Unavailable`."""
    abi = f"cp{sys.version_info.major}{sys.version_info.minor}"
    patterns = (f"nixl_cu12-{VERSION}-{abi}-*.whl", f"nixl-{VERSION}-*.whl")
    if not all(any(where.glob(pattern)) for pattern in patterns):
        pip("download", "--no-deps", "--dest", str(where), *ALONE)
    found = [next(where.glob(pattern), None) for pattern in patterns]
    if None in found:
        names = sorted(file.name for file in where.iterdir())
        raise Unavailable(f"pip got other wheels than {' and '.join(patterns)}: {', '.join(names)}")
    return found


def pip(*arguments: str, python: str = sys.executable) -> None:
    """Runs pip. Raises `Unavailable` with its last word."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        last = (run.stderr.strip() or "pip said nothing").splitlines()[-1]
        raise Unavailable(f"pip {' '.join(arguments)}: {last}")


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
    pip("install", "--no-deps", *map(str, wheels(where.parent / "stock-wheels")), python=str(python))
    pip("install", *BESIDE, python=str(python))
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

"""SGLang is told to register VRAM on a machine without a GPU: the error must say what is wrong, where, and what to do.

It starts SGLang's own manager, through the client program in the clients' directory, with the kind VRAM on host memory,
and reads the tracebacks of its workers. The last line is `RESULT PASS` or `RESULT FAIL: why`; where there
is a driver, `RESULT SKIP`.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
from pathlib import Path

#: What the message of each worker must say, by what it tells the reader.
WANTED = {
    "the region": r"region 0 of \d+",
    "the kind and device": r"VRAM device 0",
    "the address and size": r"0x[0-9a-f]+, [0-9.]+ [KMG]iB",
    "that no CUDA driver is there": r"needs the CUDA driver, and libcuda\.so\.1 is in none of",
    "where it was looked for": r"in none of /\S+(, /\S+)*",
    "the remedy": r"NVIDIA driver.*--gpus all.*LD_LIBRARY_PATH",
    "the code": r"\[register\.vram_no_driver\]",
    "how many others are as bad": r"and \d+ others?",
}
CLASS = "nixlBackendError: NIXL_ERR_BACKEND: "


def missing(text: str) -> list[str]:
    """What a worker's log does not say, in the line that raised."""
    line = next((line for line in reversed(text.splitlines()) if CLASS in line), None)
    if line is None:
        return [f"any {CLASS.partition(':')[0]}"]
    print(line)
    return [what for what, pattern in WANTED.items() if not re.search(pattern, line)]


def judge(clients: Path, seconds: float) -> str | None:
    """What is wrong, if anything is."""
    command = [sys.executable, str(clients / "sglang_client.py"), "--mem-kind", "VRAM", "--requests", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    print(run.stdout, run.stderr, sep="\n")
    if "RESULT FAIL" not in run.stdout.splitlines():
        return f"VRAM was registered where no GPU is, or nothing was tried: code {run.returncode}"
    work = re.search(r"work directory (\S+),", run.stdout)
    if work is None:
        return "the client does not say where its logs are"
    for worker in ("prefill-0-0", "decode-0-0"):
        lacks = missing((Path(work[1]) / f"{worker}.log").read_text(errors="replace"))
        if lacks:
            return f"{worker}'s error does not name {', '.join(lacks)}"
    return None


def main() -> int:
    """Runs it and prints the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients-dir", type=Path, required=True, help="where sglang_client.py lies")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    options = parser.parse_args()
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        print("RESULT SKIP: this machine has a CUDA driver")
        return 0
    try:
        wrong = judge(options.clients_dir, options.timeout)
    except subprocess.TimeoutExpired:
        wrong = "it took too long"
    print("RESULT PASS" if wrong is None else f"RESULT FAIL: {wrong}")
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main())

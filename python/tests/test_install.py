"""Beside the stock packages, in either order: what answers to the names is ours, or the stock, or a clear error.

A stand-in with the stock wheels' names and layout takes their place: it is small, and it says who it is.
"""

import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import numpy
import pytest

MODULES = ("_api", "_bindings", "_utils", "logging")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An environment with numpy and kvferry, and the wheels to try in it."""
    folder = os.environ.get("KVFERRY_TEST_WHEELS")
    if not folder:
        pytest.skip("KVFERRY_TEST_WHEELS names no folder with wheels: cargo xtask test python builds them")
    root = tmp_path_factory.mktemp("install")
    venv.create(root / "venv", with_pip=False)
    place = Place(root / "venv/bin/python", pathlib.Path(folder), stand_ins(root))
    # numpy is borrowed: to install it takes longer than all the rest.
    site = pathlib.Path(place.run("import sysconfig; print(sysconfig.get_path('purelib'))"))
    for borrowed in pathlib.Path(numpy.__file__).parents[1].glob("numpy*"):
        (site / borrowed.name).symlink_to(borrowed)
    place.pip("install", "--no-index", "--no-deps", next(place.wheels.glob("kvferry-*.whl")))
    return place


class Place:
    def __init__(self, python, wheels, stock):
        self.python, self.wheels, self.stock = python, wheels, stock
        self.ours = next(wheels.glob("kvferry_nixl-*.whl"))

    def pip(self, *args):
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *args, "-q"]
        subprocess.run(command, check=True, timeout=300)

    def add_ours(self):
        self.pip("install", "--no-index", "--no-deps", self.ours)

    def add_stock(self):
        self.pip("install", "--no-index", "--no-deps", *self.stock)

    def drop_ours(self):
        self.pip("uninstall", "-y", "kvferry-nixl")

    def drop_stock(self):
        self.pip("uninstall", "-y", "nixl", "nixl-cu12")

    def run(self, code, **env):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KVFERRY_"))}
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, env={**environment, **env}, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def command(self, *args):
        done = subprocess.run(
            [self.python, "-m", "kvferry", "nixl", *args], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def who(self, **env):
        """Who answers to the names; all modules of a name must be of one kind."""
        return self.run(WHO, **env)


WHO = f"""
import importlib
answers = []
for name in ("nixl", "nixl_cu12"):
    kinds = set()
    for part in ("", *{MODULES!r}):
        try:
            module = importlib.import_module(name + "." + part if part else name)
        except ImportError as error:
            kinds.add("missing")
            assert name in str(error), error
        else:
            kinds.add("stock" if getattr(module, "STOCK", None) else module.__name__.split(".")[0])
    kinds = {{"ours" if kind == "kvferry_nixl" else kind for kind in kinds}}
    if getattr(importlib.import_module(name) if "missing" not in kinds else None, "__kvferry__", False):
        kinds.discard(name)
    answers.append(f"{{name}}={{'+'.join(sorted(kinds))}}")
print(" ".join(answers))
"""


def stand_ins(root):
    """Wheels with the names and the layout of the stock ones."""
    inside = {f"nixl_cu12/{part}.py": "STOCK = True\n" for part in ("__init__", *MODULES)}
    dispatcher = "STOCK = True\nimport sys\nimport nixl_cu12\n" + "".join(
        f"import nixl_cu12.{part}\nsys.modules['nixl.{part}'] = nixl_cu12.{part}\n" for part in MODULES
    )
    return [wheel(root, "nixl_cu12", inside), wheel(root, "nixl", {"nixl/__init__.py": dispatcher})]


def wheel(root, name, files):
    info = f"{name}-1.3.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.3.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = root / f"{name}-1.3.0-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


OURS, STOCK, NOBODY = "nixl=ours nixl_cu12=ours", "nixl=stock nixl_cu12=stock", "nixl=missing nixl_cu12=missing"


def test_stock_first_then_ours_then_stock_goes(place):
    place.add_stock()
    assert place.who() == STOCK
    place.add_ours()
    assert place.who() == OURS
    place.drop_stock()
    assert place.who() == OURS
    place.drop_ours()
    assert place.who() == NOBODY


def test_ours_first_then_stock_then_ours_goes(place):
    place.add_ours()
    assert place.who() == OURS
    place.add_stock()
    assert place.who() == OURS
    place.drop_ours()
    assert place.who() == STOCK
    place.drop_stock()
    assert place.who() == NOBODY


def test_the_switch(place):
    code, said = place.command("status")
    assert code == 2 and "pip install kvferry-nixl" in said
    place.add_stock()
    place.add_ours()
    code, said = place.command("status")
    assert code == 0 and "nixl       kvferry (kvferry-nixl 1.5.1)" in said and "nixl 1.3.0" in said
    code, said = place.command("disable")
    assert code == 0 and "nixl       nixl 1.3.0" in said and "switched off" in said
    assert place.who() == STOCK
    assert place.who(KVFERRY_NIXL="1") == OURS
    assert place.command("enable")[0] == 0
    assert place.who() == OURS
    assert place.who(KVFERRY_NIXL="0") == STOCK
    place.command("disable")
    place.drop_ours()
    place.add_ours()
    # The mark belongs to the environment, not to the wheel.
    assert place.who() == STOCK
    place.command("enable")
    place.drop_stock()
    assert place.command("nonsense")[0] == 2
    place.drop_ours()


def test_the_owner_of_the_name_is_new_enough(place):
    """As vLLM asks: the distribution that owns the package nixl has version 1.5.0 or later."""
    place.add_ours()
    owners = place.run(
        "from importlib import metadata as m; print([(d, m.version(d)) for d in m.packages_distributions()['nixl']])"
    )
    assert owners == "[('kvferry-nixl', '1.5.1')]"
    place.drop_ours()


def test_a_folder_on_pythonpath_does_it_too(place):
    """Where no .pth file is read."""
    place.add_ours()
    site = place.run("import kvferry_nixl, os; print(os.path.dirname(kvferry_nixl.__file__))")
    code = "import nixl, nixl_cu13._api; print(nixl.__kvferry__, nixl.__file__)"
    said = place.run(code, PYTHONPATH=os.path.join(site, "path"), KVFERRY_NIXL="0")
    assert said == f"True {os.path.join(site, 'path/nixl/__init__.py')}"
    place.drop_ours()

"""Beside the stock packages, in either order: what answers to the names is ours, or the stock, or a clear error.

The stock wheels are the real ones. Where pip can't get them, a stand-in with their names and layout takes their place,
and a test that is skipped says so.
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
import stock_environment

MODULES = ("_api", "_bindings", "_utils", "logging")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An environment with numpy and kvferry, and the wheels to try in it."""
    folder = os.environ.get("KVFERRY_TEST_WHEELS")
    if not folder:
        pytest.skip("KVFERRY_TEST_WHEELS names no folder with wheels: cargo xtask test python builds them")
    root = tmp_path_factory.mktemp("install")
    venv.create(root / "venv", with_pip=False)
    place = Place(root, pathlib.Path(folder))
    # numpy is borrowed: to install it takes longer than all the rest.
    site = pathlib.Path(place.run("import sysconfig; print(sysconfig.get_path('purelib'))"))
    for borrowed in pathlib.Path(numpy.__file__).parents[1].glob("numpy*"):
        (site / borrowed.name).symlink_to(borrowed)
    place.add(place.native)
    return place


@pytest.fixture(autouse=True)
def emptied(place):
    """Each test begins with kvferry alone."""
    yield
    place.command("enable")
    place.pip("uninstall", "-y", "nixl", "nixl-cu12", "kvferry-nixl")


class Place:
    def __init__(self, root, wheels):
        self.python = root / "venv/bin/python"
        self.native = next(wheels.glob("kvferry-*.whl"))
        self.ours = next(wheels.glob("kvferry_nixl-*.whl"))
        target = os.environ.get("KVFERRY_TEST_TARGET")
        try:
            self.stock = stock_environment.wheels(pathlib.Path(target or root) / "stock-wheels")
            self.version, self.lacking = stock_environment.VERSION, None
        except stock_environment.Unavailable as why:
            self.stock, self.version, self.lacking = stand_ins(root), STAND_IN_VERSION, why

    def pip(self, *args):
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *args, "-q"]
        subprocess.run(command, check=True, timeout=300)

    def add(self, *wheels):
        self.pip("install", "--no-index", "--no-deps", "--no-compile", *wheels)

    def add_ours(self):
        self.add(self.ours)

    def add_stock(self):
        self.add(*self.stock)

    def drop_ours(self):
        self.pip("uninstall", "-y", "kvferry-nixl")

    def drop_stock(self):
        self.pip("uninstall", "-y", "nixl", "nixl-cu12")

    def run(self, code, **env):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "KVFERRY_"))}
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, env={**environment, **env}, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def command(self, *args):
        done = subprocess.run(
            [self.python, "-m", "kvferry", "nixl", *args], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def who(self, **env):
        """Who answers to the names, in a process of its own. A mixture has a `+` in it, or fails."""
        return self.run(WHO, **env).splitlines()[-1]

    def everything(self):
        """The same by the switch, then as a process wishes on and off, the switch being on and off."""
        said = [self.who()]
        for command in ("disable", "enable"):
            assert self.command(command)[0] == 0
            said += [self.who(), self.who(KVFERRY_NIXL="0"), self.who(KVFERRY_NIXL="1")]
        return said


# Judged by the distribution that owns the file behind each name, so that no module can give itself out as another's.
WHO = f"""
import importlib, os, sys
from importlib import metadata
owners = {{}}
for distribution in ("kvferry-nixl", "nixl", "nixl-cu12"):
    try:
        files = metadata.files(distribution)
    except metadata.PackageNotFoundError:
        continue
    for file in files:
        owners[os.path.realpath(file.locate())] = "ours" if distribution == "kvferry-nixl" else "stock"

def whose(module):
    return owners.get(os.path.realpath(getattr(module, "__file__", None) or ""), "nobody's")

def whose_agent(name):
    # A use of it: an agent is made, and its class and its raw agent must be of the same kind as the name.
    agent = importlib.import_module(name + "._api").nixl_agent("probe")
    assert agent.get_agent_metadata()
    return {{whose(sys.modules[type(part).__module__]) for part in (agent, agent.agent)}}

answers, agents = [], set()
for name in ("nixl", "nixl_cu12", "nixl_cu13"):
    kinds = set()
    for part in ("", *{MODULES!r}):
        try:
            kinds.add(whose(importlib.import_module(name + "." + part if part else name)))
        except ImportError as error:
            kinds.add("missing")
            assert name in str(error), error
    if "missing" not in kinds:
        kinds |= whose_agent(name)
    agents |= kinds - {{"missing"}}
    answers.append(f"{{name}}={{'+'.join(sorted(kinds))}}")
# Nothing of the other one is loaded besides, but for the hook that Python's start loads.
sys.modules.pop("_kvferry_nixl_hook", None)
loaded = {{whose(module) for module in list(sys.modules.values())}} - {{"nobody's"}}
assert len(loaded | agents) <= 1, (loaded, agents)
print(" ".join(answers), flush=True)
if agents == {{"stock"}}:
    # Where the stock has made an agent, its process may end in a signal.
    os._exit(0)
"""

# What the stand-in can do of what is asked of an agent.
STAND_IN = """
class nixl_agent:
    def __init__(self, name): self.agent = self
    def get_agent_metadata(self): return b"-"
"""
STAND_IN_VERSION = "1.3.0"


def stand_ins(root):
    """Wheels with the names and the layout of the stock ones."""
    inside = {f"nixl_cu12/{part}.py": STAND_IN for part in ("__init__", *MODULES)}
    dispatcher = "import sys\nimport nixl_cu12\n" + "".join(
        f"from nixl_cu12 import {part}\nsys.modules['nixl.{part}'] = {part}\n" for part in MODULES
    )
    return [wheel(root, "nixl_cu12", inside), wheel(root, "nixl", {"nixl/__init__.py": dispatcher})]


def wheel(root, name, files):
    info = f"{name}-{STAND_IN_VERSION}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {STAND_IN_VERSION}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = root / f"{name}-{STAND_IN_VERSION}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


OURS = "nixl=ours nixl_cu12=ours nixl_cu13=ours"
STOCK = "nixl=stock nixl_cu12=stock nixl_cu13=missing"
NOBODY = "nixl=missing nixl_cu12=missing nixl_cu13=missing"


def test_the_stock_wheels_are_the_real_ones(place):
    if place.lacking:
        pytest.skip(f"a stand-in took the stock wheels' place in this module: {place.lacking}")
    place.add_stock()
    sizes = "import nixl_cu12._bindings as b, os; print(os.path.getsize(b.__file__), b.__file__.rsplit('.', 1)[1])"
    size, suffix = place.run(sizes).split()
    assert int(size) > 100_000 and suffix == "so"
    assert place.who() == STOCK
    place.drop_stock()
    assert place.who() == NOBODY


def test_stock_first_then_ours_then_stock_goes(place):
    place.add_stock()
    assert place.who() == STOCK
    place.add_ours()
    assert place.everything() == [OURS, STOCK, STOCK, OURS, OURS, STOCK, OURS]
    place.drop_stock()
    assert [place.who(), place.who(KVFERRY_NIXL="0")] == [OURS, NOBODY]
    place.drop_ours()
    assert place.who() == NOBODY


def test_ours_first_then_stock_then_ours_goes(place):
    place.add_ours()
    assert place.who() == OURS
    place.add_stock()
    assert place.everything() == [OURS, STOCK, STOCK, OURS, OURS, STOCK, OURS]
    place.drop_ours()
    assert place.who() == STOCK
    assert place.who(KVFERRY_NIXL="1") == STOCK
    place.drop_stock()
    assert place.who() == NOBODY


def test_a_half_of_the_stock_is_no_reason_to_mix(place):
    """One of the two stock distributions is there: the other's name is ours or missing."""
    place.add_stock()
    place.add_ours()
    place.pip("uninstall", "-y", "nixl")
    alone = "nixl=missing nixl_cu12=stock nixl_cu13=missing"
    assert [place.who(), place.who(KVFERRY_NIXL="0")] == [OURS, alone]
    place.add(next(wheel for wheel in place.stock if wheel.name.startswith("nixl-")))
    place.pip("uninstall", "-y", "nixl-cu12")
    assert [place.who(), place.who(KVFERRY_NIXL="0")] == [OURS, NOBODY]


def test_a_process_keeps_to_the_side_it_began_with(place):
    """The switch is thrown, or the environment changed, between two imports."""
    place.add_stock()
    place.add_ours()
    code = """
import os
os.environ["KVFERRY_NIXL"] = "{first}"
import nixl
os.environ["KVFERRY_NIXL"] = "{then}"
import nixl_cu12
print(hasattr(nixl, "__kvferry__"), hasattr(nixl_cu12, "__kvferry__"), nixl._bindings is nixl_cu12._bindings)
"""
    assert place.run(code.format(first=1, then=0)) == "True True True"
    assert place.run(code.format(first=0, then=1)) == "False False True"


def test_without_the_engine_the_names_are_an_error_that_says_so(place):
    """kvferry is uninstalled, kvferry-nixl is not: the stock does not slip in under names that are led to us."""
    place.add_stock()
    place.add_ours()
    place.pip("uninstall", "-y", "kvferry")
    try:
        code = """
for _ in range(2):
    for name in ("nixl", "nixl_cu12", "nixl._api", "nixl_cu12._bindings"):
        try:
            __import__(name)
        except ImportError as error:
            print(error)
"""
        assert set(place.run(code).splitlines()) == {"No module named 'kvferry'"}
        assert place.who(KVFERRY_NIXL="0") == STOCK
    finally:
        place.add(place.native)


def test_the_switch(place):
    code, said = place.command("status")
    assert code == 2 and "pip install kvferry-nixl" in said
    place.add_stock()
    place.add_ours()
    code, said = place.command("status")
    assert code == 0 and "nixl       kvferry (kvferry-nixl 1.5.1)" in said
    assert f"also installed: nixl {place.version}, nixl-cu12 {place.version}" in said
    code, said = place.command("disable")
    assert code == 0 and f"nixl       nixl {place.version}" in said and f"nixl_cu12  nixl-cu12 {place.version}" in said
    assert "nixl_cu13  not installed" in said and "switched off" in said
    place.command("disable")
    place.drop_ours()
    place.add_ours()
    # The mark belongs to the environment, not to the wheel.
    assert place.who() == STOCK
    place.command("enable")
    place.drop_stock()
    assert place.command("nonsense")[0] == 2


def test_the_owner_of_the_name_is_new_enough(place):
    """As vLLM asks: the distribution that owns the package nixl has version 1.5.0 or later."""
    place.add_ours()
    owners = place.run(
        "from importlib import metadata as m; print([(d, m.version(d)) for d in m.packages_distributions()['nixl']])"
    )
    assert owners == "[('kvferry-nixl', '1.5.1')]"


def test_a_folder_on_pythonpath_does_it_too(place):
    """Where no .pth file is read."""
    place.add_ours()
    site = place.run("import kvferry_nixl, os; print(os.path.dirname(kvferry_nixl.__file__))")
    code = "import nixl, nixl_cu13._api; print(nixl.__kvferry__, nixl.__file__)"
    said = place.run(code, PYTHONPATH=os.path.join(site, "path"), KVFERRY_NIXL="0")
    assert said == f"True {os.path.join(site, 'path/nixl/__init__.py')}"

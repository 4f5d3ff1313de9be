"""The wheels as they are given away."""

import os
import pathlib
import re
import zipfile

import pytest

MOST = 8 << 20


@pytest.fixture(scope="module")
def wheels():
    folder = os.environ.get("KVFERRY_TEST_WHEELS")
    if not folder:
        pytest.skip("KVFERRY_TEST_WHEELS names no folder with wheels: cargo xtask test python builds them")
    return {path.name.split("-")[0]: path for path in pathlib.Path(folder).glob("*.whl")}


def test_they_are_small_and_for_any_python_from_3_10_on(wheels):
    assert set(wheels) == {"kvferry", "kvferry_nixl"}
    assert all(path.stat().st_size < MOST for path in wheels.values())
    assert wheels["kvferry"].name.endswith("-cp310-abi3-manylinux_2_28_x86_64.whl")
    assert wheels["kvferry_nixl"].name.endswith("-py3-none-any.whl")


def test_the_module_asks_for_no_newer_glibc_than_2_28(wheels):
    with zipfile.ZipFile(wheels["kvferry"]) as wheel:
        modules = [name for name in wheel.namelist() if name.endswith(".so")]
        assert modules == ["kvferry/_kvferry.abi3.so"]
        module = wheel.read(modules[0])
    versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_(2\.[\d.]+)", module)}
    assert versions and max(versions) <= (2, 28), sorted(versions)
    # Nothing of a C++ runtime, a CUDA driver or a Python of one version.
    needed = set(re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)\0", module)) - {b"libcuda.so.1"}
    assert needed <= {b"libc.so.6", b"libm.so.6", b"libpthread.so.0", b"libdl.so.2", b"librt.so.1", b"libutil.so.1"}, needed


def test_only_numpy_is_needed(wheels):
    needs = {}
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as wheel:
            (metadata,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
            text = wheel.read(metadata).decode()
            needs[name] = {re.match(r"[\w-]+", line).group() for line in re.findall(r"Requires-Dist: (.*)", text)}
    assert needs == {"kvferry": {"numpy"}, "kvferry_nixl": {"kvferry", "numpy"}}


def test_the_drop_in_overwrites_nobodys_files(wheels):
    with zipfile.ZipFile(wheels["kvferry_nixl"]) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        owned = wheel.read("kvferry_nixl-1.5.1.dist-info/top_level.txt").decode().split()
    assert tops == {"kvferry_nixl", "kvferry_nixl.pth", "_kvferry_nixl_hook.py", "kvferry_nixl-1.5.1.dist-info"}
    assert {"nixl", "nixl_cu12", "nixl_cu13"} < set(owned)


def test_the_demo_is_not_inside(wheels):
    with zipfile.ZipFile(wheels["kvferry"]) as wheel:
        assert not any("demo" in name for name in wheel.namelist())

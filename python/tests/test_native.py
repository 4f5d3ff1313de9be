"""The package `kvferry` by itself."""

import array
import asyncio
import gc
import logging
import subprocess
import sys
import weakref

import kvferry
import numpy
import pytest
from conftest import run_child, until


@pytest.fixture
def agents():
    with kvferry.Agent("prefill") as near, kvferry.Agent("decode") as far:
        yield near, far


def linked(near, far, source, pool):
    """Registers both, and loads one's metadata into the other."""
    held = near.register(source), far.register(pool)
    near.load_remote(far.metadata())
    return held


def test_pages_go_where_their_indices_say(agents):
    near, far = agents
    source, pool = numpy.zeros((8, 4096), numpy.uint8), numpy.zeros((16, 4096), numpy.uint8)
    held = linked(near, far, source, pool)
    source[:] = numpy.arange(1, 9, dtype=numpy.uint8)[:, None]
    grid = lambda z: [(z.ctypes.data, 4096, 0, 4096, len(z))]
    local, remote = near.prepare_local(grid(source)), near.prepare_remote("decode", grid(pool))
    assert (len(local), len(remote), remote.peer) == (8, 16, "decode")
    with near.write(local, remote, [0, 3, 7], [9, 4, 15], notify="there") as transfer:
        transfer.post()
        assert transfer.wait(10) == "done"
        measured = transfer.telemetry()
        assert (measured["bytes"], measured["blocks"]) == (3 * 4096, 3) and measured["path"] == "same_process"
    assert transfer.released
    assert pool[[9, 4, 15], 0].tolist() == [1, 4, 8] and pool.sum() == (1 + 4 + 8) * 4096
    assert until(far.notifications) == [kvferry.Notification("prefill", b"there")]
    back = near.read(local, remote, numpy.array([1], numpy.int64), numpy.array([15], numpy.uint32))
    back.post()
    back.wait(10)
    assert (source[1] == 8).all()
    del held


@pytest.mark.parametrize(
    "make",
    [
        lambda: numpy.zeros(4096, numpy.float32),
        lambda: numpy.zeros((64, 64), order="F"),
        lambda: bytearray(4096),
        lambda: array.array("d", bytes(4096)),
        lambda: memoryview(bytearray(4096)),
        lambda: [numpy.zeros(16), bytearray(64)],
    ],
    ids=["array", "Fortran array", "bytearray", "array.array", "memoryview", "list"],
)
def test_objects_with_memory_are_registered_and_kept_alive(agents, make):
    near, owner = agents[0], make()
    registration = near.register(owner)
    assert registration.active and len(near.regions()) == len(registration.ids)
    assert sum(region[2] for region in near.regions()) > 0
    registration.deregister()
    registration.deregister()
    assert not registration.active and near.regions() == []


def test_the_owner_lives_as_long_as_its_registration(agents):
    owner = numpy.zeros(1 << 16, numpy.uint8).view(type("Mine", (numpy.ndarray,), {}))
    alive = weakref.ref(owner)
    registration = agents[0].register(owner)
    del owner
    gc.collect()
    assert alive() is not None
    registration.deregister()
    del registration
    # Freed when the interpreter next looks.
    assert until(lambda: agents[0].regions() == [] and alive() is None)


class Tensor:
    """What is asked of a torch tensor."""

    def __init__(self, contiguous=True, device="cpu"):
        self.memory, self._contiguous = numpy.zeros(1024, numpy.float32), contiguous
        self.device = type("Device", (), {"type": device, "index": 3 if device != "cpu" else None})()

    def data_ptr(self):
        return self.memory.ctypes.data

    def element_size(self):
        return 4

    def numel(self):
        return 1024

    def is_contiguous(self):
        return self._contiguous


class Capsule:
    """An object that has DLPack and nothing else."""

    def __init__(self):
        self.memory = numpy.zeros(256)

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()


def test_tensors_are_known_by_their_methods(agents):
    near, tensor = agents[0], Tensor()
    with near.register(tensor):
        assert near.regions()[0][1:3] == (tensor.data_ptr(), 4096)
    with pytest.raises(ValueError, match="not contiguous"):
        near.register(Tensor(contiguous=False))
    with pytest.raises(kvferry.RegisterError) as raised:
        near.register(Tensor(device="cuda"))
    assert raised.value.code == "register.vram_no_driver" and raised.value.region.device == 3
    assert "torch" not in sys.modules


def test_dlpack_is_understood(agents):
    owner = Capsule()
    try:
        registration = agents[0].register(owner)
    except ValueError as error:
        # numpy 1 hands DLPack out read-only.
        assert "read-only" in str(error)
    else:
        assert agents[0].regions()[0][1] == owner.memory.ctypes.data
        registration.deregister()


def test_what_can_not_be_registered_says_why(agents):
    near = agents[0]
    for owner, error, text in [
        (5, TypeError, "int has no memory"),
        (b"bytes", ValueError, "read-only"),
        (numpy.zeros((8, 8))[:, ::2], ValueError, "not contiguous"),
    ]:
        with pytest.raises(error, match=text):
            near.register(owner)
    pool = numpy.zeros(4096, numpy.uint8)
    ranges = [(pool.ctypes.data, 4096, 0), (0x1000, 64, 0), (pool.ctypes.data, 0, 0)]
    with pytest.raises(kvferry.RegisterError) as raised:
        near.register_raw(ranges)
    error = raised.value
    assert error.code == "register.unmapped" and error.remedy and "not mapped" in error.cause
    assert error.region == (1, 3, 0x1000, 64, "DRAM", 0) and "and 1 other" in str(error)
    assert near.regions() == []
    assert [fault.code for fault in near.validate(ranges)] == ["register.unmapped", "register.zero_length"]


def test_errors_can_be_pickled_and_have_familiar_bases(agents):
    import pickle

    with pytest.raises(kvferry.PrepareError) as raised:
        agents[0].prepare_local([(64, 64, 0)])
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.code, copy.remedy) == (str(raised.value), raised.value.code, raised.value.remedy)
    assert issubclass(kvferry.WaitTimeout, TimeoutError) and issubclass(kvferry.ConnectError, ConnectionError)
    codes = {code for code, _, _ in kvferry._kvferry.error_codes()}
    assert raised.value.code in codes


def test_shared_memory_is_an_array(agents):
    near, far = agents
    source, pool = near.alloc(1 << 16), far.alloc(1 << 16)
    held = linked(near, far, source, pool)
    numpy.asarray(source)[:] = 3
    transfer = near.write(near.prepare_local(source), near.prepare_remote("decode", pool))
    transfer.post()
    transfer.wait(10)
    view = numpy.asarray(pool)
    del pool
    gc.collect()
    assert (view == 3).all() and transfer.telemetry()["mechanism"] == "map"
    del held


def test_await(agents):
    near, far = agents
    source, pool = numpy.ones(8 << 20, numpy.uint8), numpy.zeros(8 << 20, numpy.uint8)
    held = linked(near, far, source, pool)
    local, remote = near.prepare_local(source), near.prepare_remote("decode", pool)

    async def many():
        transfers = [near.write(local, remote, notify=str(i)) for i in range(20)]

        async def one(transfer):
            transfer.post()
            return await transfer

        assert await asyncio.gather(*map(one, transfers)) == ["done"] * 20
        # One that has ended already, and one whose task is cancelled.
        assert await transfers[0] == "done"
        transfers[1].post()
        task = asyncio.ensure_future(one(near.write(local, remote)))
        await asyncio.sleep(0)
        task.cancel()
        assert await transfers[1] == "done"
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(2):
        asyncio.run(many())
    assert (pool == 1).all()
    del held


def test_await_raises_what_a_transfer_fails_with(agents):
    near, far = agents
    source, pool = numpy.ones(64 << 20, numpy.uint8), numpy.zeros(64 << 20, numpy.uint8)
    held = linked(near, far, source, pool)
    transfer = near.write(near.prepare_local(source), near.prepare_remote("decode", pool))

    async def lose():
        transfer.post()
        waiting = asyncio.ensure_future(_wait(transfer))
        await asyncio.sleep(0)
        near.remove_remote("decode")
        return await waiting

    try:
        assert asyncio.run(lose()) == "done"
    except kvferry.TransferFailed as error:
        assert error.code == "peer.lost"
    with pytest.raises(kvferry.PostError):
        transfer.post()
    del held


async def _wait(transfer):
    return await transfer


def test_events_come_through_a_descriptor(agents):
    import select

    near, far = agents
    events = near.events()
    source, pool = numpy.ones(4096, numpy.uint8), numpy.zeros(4096, numpy.uint8)
    held = linked(near, far, source, pool)
    near.connect("decode", 10)
    assert select.select([events], [], [], 10)[0]
    assert events.next().kind == "peer_up" and events.next(0.01) is None
    transfer = near.write(near.prepare_local(source), near.prepare_remote("decode", pool), queue=events)
    transfer.post()
    event = events.next(10)
    assert (event.kind, event.transfer, event.status, event.error) == ("completed", transfer.handle, "done", None)
    far.close()
    lost = events.next(10)
    assert lost.kind == "peer_lost" and lost.peer == "decode" and lost.cause
    del held


def test_waiting_ends_in_time_and_with_a_signal(agents):
    near, far = agents
    source, pool = numpy.ones(64, numpy.uint8), numpy.zeros(64, numpy.uint8)
    held = linked(near, far, source, pool)
    transfer = near.write(near.prepare_local(source), near.prepare_remote("decode", pool))
    with pytest.raises(TimeoutError):
        transfer.wait(0.05)
    del held
    run_child(
        """
        import os, signal, threading, kvferry
        # Whoever starts the tests in the background has it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        a = kvferry.Agent("a")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            a.events().next(None)
        except KeyboardInterrupt:
            raise SystemExit(0)
        raise SystemExit(1)
        """
    )


def test_logs_come_as_loggings_records(caplog):
    with caplog.at_level(logging.INFO, logger="kvferry"):
        with kvferry.Agent("logged"):
            pass

        def has_come():
            records = [record for record in caplog.records if record.name == "kvferry.control"]
            return any("inline_limit=16KiB" in record.getMessage() and record.levelno == logging.INFO for record in records)

        # A thread hands them over, soon but not at once.
        assert until(has_come)


def test_settings_are_keywords_and_variables(monkeypatch):
    monkeypatch.setenv("KVFERRY_THREADS", "3")
    settings = kvferry.Settings(forbid="tcp", cancel_timeout="2s")
    assert "threads=3" in str(settings) and settings.forbid == "tcp" and settings.cancel_timeout == 2.0
    with kvferry.Agent("set", settings) as agent:
        assert str(agent.settings) == str(settings)
    with pytest.raises(kvferry.SettingsError, match="KVFERRY_THREADS=0"):
        kvferry.Settings(threads=0)
    with pytest.raises(TypeError, match="thread"):
        kvferry.Settings(thread=1)
    assert "geheim" not in repr(kvferry.Settings(token="geheim"))


def test_a_closed_agent_says_so(agents):
    near = agents[0]
    registration = near.register(bytearray(64))
    near.close()
    near.close()
    assert near.closed
    for call in (near.metadata, near.notifications, lambda: near.register(bytearray(8))):
        with pytest.raises(kvferry.ClosedError):
            call()
    registration.deregister()


def test_the_command():
    def command(*args):
        return subprocess.run(
            [sys.executable, "-m", "kvferry", *args], capture_output=True, text=True, check=False, timeout=120
        )

    assert "KVFERRY_THREADS" in command("settings").stdout
    assert command("codes", "register.unmapped").returncode == 0
    assert command("codes", "no.such").returncode == 2 and command("nonsense").returncode == 2
    # It starts itself twice.
    probe = command("probe", "--mib", "1", "--json")
    assert '"map"' in probe.stdout, probe.stderr


def test_the_types_are_described():
    import pathlib

    folder = pathlib.Path(kvferry.__file__).parent
    assert (folder / "py.typed").exists()
    described = (folder / "_kvferry.pyi").read_text()
    for name in dir(kvferry._kvferry):
        if not name.startswith("__"):
            assert f"class {name}" in described or f"def {name}(" in described, name
    for cls in (kvferry._kvferry.Agent, kvferry.Transfer, kvferry.Registration, kvferry.PreparedList):
        assert cls.__doc__
        for name in vars(cls):
            if not name.startswith("__"):
                assert f"def {name}(" in described, f"{cls.__name__}.{name}"


def test_explaining_an_error():
    found = kvferry.explain("NIXL memory registration failed for VRAM kv tensors")
    assert found["primary"]["id"] == "75f97e832a3e9a92"
    with pytest.raises(kvferry.RegisterError) as raised, kvferry.Agent("explained") as agent:
        agent.register_raw([(4096, 4096, 0)])
    assert kvferry.explain(str(raised.value))["primary"]["evidence"]
    nothing = kvferry.explain("all is well \x00 \ud7ff \udcff")
    assert nothing["primary"] is None and nothing["others"] == []

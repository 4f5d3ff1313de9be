"""The drop-in in the forms in which engines call it, and where it says more than the stock one."""

import pickle
import re
import sys

import numpy
import pytest
from conftest import POOL, Side, finish, run_child, until
from nixl import _bindings as bindings


def test_the_names_lead_to_the_same_objects():
    out = run_child(
        """
        import importlib.util, sys
        assert importlib.util.find_spec("nixl")
        import nixl, nixl_cu12, nixl_cu13._bindings, nixl._utils, nixl.logging
        from nixl._api import nixl_agent, nixl_agent_config
        from nixl_cu13._api import nixl_agent as other
        assert nixl_agent is other is nixl.nixl_agent
        assert nixl_cu13._bindings.nixlXferTelemetry is nixl._bindings.nixlXferTelemetry
        assert nixl.nixlBackendError is nixl._api.nixlBind.nixlBackendError
        assert "torch" not in sys.modules and "asyncio" not in sys.modules
        print(nixl.__version__)
        """
    )
    assert tuple(map(int, out.strip().split("."))) >= (1, 5, 0)


def test_vllm_pulls_a_grid(pair):
    """N x 5 arrays, int32 indices in any order, a notification on the READ, telemetry, release."""
    from nixl._api import nixl_agent_config

    near, far = Side("pull", nixl_agent_config(num_threads=4, capture_telemetry=True)), pair[1]
    name = near.agent.add_remote_agent(far.agent.get_agent_metadata())
    far.pool[:] = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 4096)
    rows = lambda side: numpy.array([[side.address, 4096, 0, 4096, 256]], numpy.uint64)
    local = near.agent.prep_xfer_dlist("NIXL_INIT_AGENT", rows(near), mem_type="DRAM")
    remote = near.agent.prep_xfer_dlist(name.decode(), rows(far), mem_type="DRAM")
    ids = numpy.random.default_rng(1).permutation(256).astype(numpy.int32)
    handle = near.agent.make_prepped_xfer("READ", local, ids, remote, ids[::-1].copy(), notif_msg=b"req:1")
    assert handle and near.agent.transfer(handle) in ("DONE", "PROC")
    assert finish(near.agent, handle) == "DONE"
    assert (near.pool.reshape(256, 4096)[ids] == ids[::-1, None]).all()
    measured = near.agent.get_xfer_telemetry(handle)
    assert (measured.totalBytes, measured.descCount) == (256 * 4096, 256)
    assert 0 < measured.postDuration <= measured.xferDuration
    near.agent.release_xfer_handle(handle)
    assert until(far.agent.get_new_notifs) == {"pull": [b"req:1"]}


def test_sglang_writes_without_ever_releasing(pair):
    from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t

    config = nixl_agent_config(
        backends=[], num_threads=8, sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
    )
    agent, far = nixl_agent("sglang", config), pair[1]
    agent.create_backend("UCX", {"num_threads": "8", "device_list": ""})
    assert "UCX" in agent.get_plugin_list()
    pool = numpy.ones(POOL, numpy.uint8)
    assert agent.register_memory([(pool.ctypes.data, POOL, 0, "")], "DRAM")
    agent.add_remote_agent(far.agent.get_agent_metadata())
    blocks = numpy.array([[pool.ctypes.data + 4096 * i, 4096, 0] for i in range(4)], numpy.uint64)
    there = numpy.array([[far.address + 4096 * i, 4096, 0] for i in range(4)], numpy.uint64)
    for _ in range(50):
        descs = [agent.get_xfer_descs(rows, "DRAM") for rows in (blocks, there)]
        handle = agent.initialize_xfer("WRITE", *descs, "far", b"chunk")
        agent.transfer(handle)
        assert finish(agent, handle) == "DONE"
    assert until(lambda: sum(map(len, far.agent.update_notifs().values())) == 50)
    assert (far.pool[: 4 * 4096] == 1).all() and not far.pool[4 * 4096 :].any()
    # Only the last is still held.
    assert len(agent.agent._transfers) == 1


def test_registered_lists_are_reusable_and_count(pair):
    agent = pair[0].agent
    pool = numpy.zeros(1 << 16, numpy.uint8)
    descs = agent.get_reg_descs([(pool.ctypes.data + 4096 * i, 4096, 0, "") for i in range(16)], "DRAM")
    before = len(agent.agent._agent.regions())
    for _ in range(3):
        agent.register_memory(descs)
        blob = agent.get_agent_metadata()
        assert len(agent.agent._agent.regions()) == before + 16
        agent.deregister_memory(descs)
        assert agent.get_agent_metadata() != blob
    agent.register_memory(descs)
    # One by one, in another list; what is left can't be given back whole.
    agent.deregister_memory(agent.get_reg_descs([descs[3]], "DRAM"))
    with pytest.raises(bindings.nixlNotFoundError):
        agent.deregister_memory(descs)
    rest = agent.get_reg_descs([descs[i] for i in range(16) if i != 3], "DRAM")
    agent.deregister_memory(rest)
    assert len(agent.agent._agent.regions()) == before


def test_registering_never_returns_something_false(pair):
    agent = pair[0].agent
    assert agent.register_memory([], "DRAM")
    assert agent.register_memory(numpy.zeros((0, 3), numpy.uint64), "DRAM")
    for cls in (bindings.nixlXferDList, bindings.nixlRegDList, bindings.nixlRemoteDList):
        assert not hasattr(cls, "__len__") and not hasattr(cls, "__bool__") and cls(bindings.DRAM_SEG)
    from nixl._api import nixl_prepped_dlist_handle, nixl_xfer_handle

    for cls in (nixl_xfer_handle, nixl_prepped_dlist_handle):
        assert not hasattr(cls, "__len__") and not hasattr(cls, "__bool__")


def test_a_failed_registration_names_region_cause_and_remedy(pair):
    side = pair[0]
    ranges = [(side.address, 4096, 0, "")] * 80
    ranges[41] = (0x1000, 1288490189, 0, "")
    with pytest.raises(bindings.nixlBackendError) as raised:
        side.agent.register_memory(ranges, "DRAM")
    assert re.fullmatch(
        r"NIXL_ERR_BACKEND: region 41 of 80, DRAM device 0, 0x1000, 1\.2 GiB: address is not mapped from 0x1000 on; "
        r"\S.* \[register\.unmapped\]",
        str(raised.value),
    )
    error = raised.value
    assert error.code == "register.unmapped" and error.region.index == 41 and error.cause and error.remedy
    assert len(side.agent.agent._agent.regions()) == 1


def test_gpu_memory_without_a_driver_is_a_backend_error_with_the_cause(pair):
    side = pair[0]
    with pytest.raises(bindings.nixlBackendError) as raised:
        side.agent.register_memory([(0x7F0000000000, 1 << 20, 3, "")], "VRAM")
    text = str(raised.value)
    assert text.startswith("NIXL_ERR_BACKEND: region 0 of 1, VRAM device 3, 0x7f0000000000, 1 MiB: ")
    assert "libcuda.so.1" in text and text.endswith("[register.vram_no_driver]")


def test_what_is_not_built_says_so(pair):
    side = pair[0]
    calls = [
        lambda: side.agent.register_memory([(0, 64, 0, "key")], "OBJ"),
        lambda: side.agent.register_memory([(0, 64, 0, "")], "BLOCK"),
        lambda: side.agent.register_memory([(0, 64, 0, "/tmp/x")], "FILE"),
        lambda: side.agent.prep_mem_view(side.xfer(0, 64)),
        lambda: side.agent.release_mem_view(5),
    ]
    for call in calls:
        with pytest.raises(bindings.nixlNotSupportedError):
            call()


def test_files_are_queried(pair, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(1234))
    agent = pair[0].agent
    paths = [(0, 0, 0, str(file)), (0, 0, 0, str(tmp_path / "none")), (0, 0, 0, "")]
    with pytest.raises(ValueError, match="POSIX"):
        agent.query_memory(paths, "POSIX", "FILE")
    agent.create_backend("POSIX")
    found = agent.query_memory(paths, "POSIX", "FILE")
    assert found[0]["size"] == "1234" and found[0]["mode"] == str(file.stat().st_mode) and found[1:] == [None, None]


class Tensor:
    """A torch tensor by its methods."""

    def __init__(self, fill, device="cpu", contiguous=True):
        self.memory, self._contiguous = numpy.full(1024, fill, numpy.float32), contiguous
        self.device = type("Device", (), {"type": device, "index": None, "__str__": lambda self: device})()

    data_ptr = lambda self: self.memory.ctypes.data
    element_size = lambda self: 4
    numel = lambda self: 1024
    is_contiguous = lambda self: self._contiguous


def test_tensors_are_descriptors(pair):
    near, far = pair
    one, two = Tensor(1.0), Tensor(0.0)
    assert near.agent.register_memory([one]) and far.agent.register_memory(two)
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    handle = near.agent.initialize_xfer(
        "WRITE", near.agent.get_xfer_descs([one]), near.agent.get_xfer_descs(two), "far"
    )
    near.agent.transfer(handle)
    assert finish(near.agent, handle) == "DONE" and (two.memory == 1.0).all()
    assert near.agent.get_xfer_descs([one, Tensor(0, "cuda")]) is None
    assert near.agent.get_xfer_descs(Tensor(0, contiguous=False)) is None


def test_lists_travel(pair):
    near, far = pair
    descs = far.agent.get_xfer_descs(numpy.array([[far.address + i * 64, 64, 0] for i in range(1000)], numpy.uint64), "DRAM")
    packed = far.agent.get_serialized_descs(descs)
    assert len(packed) < 24 * 1000 + 200
    assert near.agent.deserialize_descs(packed) == descs
    reg = far.agent.get_reg_descs([(1, 2, 3, "a"), (4, 5, 6, b"\xff\0")], "FILE")
    copy = pickle.loads(pickle.dumps(reg))
    assert copy == reg and copy[1] == (4, 5, 6, b"\xff\0") and copy.getType() == bindings.FILE_SEG


def test_notifications_of_a_transfer_and_bare_ones_keep_their_order(pair):
    near, far = pair
    for number in range(20):
        if number % 3:
            near.agent.send_notif("far", b"%d" % number, "UCX")
        else:
            handle = near.agent.initialize_xfer("WRITE", near.xfer(0, 64), far.xfer(0, 64), "far", b"%d" % number)
            near.agent.transfer(handle)
            finish(near.agent, handle)
    assert until(lambda: len(far.agent.update_notifs().get("near", [])) == 20)
    assert far.agent.notifs["near"] == [b"%d" % number for number in range(20)]
    assert far.agent.check_remote_xfer_done("near", b"19")
    assert not far.agent.check_remote_xfer_done("near", b"19")
    # An empty one is found once, too.
    near.agent.send_notif("far", b"")
    assert until(lambda: far.agent.check_remote_xfer_done("near", b"")) and len(far.agent.notifs["near"]) in (18, 19)


@pytest.mark.parametrize("switch", ["config", "variable", "off"])
def test_telemetry_is_what_was_asked_for(switch, monkeypatch):
    from nixl._api import nixl_agent_config

    if switch == "variable":
        monkeypatch.setenv("NIXL_TELEMETRY_ENABLE", "y")
    side = Side("measured", nixl_agent_config(capture_telemetry=switch == "config"))
    handle = side.agent.initialize_xfer("WRITE", side.xfer(0, 4096), side.xfer(8192, 4096), "measured")
    if switch == "off":
        with pytest.raises(bindings.nixlNoTelemetryError):
            side.agent.get_xfer_telemetry(handle)
        return
    with pytest.raises(bindings.nixlNotPostedError):
        side.agent.get_xfer_telemetry(handle)
    side.agent.transfer(handle)
    finish(side.agent, handle)
    measured = side.agent.get_xfer_telemetry(handle)
    assert (measured.totalBytes, measured.descCount) == (4096, 1) and measured.startTime > 0
    assert sum(bytes for _, bytes in side.agent.agent.stats()["paths"].values()) == 4096


def test_partial_metadata_adds_up(pair):
    near, far = Side("part"), pair[1]
    extra = numpy.zeros(4096, numpy.uint8)
    later = far.agent.register_memory([(extra.ctypes.data, 4096, 0, "")], "DRAM")
    near.agent.add_remote_agent(far.agent.get_partial_agent_metadata(far.descs, True))
    first, second = far.xfer(0, 64), near.agent.get_xfer_descs([(extra.ctypes.data, 64, 0)], "DRAM")
    assert near.agent.check_remote_metadata("far", first)
    assert not near.agent.check_remote_metadata("far", second)
    with pytest.raises(bindings.nixlNotFoundError):
        near.agent.initialize_xfer("WRITE", near.xfer(0, 64), second, "far")
    near.agent.add_remote_agent(far.agent.get_partial_agent_metadata(later))
    assert near.agent.check_remote_metadata("far", first) and near.agent.check_remote_metadata("far", second)


@pytest.mark.parametrize("what", ["transfer", "prepared lists", "notification", "connection"])
def test_a_try_between_regions_and_connection_info_leaves_the_regions(what):
    near, far = Side(f"early {what}"), Side("later")
    agent, block = near.agent, far.xfer(0, 4096)
    agent.add_remote_agent(far.agent.get_partial_agent_metadata(far.descs, False))

    def early():
        if what == "transfer":
            agent.initialize_xfer("WRITE", near.xfer(0, 4096), block, "later")
        elif what == "prepared lists":
            sides = agent.prep_xfer_dlist("", near.xfer(0, 4096)), agent.prep_xfer_dlist("later", block)
            agent.make_prepped_xfer("WRITE", sides[0], [0], sides[1], [0])
        elif what == "notification":
            agent.send_notif("later", b"early")
        else:
            agent.make_connection("later")

    for _ in range(2):
        # Not that the peer is gone: callers would tear down what they have of it.
        with pytest.raises(bindings.nixlNotFoundError, match="no connection information.*connect.unreachable"):
            early()
        assert agent.check_remote_metadata("later", block)
    agent.add_remote_agent(far.agent.get_partial_agent_metadata(far.agent.get_reg_descs([], "DRAM"), True))
    early()
    assert agent.check_remote_metadata("later", block)
    near.pool[:4096] = 7
    handle = agent.initialize_xfer("WRITE", near.xfer(0, 4096), block, "later")
    agent.transfer(handle)
    assert finish(agent, handle) == "DONE" and (far.pool[:4096] == 7).all() and not far.pool[4096:].any()


def test_version_0_7_is_served_too(pair):
    """Calls as older engines make them: tuples, the empty name, int lists, a str for a message."""
    near, far = pair
    tuples = lambda side: [(side.address + 4096 * i, 4096, 0) for i in range(8)]
    local = near.agent.prep_xfer_dlist("", near.agent.get_xfer_descs(tuples(near), "cpu"), "DRAM")
    remote = near.agent.prep_xfer_dlist("far", tuples(far), mem_type="cpu")
    near.pool[:] = 4
    handle = near.agent.make_prepped_xfer("WRITE", local, [0, 1, 2], remote, [5, 6, 7], "UUID")
    near.agent.transfer(handle)
    assert finish(near.agent, handle) == "DONE"
    assert far.pool[5 * 4096 : 8 * 4096].all() and not far.pool[: 5 * 4096].any()
    assert until(far.agent.get_new_notifs) == {"near": [b"UUID"]}


def test_torch_is_not_imported():
    assert "torch" not in sys.modules

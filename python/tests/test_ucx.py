"""What UCX_TLS and its relatives ask for, in kvferry's terms."""

import kvferry
import numpy
import pytest
from conftest import Side, finish, run_child
from kvferry_nixl import _ucx

EVERY = {"same_process", "same_host", "tcp", "rdma", "cuda_ipc"}


@pytest.mark.parametrize(
    ("tls", "allowed"),
    [
        ("all", EVERY),
        ("", EVERY),
        ("tcp", {"tcp"}),
        ("tcp,self", {"tcp", "same_process"}),
        ("sm,self", {"same_host", "same_process"}),
        ("tcp,shm,cuda_copy,cuda_ipc", {"tcp", "same_host", "cuda_ipc"}),
        ("cma", {"same_host"}),
        ("posix,tcp", {"same_host", "tcp"}),
        ("rc,cuda_copy", {"rdma"}),
        ("^cuda_ipc", EVERY - {"cuda_ipc"}),
        ("^tcp,sm", EVERY - {"tcp", "same_host"}),
        ("^cma", EVERY),
    ],
)
def test_a_list_of_transports_rules_paths_out(tls, allowed):
    assert EVERY - _ucx.forbidden(tls) == allowed
    forbid = _ucx.wishes({}, {"UCX_TLS": tls}, []).settings.get("forbid", "")
    assert set(filter(None, forbid.split(","))) == EVERY - allowed
    # The engine takes the words.
    assert kvferry.Settings(forbid=forbid).forbid.split(",") is not None


def test_engine_config_stands_above_the_environment():
    wishes = _ucx.wishes({"engine_config": "RCACHE_ENABLE=n,TLS=^cuda_ipc,tcp"}, {"UCX_TLS": "sm"}, [])
    assert wishes.settings["forbid"] == "cuda_ipc,tcp"
    assert any("RCACHE_ENABLE=n" in note for note in wishes.notes)


def test_kvferrys_own_variables_stand_above_and_add():
    assert "forbid" not in _ucx.wishes({}, {"UCX_TLS": "tcp", "KVFERRY_REQUIRE": "same_host"}, []).settings
    assert _ucx.wishes({}, {"UCX_TLS": "^tcp", "KVFERRY_FORBID": "cma"}, []).settings["forbid"] == "cma,tcp"


def test_network_interfaces_are_taken_over_and_the_rest_is_said():
    wishes = _ucx.wishes({}, {"UCX_NET_DEVICES": "eth0,mlx5_0:1"}, ["lo", "eth0"])
    assert wishes.settings == {"net_devices": "eth0"}
    assert any("mlx5_0:1" in note for note in wishes.notes)
    assert _ucx.wishes({}, {"UCX_NET_DEVICES": "all"}, ["eth0"]).settings == {}
    assert _ucx.wishes({}, {"UCX_NET_DEVICES": "eth0", "KVFERRY_NET_DEVICES": "lo"}, ["eth0"]).settings == {}


def test_other_variables_and_parameters_get_one_line():
    environment = {"UCX_RCACHE_MAX_UNRELEASED": "1024", "UCX_LOG_LEVEL": "info"}
    wishes = _ucx.wishes({"num_threads": "4", "strange": "x"}, environment, [])
    assert wishes.settings == {} and len(wishes.notes) == 2
    assert _ucx.wishes({}, {"UCX_TLS": "nonsense,tcp"}, []).notes[0].endswith("nonsense")


@pytest.mark.parametrize(
    ("tls", "path"), [("tcp", "tcp"), ("sm", "same_host"), ("all", "same_host"), ("^sm", "tcp"), ("self,tcp", "tcp")]
)
def test_bytes_take_the_path_that_is_allowed(tls, path):
    """Between two processes."""
    target = """
        import sys, base64, numpy
        from nixl._api import nixl_agent
        a = nixl_agent("target")
        pool = numpy.zeros(1 << 16, numpy.uint8)
        a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        print(base64.b64encode(a.get_agent_metadata()).decode(), pool.ctypes.data, flush=True)
        sys.stdin.read()
        assert (pool == 7).all()
        """
    initiator = """
        import sys, base64, numpy, time
        from nixl._api import nixl_agent
        a = nixl_agent("initiator")
        pool = numpy.full(1 << 16, 7, numpy.uint8)
        a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        a.add_remote_agent(base64.b64decode(sys.argv[1]))
        d = lambda at: a.get_xfer_descs([(at, pool.nbytes, 0)], "DRAM")
        h = a.initialize_xfer("WRITE", d(pool.ctypes.data), d(int(sys.argv[2])), "target")
        a.transfer(h)
        while a.check_xfer_state(h) == "PROC":
            time.sleep(0.001)
        print(a.agent._transfer(h._handle).transfer.telemetry()["path"])
        """
    from conftest import start_child

    env = {"UCX_TLS": tls, "NIXL_LOG_LEVEL": "ERROR", "KVFERRY_ADDRESS": "127.0.0.1"}
    child = start_child(target, env=env)
    blob, address = child.stdout.readline().split()
    assert run_child(initiator, blob, address, env=env).strip() == path
    child.communicate("", timeout=30)
    assert child.returncode == 0


def test_a_backends_parameters_reach_the_agent():
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("configured", nixl_agent_config(backends=[]))
    agent.create_backend("UCX", {"num_threads": "4", "engine_config": "RCACHE_ENABLE=n,TLS=^cuda_ipc"})
    assert agent.agent._agent.settings.forbid == "cuda_ipc"
    assert agent.get_backend_params("UCX")["num_threads"] == "4"


def test_a_bad_setting_of_kvferrys_own_is_an_error_that_names_it():
    run_child(
        """
        from nixl import nixl_agent, nixlInvalidParamError
        try:
            nixl_agent("a")
        except nixlInvalidParamError as error:
            assert "KVFERRY_THREADS=many" in str(error), error
        else:
            raise SystemExit(3)
        """,
        env={"KVFERRY_THREADS": "many"},
    )

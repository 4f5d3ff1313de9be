"""Metadata over the listener and over etcd."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest
from conftest import Side, run_child, start_child, until
from kvferry_nixl import _exchange
from kvferry_nixl._errors import nixlInvalidParamError, nixlNotSupportedError
from ports import free_port


@pytest.fixture
def listener():
    from nixl._api import nixl_agent_config

    side = Side("listener", nixl_agent_config(enable_listen_thread=True, listen_port=0))
    yield side
    side.agent.agent.close()


def test_fetch_send_and_invalidate(listener):
    other, port = Side("other"), listener.agent.agent._exchange.port
    other.agent.fetch_remote_metadata("listener", "127.0.0.1", port)
    assert until(lambda: other.agent.check_remote_metadata("listener", listener.xfer(0, 4096)))
    other.agent.send_local_metadata("127.0.0.1", port)
    assert until(lambda: listener.agent.check_remote_metadata("other", other.xfer(0, 4096)))
    other.agent.invalidate_local_metadata("127.0.0.1", port)
    assert until(lambda: not listener.agent.check_remote_metadata("other"))


def test_partial_metadata_adds_up(listener):
    other, port = Side("other"), listener.agent.agent._exchange.port
    other.agent.send_partial_agent_metadata(other.agent.get_reg_descs([], "DRAM"), True, [], "127.0.0.1", port)
    assert until(lambda: listener.agent.check_remote_metadata("other"))
    assert not listener.agent.check_remote_metadata("other", other.xfer(0, 64))
    other.agent.send_partial_agent_metadata(other.descs, False, [], "127.0.0.1", port)
    assert until(lambda: listener.agent.check_remote_metadata("other", other.xfer(0, 64)))


def test_the_line_with_the_port_can_be_read():
    out = run_child(
        """
        from nixl._api import nixl_agent, nixl_agent_config
        a = nixl_agent("a", nixl_agent_config(enable_listen_thread=True, listen_port=0))
        print("port", a.agent._exchange.port)
        """,
        env={"NIXL_LOG_LEVEL": "INFO"},
    )
    port = out.rsplit("port ", 1)[1].strip()
    assert f"MD listener is listening on port {port}\n" in out
    assert out.count("has no token") == 1


def test_without_a_token_only_the_loopback_device_is_listened_on(listener):
    assert listener.agent.agent._exchange._listener.getsockname()[0] == "127.0.0.1"


def test_tokens_must_agree(monkeypatch):
    from nixl._api import nixl_agent_config

    monkeypatch.setenv("KVFERRY_TOKEN", "one")
    side = Side("with-token", nixl_agent_config(enable_listen_thread=True, listen_port=0))
    exchange = side.agent.agent._exchange
    assert exchange._listener.getsockname()[0] == "0.0.0.0"
    good = side.agent.get_agent_metadata()
    assert _exchange.ask("127.0.0.1", exchange.port, b"one", b"G") == good
    for token in (b"two", b""):
        with pytest.raises(_exchange.Refused, match="KVFERRY_TOKEN"):
            _exchange.ask("127.0.0.1", exchange.port, token, b"G")
    side.agent.agent.close()


@pytest.mark.parametrize("junk", [b"", b"NIXLCOMM:SEND", bytes(range(200)), b"KFX1" + bytes(64), b"\xff" * 5000], ids=lambda junk: f"{len(junk)} bytes")
def test_junk_is_refused_and_the_next_one_served(listener, junk):
    port = listener.agent.agent._exchange.port
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(10)
        try:
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        except OSError:
            # Refused before all of it was read.
            pass
    assert _exchange.ask("127.0.0.1", port, b"", b"G") == listener.agent.get_agent_metadata()
    with pytest.raises(ConnectionError):
        _exchange.ask("127.0.0.1", port, b"", b"Lnonsense")


def test_a_peer_that_does_not_answer_holds_up_no_other(listener):
    dead = socket.create_server(("127.0.0.1", 0))
    other = Side("other")
    other.agent.fetch_remote_metadata("silent", "127.0.0.1", dead.getsockname()[1])
    other.agent.send_local_metadata("127.0.0.1", dead.getsockname()[1])
    begun = time.monotonic()
    other.agent.fetch_remote_metadata("listener", "127.0.0.1", listener.agent.agent._exchange.port)
    assert until(lambda: other.agent.check_remote_metadata("listener"))
    assert time.monotonic() - begun < _exchange.TIMEOUT
    dead.close()


def test_without_a_place_it_is_an_error(pair, monkeypatch):
    agent = pair[0].agent
    for call in (agent.send_local_metadata, agent.invalidate_local_metadata, lambda: agent.fetch_remote_metadata("x")):
        with pytest.raises(nixlInvalidParamError, match="NIXL_ETCD_ENDPOINTS"):
            call()
    monkeypatch.setenv("NIXL_TCPSTORE_ENDPOINT", "127.0.0.1:1")
    with pytest.raises(nixlNotSupportedError, match="TCPSTORE"):
        agent.send_local_metadata()


# etcd.


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    program = _etcd_program()
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    data = tmp_path_factory.mktemp("etcd")
    server = subprocess.Popen(
        [program, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client]
        + ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        + ["--initial-cluster", f"default={peer}", "--log-level", "error", "--unsafe-no-fsync"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        from kvferry_nixl._etcd import Etcd

        def up():
            try:
                Etcd(client, "/up")._call("kv/range", {"key": "dXA="})
            except OSError:
                return False
            return True

        assert until(up, 30), "etcd does not come up"
        yield client
    finally:
        server.kill()
        server.wait()


def _etcd_program():
    """etcd of the system, or Debian's package unpacked under target/."""
    found = shutil.which("etcd")
    if found:
        return found
    target = os.environ.get("KVFERRY_TEST_TARGET")
    if not target:
        pytest.skip("etcd is not installed, and KVFERRY_TEST_TARGET names no folder to unpack it in")
    folder = pathlib.Path(target) / "etcd"
    program = folder / "usr/bin/etcd"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(
            ["apt-get", "download", "etcd-server"], cwd=folder, capture_output=True, text=True, check=False
        )
        packages = sorted(folder.glob("etcd-server_*.deb"))
        if fetched.returncode != 0 or not packages:
            pytest.skip(f"etcd-server can't be fetched: {fetched.stderr.strip().splitlines()[-1:] or 'no package'}")
        subprocess.run(["dpkg-deb", "-x", packages[-1], folder], check=True)
    return str(program)


def test_etcd_stores_and_fetches(etcd, monkeypatch):
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", etcd)
    monkeypatch.setenv("NIXL_ETCD_NAMESPACE", "/test/agents")
    one, two = Side("etcd-one"), Side("etcd-two")
    # Asked for before it is there.
    two.agent.fetch_remote_metadata("etcd-one")
    one.agent.send_local_metadata()
    assert until(lambda: two.agent.check_remote_metadata("etcd-one", one.xfer(0, 64)))
    two.agent.remove_remote_agent("etcd-one")
    one.agent.send_partial_agent_metadata(one.descs, True, label="some")
    two.agent.fetch_remote_metadata("etcd-one", label="some")
    assert until(lambda: two.agent.check_remote_metadata("etcd-one", one.xfer(0, 64)))
    one.agent.invalidate_local_metadata()
    assert until(lambda: _keys(etcd, "/test/agents/etcd-one/") == 0)
    one.agent.send_local_metadata()
    assert until(lambda: _keys(etcd, "/test/agents/etcd-one/") == 1)
    one.agent.agent.close()
    assert until(lambda: _keys(etcd, "/test/agents/etcd-one/") == 0)


def test_the_keys_of_a_dead_agent_go(etcd):
    child = start_child(
        """
        import sys
        from nixl._api import nixl_agent
        a = nixl_agent("mortal")
        a.send_local_metadata()
        print("sent", flush=True)
        sys.stdin.read()
        """,
        env={"NIXL_ETCD_ENDPOINTS": etcd},
    )
    assert child.stdout.readline() == "sent\n"
    assert until(lambda: _keys(etcd, "/nixl/agents/mortal/") == 1)
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert until(lambda: _keys(etcd, "/nixl/agents/mortal/") == 0, 25)


def _keys(etcd, prefix):
    from kvferry_nixl._etcd import Etcd, _text

    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    found = Etcd(etcd, "")._call("kv/range", {"key": _text(prefix.encode()), "range_end": _text(after.encode())})
    return int(found.get("count", 0))

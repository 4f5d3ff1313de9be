"""No call kills the interpreter. Where it could, it runs in a child, whose code must be 0."""

import ctypes
import os
import random
import signal
import sys
import threading
import time

import numpy
import pytest
from conftest import POOL, Side, finish, run_child, start_child, until
from nixl import _bindings as bindings


def test_numbers_that_are_no_handles_are_refused(pair):
    raw = pair[0].agent.agent
    for number in (0, 1, 0x1234, -1, 2**63, 2**64 - 1, 2**70):
        for call in (
            raw.getXferStatus,
            raw.postXferReq,
            raw.releaseXferReq,
            raw.getXferTelemetry if raw._telemetry else raw.estimateXferCost,
            raw.queryXferBackend,
            raw.releasedDlistH,
            raw.getBackendParams,
        ):
            with pytest.raises(bindings.nixlInvalidParamError):
                call(number)
        with pytest.raises(bindings.nixlInvalidParamError):
            raw.makeXferReq(bindings.NIXL_WRITE, number, [0], number, [0])


def test_a_handle_of_another_agent_is_no_handle(pair):
    near, far = pair
    handle = near.agent.initialize_xfer("WRITE", near.xfer(0, 64), far.xfer(0, 64), "far")
    with pytest.raises(bindings.nixlInvalidParamError):
        far.agent.agent.postXferReq(handle._handle)


def test_released_handles_stay_released(pair):
    near, far = pair
    agent = near.agent
    handle = agent.initialize_xfer("WRITE", near.xfer(0, 64), far.xfer(0, 64), "far")
    agent.transfer(handle)
    finish(agent, handle)
    number = handle._handle
    for _ in range(3):
        agent.release_xfer_handle(handle)
    with pytest.raises(bindings.nixlInvalidParamError):
        agent.transfer(handle)
    with pytest.raises(bindings.nixlInvalidParamError):
        agent.check_xfer_state(handle)
    with pytest.raises(bindings.nixlInvalidParamError):
        agent.agent.releaseXferReq(number)
    listed = agent.prep_xfer_dlist("", near.xfer(0, 64))
    for _ in range(3):
        agent.release_dlist_handle(listed)
    with pytest.raises(bindings.nixlInvalidParamError):
        agent.make_prepped_xfer("WRITE", listed, [0], listed, [0])


def test_indices_past_the_end_are_index_errors(pair):
    descs = pair[0].xfer(0, 64)
    for index in (1, 10**6, 2**63, 2**80):
        with pytest.raises(IndexError):
            descs[index]
        with pytest.raises(IndexError):
            descs[index] = (1, 2, 3)
        with pytest.raises(IndexError):
            descs.remDesc(index)
    assert list(descs) == [descs[0]]


def mutate(blob, rng):
    """Another version of some bytes: bits flipped, bytes cut out, doubled, cut off or added."""
    data = bytearray(blob)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place : place + rng.randint(1, 16)]
        elif kind == 2:
            data[place:place] = rng.randbytes(rng.randint(1, 16))
        elif kind == 3:
            data[place:place] = data[place : place + 32]
        elif kind == 4:
            del data[place:]
        elif place < len(data):
            data[place] = rng.choice((0, 0x7F, 0x80, 0xFF))
    return bytes(data)


def test_ten_thousand_mutated_blobs_are_refused_and_the_good_one_loads():
    near, far = Side("near-fuzz"), Side("far-fuzz")
    good, rng, refused = far.agent.get_agent_metadata(), random.Random(7), 0
    for _ in range(10_000):
        blob = mutate(good, rng)
        if blob == good:
            continue
        with pytest.raises((bindings.nixlMismatchError, bindings.nixlInvalidParamError, bindings.nixlNotAllowedError)):
            near.agent.add_remote_agent(blob)
        refused += 1
    assert refused > 9_900
    assert near.agent.add_remote_agent(good) == b"far-fuzz"
    handle = near.agent.initialize_xfer("WRITE", near.xfer(0, 4096), far.xfer(0, 4096), "far-fuzz")
    near.pool[:4096] = 5
    near.agent.transfer(handle)
    assert finish(near.agent, handle) == "DONE" and (far.pool[:4096] == 5).all()


def test_mutated_lists_are_refused_or_are_lists(pair):
    descs = pair[0].agent.get_reg_descs([(i, 64, 0, f"m{i}") for i in range(8)], "DRAM")
    good, rng = pair[0].agent.get_serialized_descs(descs), random.Random(8)
    for _ in range(10_000):
        try:
            loaded = pair[0].agent.deserialize_descs(mutate(good, rng))
        except Exception:
            continue
        if isinstance(loaded, bindings.nixlRegDList) and hasattr(loaded, "_type"):
            assert all(len(loaded[i]) == 4 for i in range(loaded.descCount()))
    assert pair[0].agent.deserialize_descs(good) == descs


def test_bytes_that_would_run_code_are_refused(pair):
    import pickle

    class Trap:
        def __reduce__(self):
            return os.system, ("exit 1",)

    with pytest.raises(pickle.UnpicklingError, match="system"):
        pair[0].agent.deserialize_descs(pickle.dumps(Trap()))


def test_handles_outlive_their_agent():
    run_child(
        """
        import gc, numpy
        from nixl._api import nixl_agent
        from nixl import _bindings
        pool = numpy.zeros(1 << 24, numpy.uint8)
        a = nixl_agent("a")
        kept = a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        descs = lambda at: a.get_xfer_descs([(pool.ctypes.data + at, 1 << 23, 0)], "DRAM")
        handle = a.initialize_xfer("WRITE", descs(0), descs(1 << 23), "a")
        listed = a.prep_xfer_dlist("", descs(0))
        a.transfer(handle)
        raw = a.agent
        raw.close()
        for call in (lambda: a.transfer(handle), lambda: a.get_agent_metadata()):
            try:
                call()
            except (_bindings.nixlInvalidParamError, _bindings.nixlNotFoundError) as error:
                print(type(error).__name__)
        del a, raw
        gc.collect()
        repr(handle), repr(listed)
        del handle, listed, kept, pool
        gc.collect()
        """
    )


def test_an_agent_goes_with_its_last_reference():
    code = """
        import gc, os, numpy
        from nixl._api import nixl_agent, nixl_agent_config
        def threads(): return len(os.listdir("/proc/self/task"))
        before = threads()
        pool = numpy.zeros(1 << 20, numpy.uint8)
        for i in range(5):
            a = nixl_agent(f"a{i}", nixl_agent_config(enable_listen_thread=True, listen_port=0))
            a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
            del a
            gc.collect()
        import time
        end = time.monotonic() + 5
        # The thread that takes the log lines stays.
        while threads() > before + 1 and time.monotonic() < end:
            time.sleep(0.01)
        print(threads() - before)
    """
    assert int(run_child(code)) <= 1


def test_eight_threads_on_one_agent():
    """Everything at once, for as long as KVFERRY_TEST_SECONDS says."""
    seconds = float(os.environ.get("KVFERRY_TEST_SECONDS", "30"))
    out = run_child(
        """
        import random, sys, threading, time, numpy
        from nixl._api import nixl_agent, nixl_agent_config
        from nixl import _bindings
        a, b = nixl_agent("a", nixl_agent_config(capture_telemetry=True)), nixl_agent("b")
        size, block = 1 << 20, 4096
        blob = None
        x, y = numpy.zeros(8 * size, numpy.uint8), numpy.zeros(8 * size, numpy.uint8)
        a.register_memory([(x.ctypes.data, x.nbytes, 0, "")], "DRAM")
        b.register_memory([(y.ctypes.data, y.nbytes, 0, "")], "DRAM")
        blob = b.get_agent_metadata()
        a.add_remote_agent(blob)
        end, done, wrong, unexpected = time.monotonic() + float(sys.argv[1]), [0] * 8, [], []
        def work(me):
            rng, at = random.Random(me), me * size
            count = size // block
            rows = lambda base: numpy.array([[base + at, block, 0, block, count]], numpy.uint64)
            try:
                while time.monotonic() < end:
                    near = a.prep_xfer_dlist("", rows(x.ctypes.data), "DRAM")
                    far = a.prep_xfer_dlist("b", rows(y.ctypes.data), "DRAM")
                    chosen = numpy.array(rng.sample(range(count), 64), numpy.int32)
                    mark = rng.randrange(1, 256)
                    mine = x[at:at + size].reshape(count, block)
                    mine[chosen] = mark
                    handle = a.make_prepped_xfer("WRITE", near, chosen, far, chosen, b"%d" % me)
                    a.transfer(handle)
                    if rng.random() < 0.3:
                        a.add_remote_agent(blob)
                    if rng.random() < 0.2:
                        try:
                            a.release_xfer_handle(handle)
                        except _bindings.nixlRepostActiveError:
                            pass
                        else:
                            continue
                    try:
                        while a.check_xfer_state(handle) == "PROC":
                            time.sleep(0)
                    except _bindings.nixlCancelledError:
                        continue
                    if not (y[at:at + size].reshape(count, block)[chosen] == mark).all():
                        wrong.append(me)
                    a.get_xfer_telemetry(handle)
                    a.release_xfer_handle(handle)
                    b.get_new_notifs()
                    done[me] += 1
            except BaseException as error:
                unexpected.append(repr(error))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong and not unexpected, (wrong, unexpected[:3])
        assert all(done), done
        print(sum(done))
        """,
        seconds,
        timeout=seconds + 60,
    )
    print(f"{out.strip()} transfers in {seconds:g} s")


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on():
    out = run_child(
        """
        import os, sys, numpy
        from nixl._api import nixl_agent
        from nixl import _bindings
        a, b = nixl_agent("a"), nixl_agent("b")
        x, y = numpy.zeros(1 << 20, numpy.uint8), numpy.zeros(1 << 20, numpy.uint8)
        a.register_memory([(x.ctypes.data, x.nbytes, 0, "")], "DRAM")
        b.register_memory([(y.ctypes.data, y.nbytes, 0, "")], "DRAM")
        a.add_remote_agent(b.get_agent_metadata())
        descs = lambda z: a.get_xfer_descs([(z.ctypes.data, z.nbytes, 0)], "DRAM")
        handle = a.initialize_xfer("WRITE", descs(x), descs(y), "b")
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            said = []
            for call in (lambda: a.transfer(handle), lambda: a.register_memory([(x.ctypes.data, 64, 0, "")], "DRAM"),
                         lambda: a.send_notif("b", b"x"), lambda: a.prep_xfer_dlist("", descs(x)),
                         lambda: a.initialize_xfer("WRITE", descs(x), descs(y), "b")):
                try:
                    call()
                    said.append("no error")
                except _bindings.nixlNotAllowedError as error:
                    said.append("agent.forked" if "agent.forked" in str(error) else str(error))
            fresh = nixl_agent("fresh")
            fresh.register_memory([(x.ctypes.data, x.nbytes, 0, "")], "DRAM")
            print(sorted(set(said)), flush=True)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        x[:] = 9
        a.transfer(handle)
        while a.check_xfer_state(handle) == "PROC":
            pass
        print(bool((y == 9).all()))
        """
    )
    assert out.split("\n")[:3] == ["['agent.forked']", "0", "True"]


@pytest.mark.parametrize("how", ["end", "sys.exit", "daemon thread waits", "exception at exit"])
def test_the_process_ends_well_while_a_transfer_runs(how):
    run_child(
        """
        import atexit, sys, threading, time, numpy, kvferry
        size = 256 << 20
        a, b = kvferry.Agent("a"), kvferry.Agent("b")
        x, y = numpy.ones(size, numpy.uint8), numpy.ones(size, numpy.uint8)
        held = a.register(x), b.register(y)
        a.load_remote(b.metadata())
        t = a.write(a.prepare_local(x), a.prepare_remote("b", y), notify="x")
        t.post()
        if sys.argv[1] == "daemon thread waits":
            threading.Thread(target=lambda: (t.wait(), a.events().next(None)), daemon=True).start()
            time.sleep(0.01)
        elif sys.argv[1] == "sys.exit":
            sys.exit(0)
        elif sys.argv[1] == "exception at exit":
            atexit.register(lambda: t.status)
        """,
        how,
    )


def test_a_killed_peer_is_a_disconnect_and_comes_back():
    target = """
        import sys, numpy, base64
        from nixl._api import nixl_agent
        a = nixl_agent("target")
        pool = numpy.zeros(1 << 20, numpy.uint8)
        a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        print(base64.b64encode(a.get_agent_metadata()).decode(), pool.ctypes.data, flush=True)
        sys.stdin.read()
        """
    import base64

    near, address = Side("survivor"), 0
    for life in range(3):
        child = start_child(target)
        try:
            blob, address = child.stdout.readline().split()
            # No remove_remote_agent in between.
            assert near.agent.add_remote_agent(base64.b64decode(blob)) == b"target"
            far = near.agent.get_xfer_descs([(int(address), 4096, 0)], "DRAM")
            handle = near.agent.initialize_xfer("WRITE", near.xfer(0, 4096), far, "target")
            near.agent.transfer(handle)
            assert finish(near.agent, handle) == "DONE"
            assert near.agent.check_remote_metadata("target")
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
        assert until(lambda: not near.agent.check_remote_metadata("target")), f"life {life}"
        with pytest.raises(bindings.nixlRemoteDisconnectError):
            near.agent.transfer(handle)


def test_a_transfer_that_runs_when_the_peer_dies_is_a_disconnect():
    target = """
        import sys, numpy, base64
        from nixl._api import nixl_agent
        a = nixl_agent("victim")
        pool = numpy.zeros(256 << 20, numpy.uint8)
        a.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        print(base64.b64encode(a.get_agent_metadata()).decode(), pool.ctypes.data, flush=True)
        sys.stdin.read()
        """
    import base64

    from nixl._api import nixl_agent

    child, agent = start_child(target), nixl_agent("initiator")
    pool = numpy.ones(256 << 20, numpy.uint8)
    agent.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
    blob, address = child.stdout.readline().split()
    agent.add_remote_agent(base64.b64decode(blob))
    descs = lambda at: agent.get_xfer_descs([(int(at), pool.nbytes, 0)], "DRAM")
    handle = agent.initialize_xfer("WRITE", descs(pool.ctypes.data), descs(address), "victim")
    agent.transfer(handle)
    child.kill()
    with pytest.raises(bindings.nixlRemoteDisconnectError):
        # It may have been over before.
        if finish(agent, handle) == "DONE":
            until(lambda: not agent.check_remote_metadata("victim"))
            agent.transfer(handle)
    assert until(lambda: not agent.check_remote_metadata("victim"))
    # The death is told at once; a copy that was inside of the kernel then comes back a little later.
    assert until(lambda: _released(agent, handle))
    child.wait()
    child.stdin.close()
    child.stdout.close()


def test_a_mere_error_leaves_the_metadata(pair):
    near, far = pair
    with pytest.raises(bindings.nixlInvalidParamError):
        near.agent.initialize_xfer("WRITE", near.xfer(0, 64), far.xfer(0, 128), "far")
    gone = numpy.zeros(POOL, numpy.uint8)
    descs = far.agent.register_memory([(gone.ctypes.data, POOL, 0, "")], "DRAM")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    remote = near.agent.get_xfer_descs([(gone.ctypes.data, 4096, 0)], "DRAM")
    handle = near.agent.initialize_xfer("WRITE", near.xfer(0, 4096), remote, "far")
    far.agent.deregister_memory(descs)

    def fails():
        near.agent.transfer(handle)
        finish(near.agent, handle)

    with pytest.raises(bindings.nixlBackendError, match="region.revoked|deregistered"):
        fails()
    assert near.agent.check_remote_metadata("far")


def test_releasing_a_running_transfer_returns_or_keeps_the_handle():
    near, far = Side("near-release"), Side("far-release")
    size = 128 << 20
    x, y = numpy.ones(size, numpy.uint8), numpy.zeros(size, numpy.uint8)
    near.agent.register_memory([(x.ctypes.data, size, 0, "")], "DRAM")
    far.agent.register_memory([(y.ctypes.data, size, 0, "")], "DRAM")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    rows = lambda z: numpy.array([[z.ctypes.data, 4096, 0]], numpy.uint64) + numpy.arange(size // 4096, dtype=numpy.uint64)[
        :, None
    ] * numpy.array([[4096, 0, 0]], numpy.uint64)
    descs = lambda z: near.agent.get_xfer_descs(numpy.ascontiguousarray(rows(z)), "DRAM")
    for _ in range(5):
        handle = near.agent.initialize_xfer("WRITE", descs(x), descs(y), "far-release")
        y[:] = 0
        near.agent.transfer(handle)
        begun = time.monotonic()
        try:
            near.agent.release_xfer_handle(handle)
        except bindings.nixlRepostActiveError:
            took = time.monotonic() - begun
            assert not handle._released
            assert until(lambda: _released(near.agent, handle))
        else:
            took = time.monotonic() - begun
        # It waits for at most 20 ms; the rest is what the machine takes.
        assert took < 0.5
        # Quiet: nothing is written any more.
        before = y.copy()
        time.sleep(0.01)
        assert (y == before).all()


def test_a_peer_that_hangs_holds_a_released_transfer_only_for_a_time(monkeypatch):
    """vLLM keeps a handle whose release raises, and tries again with each step: for ever, if it never returns."""
    monkeypatch.setenv("KVFERRY_FORBID", "same_host")
    monkeypatch.setenv("KVFERRY_CANCEL_TIMEOUT", "300ms")
    # Silence must not end it: the peer does not answer, but counts as alive.
    monkeypatch.setenv("KVFERRY_PEER_TIMEOUT", "60s")
    size = 64 << 20
    child = start_child(
        """
        import sys, numpy
        from nixl._api import nixl_agent
        agent, pool = nixl_agent("far-hung"), numpy.zeros(int(sys.argv[1]), numpy.uint8)
        agent.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
        print(agent.get_agent_metadata().hex(), pool.ctypes.data, flush=True)
        sys.stdin.readline()
        """,
        size,
    )
    try:
        blob, address = child.stdout.readline().split()
        near = Side("near-hung")
        near.agent.add_remote_agent(bytes.fromhex(blob))
        pool = numpy.ones(size, numpy.uint8)
        descs = near.agent.register_memory([(pool.ctypes.data, size, 0, "")], "DRAM")

        def write(length):
            local = near.agent.get_xfer_descs([(pool.ctypes.data, length, 0)], "DRAM")
            remote = near.agent.get_xfer_descs([(int(address), length, 0)], "DRAM")
            handle = near.agent.initialize_xfer("WRITE", local, remote, "far-hung")
            near.agent.transfer(handle)
            return handle

        assert finish(near.agent, write(4096)) == "DONE"
        os.kill(child.pid, signal.SIGSTOP)
        handle = write(size)
        # Until a part of it is under way: what never left is given up at once.
        time.sleep(0.3)
        begun = time.monotonic()
        with pytest.raises(bindings.nixlRepostActiveError):
            near.agent.release_xfer_handle(handle)
        assert until(lambda: _released(near.agent, handle))
        # 300 ms from the first refusal, which came after 20.
        assert time.monotonic() - begun >= 0.3
        assert handle._handle not in near.agent.agent._transfers
        near.agent.deregister_memory(descs)
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.communicate("\n", timeout=30)
    assert child.returncode == 0


def _released(agent, handle):
    try:
        agent.release_xfer_handle(handle)
    except bindings.nixlRepostActiveError:
        return False
    return True


def test_another_thread_runs_while_a_call_waits_or_copies():
    """Counts in a second thread during each call; with the lock held it would stand still."""
    import kvferry

    size = 256 << 20
    a, b = kvferry.Agent("gil-a"), kvferry.Agent("gil-b")
    x, y = numpy.ones(size, numpy.uint8), numpy.zeros(size, numpy.uint8)
    held = a.register(x), b.register(y)
    a.load_remote(b.metadata())
    count, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            count[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:

        def ticks(call):
            before, begun = count[0], time.perf_counter()
            result = call()
            took = time.perf_counter() - begun
            return result, count[0] - before, took

        _, base, base_took = ticks(lambda: time.sleep(0.05))
        rate = base / base_took
        blocks = numpy.empty((2_000_000, 3), numpy.uint64)
        blocks[:, 0] = x.ctypes.data + numpy.arange(2_000_000) * 64
        blocks[:, 1], blocks[:, 2] = 64, 0
        near, counted, took = ticks(lambda: a.prepare_local(blocks))
        assert counted > 0.1 * rate * took, f"list building: {counted} ticks in {took:.3f} s, free rate {rate:.0f}/s"
        whole = a.write(a.prepare_local(x), a.prepare_remote("gil-b", y))
        whole.post()
        _, counted, took = ticks(lambda: whole.wait(30))
        assert counted > 0.1 * rate * took, f"waiting: {counted} ticks in {took:.3f} s, free rate {rate:.0f}/s"
    finally:
        stop.set()
        ticker.join()
        a.close()
        b.close()
    del held


def test_another_thread_runs_while_a_post_copies(monkeypatch):
    """Posts that copy inline, while the interpreter takes its lock from nobody: a second thread goes on only where a
    call gives the lock up of itself. The same copy under the lock shows that it stands still otherwise."""
    size, count, stop = 2 << 20, [0], threading.Event()
    # The largest that the setting takes.
    monkeypatch.setenv("KVFERRY_INLINE_LIMIT", "2MiB")
    near, far = Side("gil-near"), Side("gil-far")
    x, y = numpy.ones(size, numpy.uint8), numpy.zeros(size, numpy.uint8)
    near.agent.register_memory([(x.ctypes.data, size, 0, "")], "DRAM")
    far.agent.register_memory([(y.ctypes.data, size, 0, "")], "DRAM")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    descs = lambda z: near.agent.get_xfer_descs([(z.ctypes.data, size, 0)], "DRAM")
    handle = near.agent.initialize_xfer("WRITE", descs(x), descs(y), "gil-far")
    keeping = ctypes.PyDLL(None).memmove
    keeping.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

    def tick():
        while not stop.is_set():
            count[0] += 1
            time.sleep(0)

    def seen(call, most, enough):
        """In how many of the calls the second thread went on: `most` calls, or until it did in `enough`."""
        moved = 0
        for _ in range(most):
            before = count[0]
            call()
            moved += count[0] != before
            if moved == enough:
                break
        return moved

    def post():
        # Done when it returns: the copy was this thread's.
        assert near.agent.transfer(handle) == "DONE"

    near.agent.transfer(handle)
    finish(near.agent, handle)
    ticker, interval = threading.Thread(target=tick), sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        ticker.start()
        held = seen(lambda: keeping(y.ctypes.data, x.ctypes.data, size), 200, 1)
        y[:] = 0
        # In nearly each, unless other programs want both cores.
        posted = seen(post, 2000, 20)
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        ticker.join()
    assert held == 0, "went on in a copy under the lock: the measurement is void"
    assert posted == 20, f"posting: went on in {posted} of 2000"
    assert (y == 1).all()

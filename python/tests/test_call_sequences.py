"""The calls of clients that can't be run in this suite, in their order and with their habits."""

import base64
import time
import zlib

import numpy
import pytest
from conftest import Side, finish, run_child, until
from nixl import _bindings as bindings

PATHS = pytest.mark.parametrize("path", ["same_process", "tcp"])


def agent_of(name):
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


# TensorRT-LLM in C++: the raw agent, a listener at each end, metadata fetched from the other.


class Raw:
    """An agent made, registered and driven as TensorRT-LLM's C++ agent does it."""

    def __init__(self, name):
        config = bindings.nixlAgentConfig(
            True, True, 0, bindings.NIXL_THREAD_SYNC_DEFAULT, 1, 0, 10000, captureTelemetry=False
        )
        self.name, self.raw = name, bindings.nixlAgent(name, config)
        self.port = self.raw._exchange.port
        # The defaults go back in, with one of them changed.
        parameters, memory = self.raw.getPluginParams("UCX")
        assert "DRAM_SEG" in memory
        self.backend = [self.raw.createBackend("UCX", {**parameters, "num_workers": "2"})]
        self.pool = numpy.zeros(1 << 20, numpy.uint8)
        self.register(self.pool)

    def regions(self, memory):
        descs = bindings.nixlRegDList(bindings.DRAM_SEG)
        descs.addDesc((memory.ctypes.data, memory.nbytes, 0, ""))
        return descs

    def register(self, memory):
        self.raw.registerMem(self.regions(memory), self.backend)
        assert self.raw.getLocalMD()

    def meet(self, other):
        self.raw.fetchRemoteMD(other.name, "127.0.0.1", other.port)
        # No descriptors: whether the agent is known at all.
        nothing = bindings.nixlXferDList(bindings.DRAM_SEG)
        assert until(lambda: self.raw.checkRemoteMD(other.name, nothing) == bindings.NIXL_SUCCESS)

    def blocks(self, memory, ids):
        descs = bindings.nixlXferDList(bindings.DRAM_SEG)
        for i in ids:
            descs.addDesc((memory.ctypes.data + 4096 * i, 4096, 0))
        return descs

    def transfer(self, operation, near, far, name, message=b""):
        handle = self.raw.createXferReq(operation, near, far, name, message, self.backend)
        status = self.raw.postXferReq(handle, message)
        assert until(lambda: self.raw.getXferStatus(handle) == bindings.NIXL_SUCCESS), status
        self.raw.releaseXferReq(handle)


def test_tensorrt_llm_fetches_from_the_listener():
    context, generation = Raw("trt-context"), Raw("trt-generation")
    # Both ends at once, and again after more memory was registered.
    context.meet(generation)
    generation.meet(context)
    context.pool[:] = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 4096)
    ids, places = [3, 4, 5, 200], [7, 0, 9, 10]
    near, far = context.blocks(context.pool, ids), context.blocks(generation.pool, places)
    context.transfer(bindings.NIXL_WRITE, near, far, "trt-generation", "ready")
    context.raw.genNotif("trt-generation", b"more")
    told = {}

    def both():
        told.update(generation.raw.getNotifs(told))
        return sum(map(len, told.values())) == 2

    assert until(both) and told == {"trt-context": [b"ready", b"more"]}
    assert (generation.pool.reshape(256, 4096)[places] == numpy.array(ids)[:, None]).all()
    assert numpy.count_nonzero(generation.pool.reshape(256, 4096).any(axis=1)) == 4

    more = numpy.full(1 << 16, 9, numpy.uint8)
    generation.register(more)
    covered = context.blocks(more, [0, 15])
    assert context.raw.checkRemoteMD("trt-generation", covered) == bindings.NIXL_ERR_NOT_FOUND
    context.raw.invalidateRemoteMD("trt-generation")
    context.meet(generation)
    assert context.raw.checkRemoteMD("trt-generation", covered) == bindings.NIXL_SUCCESS
    context.transfer(bindings.NIXL_READ, context.blocks(context.pool, [0, 1]), covered, "trt-generation")
    assert (context.pool[:8192] == 9).all() and (context.pool[8192:12288] == 2).all()
    # An equal list built anew takes the memory back.
    generation.raw.deregisterMem(generation.regions(more), generation.backend)
    for agent in (context, generation):
        agent.raw.close()


# Dynamo's nixl_connect: a registration and a remote for each operation, both let go at its end.


class Connector:
    """The passive or the active end of operations, as nixl_connect makes them."""

    def __init__(self, name):
        from nixl._api import nixl_agent

        self.name, self.agent = name, nixl_agent(name)

    def offer(self, memory, key):
        """Registers memory; what goes to the other end, and the registration."""
        held = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "cpu")], "cpu")
        blob = "b64:" + base64.b64encode(zlib.compress(self.agent.get_agent_metadata(), 6)).decode()
        return (blob, memory.ctypes.data, memory.nbytes, key), held

    def begin(self, operation, offer, memory):
        """Loads the other end and creates the transfer; polling its state posts it."""
        blob, address, size, key = offer
        remote = self.agent.add_remote_agent(zlib.decompress(base64.b64decode(blob[len("b64:") :]))).decode()
        held = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "cpu")], "cpu")
        handle = self.agent.initialize_xfer(
            operation=operation,
            local_descs=self.agent.get_xfer_descs(descs=[(memory.ctypes.data, memory.nbytes, 0)], mem_type="cpu"),
            remote_descs=self.agent.get_xfer_descs(descs=[(address, size, 0)], mem_type="cpu"),
            remote_agent=remote,
            notif_msg=key.encode(),
        )
        return remote, held, handle

    def complete(self, begun, key):
        remote, held, handle = begun
        if self.agent.transfer(handle, key.encode()) != "DONE":
            assert finish(self.agent, handle) == "DONE"
        self.agent.release_xfer_handle(handle)
        # At once, while the notification may still be on its way.
        self.agent.remove_remote_agent(remote)
        self.agent.deregister_memory(held)

    def told(self, key):
        """Whether the operation of that key is over: everything that ever came is looked through each time."""
        return any(key.encode() in messages for messages in self.agent.update_notifs().values())


@PATHS
def test_dynamo_meets_and_parts_for_each_operation(path, monkeypatch):
    monkeypatch.setenv("KVFERRY_REQUIRE", path)
    passive, active = Connector("dynamo-passive"), Connector("dynamo-active")
    memory, mine = numpy.zeros(1 << 20, numpy.uint8), numpy.zeros(1 << 20, numpy.uint8)
    for number in range(12):
        operation, key = ("READ", "WRITE")[number % 2], f"operation-{number}"
        source, target = (memory, mine) if operation == "READ" else (mine, memory)
        source[:], target[:] = number + 1, 0
        offer, held = passive.offer(memory, key)
        active.complete(active.begin(operation, offer, mine), key)
        assert until(lambda: passive.told(key)), key
        assert (target == number + 1).all(), key
        passive.agent.deregister_memory(held)
    assert sum(map(len, passive.agent.notifs.values())) == 12
    for end in (passive, active):
        end.agent.agent.close()


@PATHS
def test_dynamo_parts_from_a_peer_that_it_still_reads_from(path, monkeypatch):
    """Several operations with one peer at once: the first to end removes the peer under the others."""
    monkeypatch.setenv("KVFERRY_REQUIRE", path)
    passive, active = Connector("dynamo-passive"), Connector("dynamo-active")
    size, keys = 64 << 20, ["one", "two", "three", "small"]
    sizes = {key: 64 if key == "small" else size for key in keys}
    memory = {key: numpy.full(sizes[key], place + 1, numpy.uint8) for place, key in enumerate(keys)}
    mine = {key: numpy.zeros(sizes[key], numpy.uint8) for key in keys}
    held = {key: passive.offer(memory[key], key) for key in keys}
    begun, running = {}, 0
    for key in keys:
        begun[key] = active.begin("READ", held[key][0], mine[key])
        if key != "small":
            active.agent.transfer(begun[key][2], key.encode())
    # Removed while they run: it is unknown at once, nothing new can be made or posted, and what runs goes on.
    running = sum(active.agent.check_xfer_state(begun[key][2]) == "PROC" for key in keys[:3])
    assert running, "all were over before the peer was removed"
    active.agent.remove_remote_agent("dynamo-passive")
    assert not active.agent.check_remote_metadata("dynamo-passive")
    for attempt in (
        lambda: active.agent.transfer(begun["small"][2], b"small"),
        lambda: active.agent.send_notif("dynamo-passive", b"no"),
        lambda: active.agent.prep_xfer_dlist("dynamo-passive", [(memory["one"].ctypes.data, 64, 0)], "cpu"),
        lambda: active.agent.make_connection("dynamo-passive"),
    ):
        with pytest.raises(bindings.nixlNotFoundError):
            attempt()
    for key in keys[:2]:
        assert finish(active.agent, begun[key][2]) == "DONE" and (mine[key] == memory[key]).all(), key
        assert until(lambda: passive.told(key)), key
    # Loaded anew, also in the middle of it.
    active.complete(active.begin("READ", held["small"][0], mine["small"]), "small")
    assert (mine["small"] == 4).all()
    assert finish(active.agent, begun["three"][2]) == "DONE" and (mine["three"] == 3).all()
    for key in keys:
        active.agent.release_xfer_handle(begun[key][2])
        assert until(lambda: passive.told(key)), key
    # And when the last one has ended it really is left.
    assert not active.agent.check_remote_metadata("dynamo-passive")
    assert not active.agent.agent._agent._check_remote("dynamo-passive")
    for end in (passive, active):
        end.agent.agent.close()


# Ray's tensor transport: one registration for a storage, a version that counts what was deregistered.


class Transport:
    """One end of Ray's tensor transport."""

    def __init__(self, name):
        self.agent, self.version, self.known = agent_of(name), 0, {}

    def offer(self, memory):
        """What describes a storage to the other end, and what takes it back."""
        held = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], mem_type="cpu")
        descs = self.agent.get_xfer_descs([(memory.ctypes.data, memory.nbytes, 0)], "cpu")
        packed = self.agent.get_serialized_descs(descs)
        return (packed, self.agent.get_agent_metadata(), self.agent.name, self.version), held

    def withdraw(self, held):
        self.agent.deregister_memory(held)
        self.version += 1

    def fetch(self, offer, memory, message="UUID"):
        """Registers the destination and starts the READ."""
        packed, metadata, name, version = offer
        far = self.agent.deserialize_descs(packed)
        held = self.agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], mem_type="cpu")
        near = self.agent.get_xfer_descs([(memory.ctypes.data, memory.nbytes, 0)], "cpu")
        if self.known.get(name, version) != version:
            self.agent.remove_remote_agent(name)
        self.known[name] = version
        self.agent.add_remote_agent(metadata)
        handle = self.agent.initialize_xfer("READ", near, far, name, message)
        assert self.agent.transfer(handle) in ("DONE", "PROC")
        return handle, held

    def close(self):
        self.agent.agent.close()


@PATHS
def test_ray_registers_one_pointer_with_other_sizes(path, monkeypatch):
    monkeypatch.setenv("KVFERRY_REQUIRE", path)
    source, reader = Transport("ray-source"), Transport("ray-reader")
    storage, copy = numpy.zeros(1 << 20, numpy.uint8), numpy.zeros(1 << 20, numpy.uint8)
    for number, size in enumerate([4096, 1 << 20, 64, 1 << 19, 1 << 20]):
        storage[:size], copy[:] = number + 1, 0
        offer, held = source.offer(storage[:size])
        # The same object twice, the second time without a change of version.
        for _ in range(2):
            handle, mine = reader.fetch(offer, copy[:size])
            assert finish(reader.agent, handle) == "DONE"
            reader.agent.release_xfer_handle(handle)
            reader.withdraw(mine)
        assert (copy[:size] == number + 1).all() and not copy[size:].any()
        source.withdraw(held)
        # What was taken back can't be read any more, whatever is there.
        with pytest.raises((bindings.nixlBackendError, bindings.nixlNotFoundError)):
            handle, mine = reader.fetch(offer, copy[:size])
            finish(reader.agent, handle)
        reader.agent.deregister_memory(reader.agent.get_reg_descs([(copy.ctypes.data, size, 0, "")], "cpu"))
    source.close()
    reader.close()


@PATHS
def test_ray_gives_up_by_releasing_what_runs(path, monkeypatch):
    """The destination is deregistered and freed as soon as the release has returned."""
    monkeypatch.setenv("KVFERRY_REQUIRE", path)
    size = 96 << 20
    source, reader = Transport("ray-source"), Transport("ray-reader")
    storage = numpy.ones(size, numpy.uint8)
    offer, _ = source.offer(storage)
    regions = len(reader.agent.agent._agent.regions())
    running = 0
    for _ in range(6):
        copy = numpy.zeros(size, numpy.uint8)
        handle, mine = reader.fetch(offer, copy)
        running += reader.agent.check_xfer_state(handle) == "PROC"
        reader.agent.release_xfer_handle(handle)
        reader.agent.deregister_memory(mine)
        before = copy.copy()
        time.sleep(0.005)
        assert (copy == before).all(), "something is written into memory that was given back"
    assert running, "each transfer was over before it could be given up"
    assert len(reader.agent.agent._agent.regions()) == regions
    # The next one is whole.
    copy = numpy.zeros(size, numpy.uint8)
    handle, _ = reader.fetch(offer, copy)
    assert finish(reader.agent, handle) == "DONE" and (copy == 1).all()
    source.close()
    reader.close()


def test_ray_fetches_objects_in_another_order():
    """Each object comes with the metadata of the moment when it was made: older than what is known, when it is fetched late."""
    source, reader = Transport("ray-source"), Transport("ray-reader")
    storages = [numpy.full(4096, i + 1, numpy.uint8) for i in range(5)]
    lent = [source.offer(storage) for storage in storages]
    for place in (3, 0, 4, 1, 0, 2):
        copy = numpy.zeros(4096, numpy.uint8)
        handle, mine = reader.fetch(lent[place][0], copy)
        assert finish(reader.agent, handle) == "DONE" and (copy == place + 1).all()
        reader.agent.release_xfer_handle(handle)
        reader.withdraw(mine)
        if place == 4:
            # Freed meanwhile; older metadata does not bring it back.
            source.agent.deregister_memory(lent[4][1])
    far = reader.agent.deserialize_descs(lent[4][0][0])
    reader.agent.add_remote_agent(source.agent.get_agent_metadata())
    for packed, metadata, name, _ in (offer for offer, _ in lent):
        assert reader.agent.add_remote_agent(metadata).decode() == name
        assert not reader.agent.check_remote_metadata(name, far)
    source.close()
    reader.close()


@PATHS
def test_ray_removes_the_source_while_another_object_comes(path, monkeypatch):
    """A large object is on its way when the version changes, and with that the source is removed and loaded again."""
    monkeypatch.setenv("KVFERRY_REQUIRE", path)
    source, reader = Transport("ray-source"), Transport("ray-reader")
    large, small = numpy.full(96 << 20, 3, numpy.uint8), numpy.full(5000, 4, numpy.uint8)
    copy, running = numpy.zeros(large.nbytes, numpy.uint8), 0
    offer, _ = source.offer(large)
    for _ in range(3):
        copy[:] = 0
        handle, mine = reader.fetch(offer, copy)
        # Something else is freed there, and another object made.
        source.withdraw(source.offer(numpy.zeros(64, numpy.uint8))[1])
        other, held = source.offer(small)
        little = numpy.zeros(5000, numpy.uint8)
        running += reader.agent.check_xfer_state(handle) == "PROC"
        second, own = reader.fetch(other, little)
        assert finish(reader.agent, second) == "DONE" and (little == 4).all()
        assert finish(reader.agent, handle) == "DONE" and (copy == 3).all()
        for one in (second, handle):
            reader.agent.release_xfer_handle(one)
        for one in (own, mine):
            reader.withdraw(one)
        source.withdraw(held)
        offer = (offer[0], source.agent.get_agent_metadata(), offer[2], source.version)
    assert running, "the large object was always there already"
    source.close()
    reader.close()


def test_ray_sends_empty_tensors():
    """Storages without bytes are registered and transferred as they are: at no address."""
    source, reader = agent_of("ray-source"), agent_of("ray-reader")
    held = [source.register_memory([(0, 0, 0, "")], mem_type="cpu")]
    memory, copy = numpy.full(100, 5, numpy.uint8), numpy.zeros(100, numpy.uint8)
    held.append(source.register_memory([(memory.ctypes.data, 100, 0, "")], mem_type="cpu"))
    mine = [reader.register_memory([(address, size, 0, "")], mem_type="cpu") for address, size in ((0, 0), (copy.ctypes.data, 100))]
    reader.add_remote_agent(source.get_agent_metadata())
    blocks = lambda array: [(0, 0, 0), (array.ctypes.data, 100, 0), (0, 0, 0)]
    for keep in (slice(3), slice(1)):
        far = reader.deserialize_descs(source.get_serialized_descs(source.get_xfer_descs(blocks(memory)[keep], "cpu")))
        assert [far[i][1] for i in range(far.descCount())] == [0, 100, 0][keep]
        copy[:] = 0
        handle = reader.initialize_xfer("READ", reader.get_xfer_descs(blocks(copy)[keep], "cpu"), far, "ray-source", b"UUID")
        reader.transfer(handle)
        assert finish(reader, handle) == "DONE" and (copy == (5 if keep == slice(3) else 0)).all()
        reader.release_xfer_handle(handle)
        assert until(source.get_new_notifs) == {"ray-reader": [b"UUID"]}
    for agent, lists in ((source, held), (reader, mine)):
        for descs in lists:
            agent.deregister_memory(descs)
        assert not agent.agent._agent.regions()
        agent.agent.close()


def test_ray_forgets_the_reader_used_least():
    """A reader of three sources that knows two at a time."""
    reader, sources = Transport("ray-reader"), [Transport(f"ray-source-{i}") for i in range(3)]
    storages = [numpy.full(1 << 16, i + 1, numpy.uint8) for i in range(3)]
    offers = [source.offer(storage)[0] for source, storage in zip(sources, storages)]
    for number in range(9):
        place = number % 3
        if len(reader.known) == 2:
            oldest = next(iter(reader.known))
            reader.known.pop(oldest)
            reader.agent.remove_remote_agent(oldest)
        copy = numpy.zeros(1 << 16, numpy.uint8)
        handle, mine = reader.fetch(offers[place], copy)
        assert finish(reader.agent, handle) == "DONE" and (copy == place + 1).all()
        reader.agent.release_xfer_handle(handle)
        reader.withdraw(mine)
    for end in (reader, *sources):
        end.close()


@pytest.mark.parametrize("asks", ["register", "metadata"])
def test_ray_never_asks_for_notifications(asks):
    """More than the peer's inbox holds, to an application that makes other calls and asks at last."""
    near, far = Side("ray-reader"), Side("ray-source")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    # 64 of them fill an inbox.
    sent = [b"%03d" % (number // 2) + bytes((1 << 20) - 3) for number in range(160)]
    for number, message in enumerate(sent):
        handle = near.agent.initialize_xfer("READ", near.xfer(0, 64), far.xfer(0, 64), "ray-source", message)
        near.agent.transfer(handle)
        assert finish(near.agent, handle) == "DONE"
        near.agent.release_xfer_handle(handle)
        if number % 16 == 15:
            if asks == "register":
                far.agent.deregister_memory(far.agent.register_memory([(far.address, 4096, 0, "")], "DRAM"))
            else:
                far.agent.get_agent_metadata()
            # The room comes back as the engine has told the peer.
            time.sleep(0.02)
    got = []
    assert until(lambda: got.extend(far.agent.get_new_notifs().get("ray-reader", [])) or len(got) == len(sent))
    assert got == sent
    assert far.agent.get_new_notifs() == {}


def test_what_nobody_asks_for_has_a_bound(monkeypatch):
    from kvferry_nixl import _kept

    monkeypatch.setattr(_kept, "MOST", 8 << 20)
    near, far = Side("sender"), Side("sleeper")
    near.agent.add_remote_agent(far.agent.get_agent_metadata())
    with pytest.raises(bindings.nixlBackendError, match="notify.backlog"):
        for number in range(160):
            near.agent.send_notif("sleeper", b"%03d" % number + bytes((1 << 20) - 3))
            if number % 16 == 15:
                far.agent.get_agent_metadata()
                time.sleep(0.02)
    # Nothing is lost, and there is room again once it has asked.
    got = []
    assert until(lambda: got.extend(far.agent.get_new_notifs().get("sender", [])) or len(got) >= number)
    assert [message[:3] for message in got] == [b"%03d" % i for i in range(number)] and number < 120

    def sends():
        try:
            near.agent.send_notif("sleeper", b"again")
        except bindings.nixlBackendError:
            # The engine has not told the sender yet.
            return False
        return True

    assert until(sends) and until(far.agent.get_new_notifs) == {"sender": [b"again"]}


# LMCache: a list of every page of the buffer, sent to the peer, prepared there once.


def test_lmcache_prepares_every_page_of_a_buffer():
    pages, page = 100_000, 1024
    out = run_child(
        """
        import sys, time, numpy
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        pages, page = map(int, sys.argv[1:])
        def side(name):
            agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
            memory = numpy.zeros(pages * page, numpy.uint8)
            start = memory.ctypes.data
            held = agent.get_reg_descs([(start, memory.nbytes, 0, "")], "cpu")
            agent.register_memory(held)
            descs = agent.get_xfer_descs([(at, page, 0) for at in range(start, start + memory.nbytes, page)], "cpu")
            return agent, memory, held, agent.prep_xfer_dlist("", descs, "cpu"), agent.get_serialized_descs(descs)
        one, there, *_, packed = side("lm-one")
        two, here, held, local, _ = side("lm-two")
        assert len(packed) < 24 * pages + 200, len(packed)
        name = two.add_remote_agent(one.get_agent_metadata())
        remote = two.prep_xfer_dlist(name, two.deserialize_descs(packed))
        # The peer introduces itself again while this side uses what it has.
        assert two.add_remote_agent(one.get_agent_metadata()) == name
        there.reshape(pages, page)[:] = (numpy.arange(pages) % 251 + 1).astype(numpy.uint8)[:, None]
        far = numpy.random.default_rng(3).choice(pages, 5000, replace=False).tolist()
        near = list(range(10, 10 + 5000))
        handle = two.make_prepped_xfer("READ", local, near, remote, far)
        two.transfer(handle)
        while two.check_xfer_state(handle) == "PROC":
            time.sleep(0.001)
        two.release_xfer_handle(handle)
        found = here.reshape(pages, page)
        assert (found[10:5010] == (numpy.array(far) % 251 + 1).astype(numpy.uint8)[:, None]).all()
        assert not found[:10].any() and not found[5010:].any()
        two.release_dlist_handle(remote)
        two.release_dlist_handle(local)
        two.deregister_memory(held)
        print("done")
        """,
        pages,
        page,
    )
    assert out.endswith("done\n")

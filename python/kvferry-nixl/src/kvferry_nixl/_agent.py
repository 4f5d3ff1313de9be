"""The raw agent: handles are numbers, and a number that names nothing is an exception, never a crash."""

from __future__ import annotations

import itertools
import os
import time
from _thread import RLock, allocate_lock
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import kvferry
import numpy
from kvferry_nixl import _ucx
from kvferry_nixl._config import nixlAgentConfig, nixlXferTelemetry, telemetry
from kvferry_nixl._enums import nixl_mem_t, nixl_status_t, nixl_xfer_op_t
from kvferry_nixl._errors import (
    call,
    nixlBackendError,
    nixlCancelledError,
    nixlInvalidParamError,
    nixlNoTelemetryError,
    nixlNotFoundError,
    nixlNotPostedError,
    nixlNotSupportedError,
    nixlRemoteDisconnectError,
    nixlRepostActiveError,
    translate,
)
from kvferry_nixl._kept import Kept
from kvferry_nixl._lists import nixlRegDList, nixlXferDList
from kvferry_nixl._posix import query
from kvferry_nixl._registrations import Registrations
from kvferry_nixl._transfers import Nothing, Transfer
from kvferry_nixl._log import logger

NIXL_INIT_AGENT = ""

# nixl's numbers of the memory types to kvferry's.
KINDS = (0, 1, 3, 4, 2)
_DRAM, _VRAM = nixl_mem_t.DRAM_SEG, nixl_mem_t.VRAM_SEG
_OPS = {0: "read", 1: "write"}
_SUCCESS, _IN_PROG = nixl_status_t.NIXL_SUCCESS, nixl_status_t.NIXL_IN_PROG
_NOT_FOUND = nixl_status_t.NIXL_ERR_NOT_FOUND

# How long the release of a running transfer waits for it to be quiet.
RELEASE_TIMEOUT = 0.020

# In place of a region's number: a descriptor without bytes.
NO_BYTES = -1


class Plugin(NamedTuple):
    """A backend that can be created."""

    parameters: Dict[str, str]
    memory: List[str]


PLUGINS = {
    "POSIX": Plugin({}, ["FILE_SEG"]),
    "UCX": Plugin(
        {"ucx_error_handling_mode": "peer", "num_workers": "1", "ucx_devices": ""}, ["DRAM_SEG", "VRAM_SEG"]
    ),
}


class _Backend(NamedTuple):
    name: str
    parameters: Dict[str, str]


class nixlAgent:
    """An agent by its raw calls. `nixl._api.nixl_agent` is the one to use."""

    # Numbers that no other agent has given out either: an old handle does not hit another's.
    _numbers = itertools.count(0x10000, 16)

    def __init__(self, name: str, config: nixlAgentConfig) -> None:
        if not isinstance(config, nixlAgentConfig):
            raise TypeError(f"an agent is made of a name and a nixlAgentConfig, not {type(config).__name__}")
        if isinstance(name, bytes):
            name = name.decode()
        if not isinstance(name, str):
            raise TypeError(f"an agent's name is str, not {type(name).__name__}")
        if not name:
            raise ValueError("Agent needs a non-empty name")
        self._name = name
        self._engine: Optional[kvferry.Agent] = None
        self._backends: Dict[int, _Backend] = {}
        self._lists: Dict[int, kvferry.PreparedList] = {}
        self._transfers: Dict[int, Transfer] = {}
        self._registrations = Registrations()
        self._lock = allocate_lock()
        # Peers that were removed while transfers with them ran: no longer known, and left once those have ended.
        self._leaving: Dict[str, List[int]] = {}
        # Taken again by its holder: clients remove peers in finalizers, which run anywhere.
        self._peers_lock = RLock()
        self._kept = Kept()
        self._exchange: Any = None
        self._telemetry = config.captureTelemetry or _wants_telemetry()
        _say_what_is_not_exported()
        self._config = config
        if config.useListenThread:
            self._exchanger().listen(config.listenPort)

    # Backends.

    def getAvailPlugins(self) -> List[str]:
        """Names of the backends that can be created."""
        return sorted(PLUGINS)

    def getPluginParams(self, name: str) -> Tuple[Dict[str, str], List[str]]:
        """A backend's parameters with their defaults, and its memory types."""
        plugin = PLUGINS.get(name)
        if plugin is None:
            raise nixlNotFoundError.of(f"there is no backend {name!r}; there are {', '.join(sorted(PLUGINS))}")
        return dict(plugin.parameters), list(plugin.memory)

    def createBackend(self, name: str, parameters: Dict[str, str]) -> int:
        """Creates a backend and returns its handle."""
        if not isinstance(name, (str, bytes)) or not hasattr(parameters, "items"):
            raise TypeError("a backend is made of a name and a dictionary of parameters")
        name = name.decode() if isinstance(name, bytes) else name
        parameters = {str(key): str(value) for key, value in dict(parameters).items()}
        with self._lock:
            if name not in PLUGINS:
                raise nixlNotFoundError.of(f"there is no backend {name!r}; there are {', '.join(sorted(PLUGINS))}")
            if any(backend.name == name for backend in self._backends.values()):
                raise nixlInvalidParamError.of(f"the backend {name} exists already")
            if name == "UCX":
                self._engine = self._start(parameters)
            handle = next(self._numbers)
            self._backends[handle] = _Backend(name, parameters)
            return handle

    def getBackendParams(self, backend: int) -> Tuple[Dict[str, str], List[str]]:
        """The parameters that a backend was created with, and its memory types."""
        found = self._backend(backend)
        return dict(found.parameters), list(PLUGINS[found.name].memory)

    def _start(self, parameters: Dict[str, str]) -> kvferry.Agent:
        wishes = _ucx.wishes(parameters)
        for note in wishes.notes:
            logger.info("%s", note)
        settings = call(lambda: kvferry.Settings(**wishes.settings))
        agent = call(kvferry.Agent, self._name, settings)
        logger.info("kvferry %s: %s", kvferry.__version__, agent.settings)
        return agent

    def _backend(self, handle: int) -> _Backend:
        found = self._backends.get(handle)
        if found is None:
            raise nixlInvalidParamError.of(f"{handle:#x} is no handle of a backend")
        return found

    def _wants(self, backends: Sequence[int], name: str) -> bool:
        """Whether a call with these backends means that one."""
        return not backends or any(self._backend(handle).name == name for handle in backends)

    @property
    def _agent(self) -> kvferry.Agent:
        if self._engine is None:
            raise nixlNotFoundError.of("no backend that transfers is instantiated: create_backend('UCX')")
        return self._engine

    # Memory.

    def registerMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        """Registers memory, all of the list or nothing."""
        _check(descs, nixlRegDList, "registerMem")
        kind = descs.getType()
        if kind not in (_DRAM, _VRAM):
            raise nixlNotSupportedError.of(f"{kind.name}: kvferry moves host memory; files and objects are not built")
        if not self._wants(backends, "UCX"):
            raise nixlNotSupportedError.of(f"{kind.name} is registered with the backend UCX; others transfer nothing")
        engine, rows = self._agent, descs._rows()
        self._kept.add(lambda: call(self._agent._notifications))
        # Memory of a GPU asks for a driver, whether it has bytes or not.
        full = _with_bytes(rows) if kind == _DRAM else None
        ids = call(engine._register_raw, KINDS[int(kind)], rows if full is None else rows[full])
        if full is not None:
            # What has no bytes counts as registered and is nothing to the engine.
            left = iter(ids)
            ids = [next(left) if has else NO_BYTES for has in full]
        self._registrations.add(int(kind), rows, ids)
        return _SUCCESS

    def deregisterMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        """Takes memory back. When it returns, no peer's write can land in it any more."""
        _check(descs, nixlRegDList, "deregisterMem")
        engine, kind, rows = self._agent, int(descs.getType()), descs._rows()
        if not self._wants(backends, "UCX"):
            raise nixlNotFoundError.of("the memory is not registered with that backend")
        ids = self._registrations.take(kind, rows)
        if ids is None:
            raise nixlNotFoundError.of("a descriptor is not registered, or not as often")
        try:
            call(engine.deregister, [number for number in ids if number != NO_BYTES])
        except BaseException:
            # In quarantine: to be tried again.
            self._registrations.add(kind, rows, ids)
            raise
        return _SUCCESS

    def queryMem(self, descs: nixlRegDList, backend: int) -> List[Optional[Dict[str, str]]]:
        """What is known of files, by the paths in the descriptors' metadata; None for each that does not exist."""
        _check(descs, nixlRegDList, "queryMem")
        name = self._backend(backend).name
        if name != "POSIX" or descs.getType() != nixl_mem_t.FILE_SEG:
            raise nixlNotSupportedError.of(f"the backend {name} answers nothing about {descs.getType().name}")
        return query([descs[index][3] for index in range(descs.descCount())])

    # Peers and metadata.

    def getLocalMD(self) -> bytes:
        """What a peer needs to reach this agent."""
        if self._engine is None:
            raise nixlInvalidParamError.of("no backend is instantiated that a peer could reach")
        self._kept.add(lambda: call(self._agent._notifications))
        return call(self._agent.metadata)

    def getLocalPartialMD(
        self, descs: nixlRegDList, inc_conn_info: bool = False, backends: Sequence[int] = ()
    ) -> bytes:
        """The same for some registered descriptors; of none for the connection alone."""
        _check(descs, nixlRegDList, "getLocalPartialMD")
        engine, ids = self._agent, self._registrations.find(int(descs.getType()), descs._rows())
        if ids is None:
            raise nixlNotFoundError.of("a descriptor is not registered")
        ids = [number for number in ids if number != NO_BYTES]
        return call(engine.partial_metadata, ids, bool(inc_conn_info) or descs.isEmpty())

    def loadRemoteMD(self, metadata: bytes) -> bytes:
        """Takes in a peer's metadata and returns its name."""
        if isinstance(metadata, str):
            metadata = metadata.encode("utf-8", "surrogateescape")
        if not isinstance(metadata, (bytes, bytearray, memoryview)):
            raise TypeError(f"metadata is bytes, not {type(metadata).__name__}")
        if self._engine is None:
            raise nixlBackendError.of("no backend is instantiated that could reach the peer")
        try:
            with self._peers_lock:
                name = self._agent.load_remote(bytes(metadata))
                self._leaving.pop(name, None)
            return name.encode()
        except kvferry.Error as error:
            if error.code == "metadata.stale" and "name of this agent" in error.text:
                raise nixlInvalidParamError.of("the peer has this agent's own name", error) from error
            raise translate(error) from error

    def invalidateRemoteMD(self, name: str) -> nixl_status_t:
        """Forgets a peer, if it is known: that is what the status says. Transfers with it that run go on: some clients remove
        a peer before each reload of its metadata, whatever else they are doing with it."""
        engine, name = self._agent, as_name(name)
        with self._peers_lock:
            if name in self._leaving:
                return _NOT_FOUND
            running = [handle for handle, one in list(self._transfers.items()) if one.peer == name and one.runs()]
            if running and name != self._name and call(engine._check_remote, name):
                self._leaving[name] = running
                return _SUCCESS
            try:
                call(engine.remove_remote, name)
            except nixlNotFoundError:
                return _NOT_FOUND
        return _SUCCESS

    def _known(self, name: str) -> str:
        """The same name, if it is not that of a peer that was removed."""
        if name in self._leaving:
            raise nixlNotFoundError.of(f"the metadata of peer {name!r} was removed")
        return name

    def _leave(self) -> None:
        """Parts with the removed peers whose last transfer has ended. A later call does it where this one can't."""
        if not self._peers_lock.acquire(False):
            return
        try:
            for name, handles in list(self._leaving.items()):
                if any(one is not None and one.runs() for one in map(self._transfers.get, handles)):
                    continue
                del self._leaving[name]
                try:
                    self._agent.remove_remote(name)
                except kvferry.Error:
                    # Lost meanwhile.
                    pass
        finally:
            self._peers_lock.release()

    def checkRemoteMD(self, name: str, descs: Optional[nixlXferDList] = None) -> nixl_status_t:
        """Whether a peer is known and, if there are descriptors, each is within its memory: that is what the status says."""
        rows, kind = None, 0
        if descs is not None:
            _check(descs, nixlXferDList, "checkRemoteMD")
            if not descs.isEmpty():
                rows, kind = descs._rows(), KINDS[int(descs.getType())]
                full = _with_bytes(rows)
                rows = rows if full is None else rows[full]
        name = as_name(name)
        if name in self._leaving:
            return _NOT_FOUND
        return _SUCCESS if call(self._agent._check_remote, name, kind, rows) else _NOT_FOUND

    def makeConnection(self, name: str, backends: Sequence[int] = ()) -> nixl_status_t:
        """Connects to a peer now, rather than with the first transfer."""
        name = self._known(as_name(name))
        self._reach(name, self._agent.connect, name)
        return _SUCCESS

    def _reach(self, peer: str, function: Any, *args: Any) -> Any:
        """Calls what may find the peer gone. Where it is, its metadata goes too, so that callers shake hands anew."""
        try:
            return function(*args)
        except kvferry.Error as error:
            raised = translate(error)
            if isinstance(raised, nixlRemoteDisconnectError) and error.code != "peer.restarted" and peer != self._name:
                try:
                    self._agent.remove_remote(peer)
                except kvferry.Error:
                    pass
            raise raised from error

    # Transfers.

    def prepXferDlist(self, *args: Any, **named: Any) -> int:
        """Checks a list once, for any number of transfers.

        Takes (agent_name, descs, backend), (descs, backend) for this agent's own memory, or (agent_name, mem_type, descs,
        backend) with an N x 5 array.
        """
        names = ["agent_name", "descs", "backend"]
        if args and isinstance(args[0], nixlXferDList):
            names = ["descs", "backend"]
        elif "mem_type" in named or len(args) > 1 and not isinstance(args[1], nixlXferDList):
            names = ["agent_name", "mem_type", "descs", "backend"]
        given = {"agent_name": NIXL_INIT_AGENT, "backend": (), **dict(zip(names, args)), **named}
        if len(args) > len(names) or set(given) - {*names, "agent_name"} or "descs" not in given:
            raise TypeError(f"prepXferDlist(): takes {', '.join(names)}")
        agent_name, descs, backend = given["agent_name"], given["descs"], given["backend"]
        if "mem_type" in names:
            if not isinstance(given.get("mem_type"), nixl_mem_t) or not isinstance(descs, numpy.ndarray):
                raise TypeError("prepXferDlist(): takes a nixl_mem_t and an N x 5 array")
            rows, kind = strided(descs), given["mem_type"]
        else:
            _check(descs, nixlXferDList, "prepXferDlist")
            rows, kind = descs._rows(), descs.getType()
        engine, name, kind = self._agent, as_name(agent_name), KINDS[int(kind)]
        self._wants(backend, "UCX")
        if name == NIXL_INIT_AGENT:
            prepared = call(engine._prepare_local, kind, rows)
        else:
            prepared = call(engine._prepare_remote, self._known(name), kind, rows)
        if len(prepared) == 0:
            raise nixlNotFoundError.of("there is no block in the list")
        handle = next(self._numbers)
        self._lists[handle] = prepared
        return handle

    def releasedDlistH(self, handle: int) -> nixl_status_t:
        """Gives a prepared list up; transfers made of it stay."""
        if self._lists.pop(handle, None) is None:
            raise nixlInvalidParamError.of(f"{handle} is no handle of a prepared list")
        return _SUCCESS

    def makeXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_side: int,
        local_indices: Any,
        remote_side: int,
        remote_indices: Any,
        notif_msg: Any = b"",
        backend: Sequence[int] = (),
        skip_desc_merg: bool = False,
    ) -> int:
        """Creates a transfer of blocks of two prepared lists, in pairs."""
        local, remote = self._lists.get(local_side), self._lists.get(remote_side)
        if local is None or remote is None:
            raise nixlInvalidParamError.of("a side is no handle of a prepared list, or was released")
        near, far = indices(local_indices), indices(remote_indices)
        if len(near) == 0 or len(far) == 0:
            raise nixlInvalidParamError.of("there is no index")
        self._wants(backend, "UCX")
        return self._make(operation, local, near, remote, far, notif_msg, not skip_desc_merg)

    def createXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: str,
        notif_msg: Any = b"",
        backend: Sequence[int] = (),
    ) -> int:
        """Creates a transfer of two lists, in pairs."""
        _check(local_descs, nixlXferDList, "createXferReq")
        _check(remote_descs, nixlXferDList, "createXferReq")
        engine = self._agent
        self._wants(backend, "UCX")
        if local_descs.descCount() != remote_descs.descCount():
            raise nixlInvalidParamError.of("the two lists have different lengths")
        if local_descs.isEmpty():
            raise nixlNotFoundError.of("there is no block in the lists")
        name, near, far = self._known(as_name(remote_agent)), local_descs._rows(), remote_descs._rows()
        full = _with_bytes(near)
        if full is not None:
            # Pairs without bytes are nothing to move. With bytes on one side alone they stay, and are refused.
            full |= far[:, 1] != 0
            near, far = near[full], far[full]
            if len(near) == 0:
                return self._make_nothing(name, notif_msg)
        local = call(engine._prepare_local, KINDS[int(local_descs.getType())], near)
        remote = call(engine._prepare_remote, name, KINDS[int(remote_descs.getType())], far)
        return self._make(operation, local, None, remote, None, notif_msg, True)

    def _make_nothing(self, peer: str, notif_msg: Any) -> int:
        message = as_message(notif_msg) or None
        if peer != self._name and not call(self._agent._check_remote, peer):
            raise nixlNotFoundError.of(f"no metadata of peer {peer!r} is loaded")
        handle = next(self._numbers)
        self._transfers[handle] = Transfer(Nothing(lambda payload: self.genNotif(peer, payload)), peer, message)
        return handle

    def _make(
        self,
        operation: nixl_xfer_op_t,
        local: kvferry.PreparedList,
        near: Any,
        remote: kvferry.PreparedList,
        far: Any,
        notif_msg: Any,
        merge: bool,
    ) -> int:
        op = _OPS[int(operation)]
        message = as_message(notif_msg) or None
        peer = self._known(remote.peer or "")
        try:
            made = self._reach(peer, self._agent.transfer, op, local, near, remote, far, message, merge)
        except ValueError as error:
            # An index that is none: negative, or beyond 32 bits.
            raise nixlInvalidParamError.of(str(error)) from error
        handle = next(self._numbers)
        self._transfers[handle] = Transfer(made, peer, message)
        return handle

    def _transfer(self, handle: int) -> Transfer:
        found = self._transfers.get(handle)
        if found is None:
            raise nixlInvalidParamError.of(f"{handle} is no handle of a transfer, or was released")
        return found

    def postXferReq(self, reqh: int, notif_msg: Any = b"") -> nixl_status_t:
        """Starts a transfer and waits for nobody."""
        found = self._transfer(reqh)
        self._known(found.peer)
        message = as_message(notif_msg) or found.message
        started = time.time()
        call(found.transfer.post, message)
        found.posted, found.started, found.message = True, started, message
        return _SUCCESS if found.transfer.status == "done" else _IN_PROG

    def getXferStatus(self, handle: int) -> nixl_status_t:
        """How far a transfer has come; raises what it failed with."""
        transfer = self._transfer(handle).transfer
        status = transfer.status
        if self._leaving:
            self._leave()
        if status == "done":
            return _SUCCESS
        if status in ("posted", "running"):
            return _IN_PROG
        if status == "created":
            raise nixlNotPostedError.of("the transfer was never posted")
        error = transfer.error
        if error is not None:
            raise translate(error) from error
        raise nixlCancelledError.of("the transfer was cancelled")

    def getXferTelemetry(self, reqh: int) -> nixlXferTelemetry:
        """What the last post of a transfer measured."""
        if not self._telemetry:
            raise nixlNoTelemetryError.of("telemetry is off: capture_telemetry=True or NIXL_TELEMETRY_ENABLE=y")
        found = self._transfer(reqh)
        if not found.posted or found.transfer.status in ("posted", "running"):
            raise nixlNotPostedError.of("the transfer has not ended")
        return telemetry(found.transfer.telemetry(), found.started)

    def estimateXferCost(self, req_handle: int) -> Tuple[int, int, Any]:
        """Nothing estimates costs here: zeros, and a method without a name."""
        self._transfer(req_handle)
        return 0, 0, -1

    def queryXferBackend(self, handle: int) -> int:
        """The handle of the backend that moves a transfer."""
        self._transfer(handle)
        for number, backend in self._backends.items():
            if backend.name == "UCX":
                return number
        raise nixlNotFoundError.of("no backend moves it")

    def releaseXferReq(self, handle: int) -> nixl_status_t:
        """Gives a transfer up, cancelling it if it runs. When it returns, nothing of it touches memory any more; if that is
        not so within 20 ms it raises and keeps the handle. Where this side's memory is free and only the peer's word is
        missing, it raises for the time of `KVFERRY_CANCEL_TIMEOUT` and then returns: the word of a peer that hangs, or whose
        host is gone, may never come."""
        found = self._transfer(handle)
        try:
            call(found.transfer.release, RELEASE_TIMEOUT)
        except nixlRepostActiveError as error:
            now = time.monotonic()
            found.refused = found.refused or now
            if error.code != "cancel.fenced" or now - found.refused < self._agent.settings.cancel_timeout:
                raise
            logger.warning("a transfer is given up without the peer's word: %s", error)
        self._transfers.pop(handle, None)
        if self._leaving:
            self._leave()
        return _SUCCESS

    def _abandon(self, handle: int) -> None:
        """For handles that nobody holds any more: starts the cancel, waits for nothing."""
        self._transfers.pop(handle, None)
        self._lists.pop(handle, None)
        if self._leaving and self._engine is not None:
            self._leave()

    # Notifications.

    def getNotifs(self, notif_map: Dict[str, List[bytes]], backends: Sequence[int] = ()) -> Dict[str, List[bytes]]:
        """Adds what has come in to a map of agents' names."""
        if self._engine is None:
            raise nixlBackendError.of("no backend is instantiated that could be told something")
        told = dict(notif_map)
        self._kept.take(told, lambda: call(self._agent._notifications))
        return told

    def genNotif(self, remote_agent: str, msg: Any, backends: Sequence[int] = ()) -> nixl_status_t:
        """Sends a notification."""
        name = as_name(remote_agent)
        self._wants(backends, "UCX")
        if self._engine is None:
            raise nixlBackendError.of("no backend is instantiated that could tell anybody")
        self._reach(name, self._agent.notify, self._known(name), as_message(msg))
        return _SUCCESS

    # Metadata over sockets and etcd.

    def _exchanger(self) -> Any:
        if self._exchange is None:
            from kvferry_nixl._exchange import Exchange

            self._exchange = Exchange(self)
        return self._exchange

    def sendLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        """Sends this agent's metadata to a listener, or puts it into etcd. Does not wait."""
        self._exchanger().send(self.getLocalMD(), *_place(ip_addr, port))

    def sendLocalPartialMD(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: Sequence[int] = (),
        ip_addr: str = "",
        port: int = 0,
        label: str = "",
    ) -> None:
        """The same with partial metadata, in etcd under a label."""
        blob = self.getLocalPartialMD(descs, inc_conn_info, backends)
        self._exchanger().send(blob, *_place(ip_addr, port), label, partial=True)

    def fetchRemoteMD(self, remote_agent: str, ip_addr: str = "", port: int = 0, label: str = "") -> None:
        """Asks a listener or etcd for a peer's metadata and loads it. Does not wait."""
        self._exchanger().fetch(as_name(remote_agent), *_place(ip_addr, port), label)

    def invalidateLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        """Tells a listener to forget this agent, or takes its keys out of etcd. Does not wait."""
        self._exchanger().invalidate(*_place(ip_addr, port))

    # GPU views.

    def prepMemView(self, dlist: Any, backends: Sequence[int] = ()) -> int:
        """Views for kernels on a GPU: not built."""
        raise nixlNotSupportedError.of("GPU views are not built")

    def releaseMemView(self, mvh: int) -> None:
        """As above."""
        raise nixlNotSupportedError.of("GPU views are not built")

    # Beyond the stock calls.

    def stats(self) -> Dict[str, Any]:
        """Counters of the agent since its start."""
        return call(self._agent.stats)

    def __del__(self) -> None:
        exchange = getattr(self, "_exchange", None)
        if exchange is not None:
            exchange.close()

    def close(self) -> None:
        """Ends the agent. The garbage collector does it as well."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()
        self._transfers.clear()
        self._lists.clear()
        self._leaving.clear()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()


def _with_bytes(rows: numpy.ndarray) -> Optional[numpy.ndarray]:
    """Which of the descriptors have bytes; None if all have, as nearly always."""
    full = rows[:, 1] != 0
    return None if full.all() else full


def _check(given: Any, wanted: type, function: str) -> None:
    if not isinstance(given, wanted):
        raise TypeError(f"{function}(): takes an {wanted.__name__}, not {type(given).__name__}")


def _place(address: Any, port: Any) -> Tuple[str, int]:
    if not isinstance(address, (str, bytes)) or not hasattr(port, "__index__"):
        raise TypeError("a listener is at an address and a port")
    return (address.decode() if isinstance(address, bytes) else address), port.__index__()


def as_name(name: Any) -> str:
    """An agent's name, which may come as the bytes that add_remote_agent returns."""
    if isinstance(name, bytes):
        return name.decode()
    if isinstance(name, str):
        return "" if name == "NIXL_INIT_AGENT" else name
    raise TypeError(f"an agent's name is str or bytes, not {type(name).__name__}")


def as_message(message: Any) -> bytes:
    """A notification's payload."""
    if isinstance(message, str):
        return message.encode()
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    raise TypeError(f"a notification is bytes or str, not {type(message).__name__}")


def strided(array: numpy.ndarray) -> numpy.ndarray:
    """The rows (address, length, device, stride, count) of a strided list."""
    if array.ndim != 2 or array.shape[1] != 5 or array.dtype not in (numpy.uint64, numpy.int64):
        raise ValueError("a strided list is an N x 5 array of uint64 or int64")
    if not array.flags.c_contiguous:
        raise ValueError("a strided list is C-contiguous")
    return array.view(numpy.uint64)


def indices(given: Any) -> Any:
    """Indices as kvferry takes them."""
    if isinstance(given, numpy.ndarray):
        if given.ndim != 1:
            raise ValueError("indices numpy array must be 1D")
        if given.dtype.kind not in "iub":
            raise ValueError(f"indices are integers, not {given.dtype}")
        return given if given.dtype.itemsize >= 4 else given.astype(numpy.int32)
    if hasattr(given, "__array__"):
        return indices(numpy.asarray(given))
    listed = list(given)
    if any(not hasattr(index, "__index__") for index in listed):
        raise RuntimeError("indices are integers")
    return listed


def _wants_telemetry() -> bool:
    return os.environ.get("NIXL_TELEMETRY_ENABLE", "").strip().lower() in ("1", "y", "yes", "true", "on", "enable")


_said = False


def _say_what_is_not_exported() -> None:
    global _said
    given = [name for name in ("NIXL_TELEMETRY_DIR", "NIXL_TELEMETRY_EXPORTER") if os.environ.get(name)]
    if given and not _said:
        _said = True
        logger.warning(
            "%s: telemetry is not written anywhere; get_xfer_telemetry() and agent.stats() have it", " and ".join(given)
        )

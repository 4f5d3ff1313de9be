"""The calls that engines make: `nixl_agent`, its configuration and its handles."""

from __future__ import annotations

import enum
import io
import pickle
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from kvferry_nixl import _bindings as nixlBind
from kvferry_nixl._bindings import DEFAULT_COMM_PORT
from kvferry_nixl._memory import descs_of_tensors, is_tensor
from kvferry_nixl._log import logger

nixl_backend_handle = int


class nixl_thread_sync_t(enum.Enum):
    """What is asked for in the way of locking. It changes nothing: an agent can be used from any thread."""

    NIXL_THREAD_SYNC_NONE = nixlBind.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = nixlBind.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = nixlBind.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = nixlBind.NIXL_THREAD_SYNC_DEFAULT

__all__ = [
    "DEFAULT_COMM_PORT",
    "nixlBind",
    "nixl_agent",
    "nixl_agent_config",
    "nixl_backend_handle",
    "nixl_prepped_dlist_handle",
    "nixl_thread_sync_t",
    "nixl_xfer_handle",
]


class nixl_agent_config:
    """How an agent is made. `num_threads`, the progress thread and the sync mode change nothing: every agent has its own
    threads and can be used from any."""

    def __init__(
        self,
        enable_prog_thread: bool = True,
        enable_listen_thread: bool = False,
        listen_port: int = DEFAULT_COMM_PORT,
        capture_telemetry: bool = False,
        num_threads: int = 0,
        backends: Sequence[str] = ("UCX",),
        sync_mode: Optional[nixl_thread_sync_t] = None,
    ) -> None:
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t (got {type(sync_mode).__name__!r})")
        self.backends = list(backends) if isinstance(backends, tuple) else backends
        self.enable_pthread = enable_prog_thread
        self.enable_listen = enable_listen_thread
        self.port = listen_port
        self.capture_telemetry = capture_telemetry
        self.num_threads = num_threads
        self.sync_mode = sync_mode


class _Handle:
    """A number of the raw agent's that is given back once."""

    __slots__ = ("_agent", "_handle", "_released")

    def __init__(self, agent: nixlBind.nixlAgent, value: int) -> None:
        self._agent = agent
        self._handle = int(value)
        self._released = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._handle:#x}, released={self._released})"

    def __del__(self) -> None:
        # Also for one whose construction failed, or at the end of the interpreter.
        if not getattr(self, "_released", True):
            self._released = True
            self._agent._abandon(self._handle)


class nixl_prepped_dlist_handle(_Handle):
    """A list that was checked once."""

    __slots__ = ()

    def release(self) -> None:
        """Gives the list up. A second call does nothing."""
        if not self._released:
            self._agent.releasedDlistH(self._handle)
            self._released = True


class nixl_xfer_handle(_Handle):
    """A transfer."""

    __slots__ = ()

    def release(self) -> None:
        """Gives the transfer up once nothing of it touches memory; raises if that is not so within 20 ms, and keeps the
        handle. For a peer that does not answer it raises no longer than `KVFERRY_CANCEL_TIMEOUT`. A second call does
        nothing."""
        if not self._released:
            self._agent.releaseXferReq(self._handle)
            self._released = True


class nixl_agent:
    """An agent: registers memory, knows peers, transfers, notifies."""

    def __init__(
        self, agent_name: str, nixl_conf: Optional[nixl_agent_config] = None, instantiate_all: bool = False
    ) -> None:
        # With a configuration, instantiate_all has no meaning.
        instantiate_all = instantiate_all and nixl_conf is None
        config = nixl_conf if nixl_conf is not None else nixl_agent_config()
        raw = nixlBind.nixlAgentConfig(config.enable_pthread, config.enable_listen, config.port)
        raw.captureTelemetry = config.capture_telemetry
        if config.sync_mode is not None:
            raw.syncMode = config.sync_mode.value
        self.agent = nixlBind.nixlAgent(agent_name, raw)
        self.name = agent_name
        self.notifs: Dict[str, List[bytes]] = {}
        self.backends: Dict[str, int] = {}
        self.backend_mems: Dict[str, List[str]] = {}
        self.backend_options: Dict[str, Dict[str, str]] = {}
        self.plugin_list = self.agent.getAvailPlugins()
        types = nixlBind.nixl_mem_t
        self.nixl_mems = {
            "DRAM": types.DRAM_SEG,
            "VRAM": types.VRAM_SEG,
            "FILE": types.FILE_SEG,
            "BLOCK": types.BLK_SEG,
            "OBJ": types.OBJ_SEG,
            "cpu": types.DRAM_SEG,
            "cuda": types.VRAM_SEG,
        }
        self.nixl_ops = {"WRITE": nixlBind.NIXL_WRITE, "READ": nixlBind.NIXL_READ}
        for name in self.plugin_list if instantiate_all else config.backends:
            if name not in self.plugin_list:
                logger.warning("Skipping backend registration %s due to the missing plugin.", name)
                continue
            self.create_backend(name)
        logger.info("Initialized NIXL agent: %s", agent_name)

    # Backends.

    def get_plugin_list(self) -> List[str]:
        """Names of the backends that can be created."""
        return list(self.plugin_list)

    def get_plugin_mem_types(self, backend: str) -> List[str]:
        """Memory types of a backend that can be created."""
        return self._plugin(backend, "supported mem types")[1]

    def get_plugin_params(self, backend: str) -> Dict[str, str]:
        """Parameters of a backend that can be created, with their defaults."""
        return self._plugin(backend, "parameters")[0]

    def _plugin(self, backend: str, what: str) -> Tuple[Dict[str, str], List[str]]:
        if backend not in self.plugin_list:
            logger.warning("Plugin %s is not available to get its %s.", backend, what)
            return {}, []
        return self.agent.getPluginParams(backend)

    def get_backend_mem_types(self, backend: str) -> List[str]:
        """Memory types of a backend that was created."""
        if backend not in self.backends:
            logger.warning("Backend %s not instantiated to get its supported mem types.", backend)
            return []
        return list(self.backend_mems[backend])

    def get_backend_params(self, backend: str) -> Dict[str, str]:
        """Parameters that a backend was created with."""
        if backend not in self.backends:
            logger.warning("Backend %s not instantiated to get its parameters.", backend)
            return {}
        return dict(self.backend_options[backend])

    def create_backend(self, backend: str, initParams: Optional[Dict[str, str]] = None) -> None:
        """Creates a backend. The one called UCX is kvferry's choice of path; UCX's parameters are read."""
        handle = self.agent.createBackend(backend, initParams or {})
        self.backends[backend] = handle
        self.backend_options[backend], self.backend_mems[backend] = self.agent.getBackendParams(handle)
        logger.info("Backend %s was instantiated", backend)

    def _handles(self, backends: Optional[Sequence[str]]) -> List[int]:
        return [self.backends[name] for name in backends or ()]

    # Memory.

    def register_memory(
        self, reg_list: Any, mem_type: Optional[str] = None, backends: Sequence[str] = ()
    ) -> nixlBind.nixlRegDList:
        """Registers memory, all of the list or nothing, and returns it as a list object."""
        descs = self.get_reg_descs(reg_list, mem_type)
        self.agent.registerMem(descs, self._handles(backends))
        return descs

    def deregister_memory(self, dereg_list: nixlBind.nixlRegDList, backends: Sequence[str] = ()) -> None:
        """Takes memory back. When it returns, no peer's write can land in it any more."""
        self.agent.deregisterMem(dereg_list, self._handles(backends))

    def query_memory(
        self, reg_list: Any, backend: str, mem_type: Optional[str] = None
    ) -> List[Optional[Dict[str, str]]]:
        """What a backend knows of files; None for each that does not exist."""
        if backend not in self.backends:
            raise ValueError(f"Backend {backend!r} not found. Available backends: {list(self.backends)}")
        return self.agent.queryMem(self.get_reg_descs(reg_list, mem_type), self.backends[backend])

    # Transfers.

    def make_connection(self, remote_agent: str, backends: Sequence[str] = ()) -> None:
        """Connects to a peer now, rather than with the first transfer."""
        self.agent.makeConnection(remote_agent, self._handles(backends))

    def prep_xfer_dlist(
        self, agent_name: str, xfer_list: Any, mem_type: Optional[str] = None, backends: Sequence[str] = ()
    ) -> nixl_prepped_dlist_handle:
        """Checks a list once, for any number of transfers: any form of :meth:`get_xfer_descs`, or an N x 5 array (address,
        length, device, stride, count). An empty name means this agent's own memory."""
        handles = self._handles(backends)
        if isinstance(xfer_list, np.ndarray) and xfer_list.ndim == 2 and xfer_list.shape[1] == 5:
            if mem_type is None:
                raise ValueError("Please specify a mem type for strided descriptors")
            number = self.agent.prepXferDlist(agent_name, self.nixl_mems[mem_type], xfer_list, handles)
        else:
            number = self.agent.prepXferDlist(agent_name, self.get_xfer_descs(xfer_list, mem_type), handles)
        return nixl_prepped_dlist_handle(self.agent, number)

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: nixl_prepped_dlist_handle,
        local_indices: Any,
        remote_xfer_side: nixl_prepped_dlist_handle,
        remote_indices: Any,
        notif_msg: bytes = b"",
        backends: Sequence[str] = (),
        skip_desc_merge: bool = False,
    ) -> nixl_xfer_handle:
        """Creates a transfer of blocks of two prepared lists, in pairs."""
        number = self.agent.makeXferReq(
            self.nixl_ops[operation],
            local_xfer_side._handle,
            local_indices,
            remote_xfer_side._handle,
            remote_indices,
            notif_msg,
            self._handles(backends),
            skip_desc_merge,
        )
        return nixl_xfer_handle(self.agent, number)

    def initialize_xfer(
        self,
        operation: str,
        local_descs: nixlBind.nixlXferDList,
        remote_descs: nixlBind.nixlXferDList,
        remote_agent: str,
        notif_msg: bytes = b"",
        backends: Sequence[str] = (),
    ) -> nixl_xfer_handle:
        """Creates a transfer of two lists, in pairs."""
        number = self.agent.createXferReq(
            self.nixl_ops[operation], local_descs, remote_descs, remote_agent, notif_msg, self._handles(backends)
        )
        return nixl_xfer_handle(self.agent, number)

    def transfer(self, handle: nixl_xfer_handle, notif_msg: bytes = b"") -> str:
        """Starts a transfer: "DONE" or "PROC"."""
        return _state(self.agent.postXferReq(handle._handle, notif_msg))

    def check_xfer_state(self, handle: nixl_xfer_handle) -> str:
        """How far a transfer has come: "DONE" or "PROC". Raises what it failed with."""
        return _state(self.agent.getXferStatus(handle._handle))

    def get_xfer_telemetry(self, handle: nixl_xfer_handle) -> nixlBind.nixlXferTelemetry:
        """What the last post of a transfer measured, if telemetry is on."""
        return self.agent.getXferTelemetry(handle._handle)

    def estimate_xfer_cost(self, req_handle: nixl_xfer_handle) -> Tuple[int, int, str]:
        """Nothing estimates costs here: (0, 0, "UNKNOWN")."""
        cost, error, _ = self.agent.estimateXferCost(req_handle._handle)
        return cost, error, "UNKNOWN"

    def query_xfer_backend(self, handle: nixl_xfer_handle) -> str:
        """The backend that moves a transfer."""
        number = self.agent.queryXferBackend(handle._handle)
        return next(name for name, backend in self.backends.items() if backend == number)

    def release_xfer_handle(self, handle: nixl_xfer_handle) -> None:
        """Gives a transfer up: see :meth:`nixl_xfer_handle.release`."""
        handle.release()

    def release_dlist_handle(self, handle: nixl_prepped_dlist_handle) -> None:
        """Gives a prepared list up."""
        handle.release()

    def prep_mem_view(self, dlist: Any, *, backends: Optional[Sequence[str]] = None) -> int:
        """Views for kernels on a GPU: not built."""
        return self.agent.prepMemView(dlist, self._handles(backends))

    def release_mem_view(self, mvh: int) -> None:
        """As above."""
        self.agent.releaseMemView(mvh)

    # Notifications.

    def get_new_notifs(self, backends: Sequence[str] = ()) -> Dict[str, List[bytes]]:
        """Takes what has come in, by the senders' names."""
        return self.agent.getNotifs({}, self._handles(backends))

    def update_notifs(self, backends: Sequence[str] = ()) -> Dict[str, List[bytes]]:
        """Adds what has come in to `notifs`, and returns that."""
        self.notifs = self.agent.getNotifs(self.notifs, self._handles(backends))
        return self.notifs

    def check_remote_xfer_done(
        self, remote_agent_name: str, lookup_tag: bytes, backends: Sequence[str] = (), tag_is_prefix: bool = True
    ) -> bool:
        """Whether a notification of a peer begins with a tag, or has it in it; takes that one out of `notifs`."""
        self.update_notifs(backends)
        if isinstance(remote_agent_name, bytes):
            remote_agent_name = remote_agent_name.decode()
        tag = lookup_tag.encode() if isinstance(lookup_tag, str) else lookup_tag
        messages = self.notifs.get(remote_agent_name, [])
        for place, message in enumerate(messages):
            if message.startswith(tag) if tag_is_prefix else tag in message:
                del messages[place]
                return True
        return False

    def send_notif(self, remote_agent_name: str, notif_msg: bytes, backend: Optional[str] = None) -> None:
        """Sends a notification, in order with all others from here."""
        self.agent.genNotif(remote_agent_name, notif_msg, self._handles([backend] if backend else ()))

    # Metadata.

    def get_agent_metadata(self) -> bytes:
        """What a peer needs to reach this agent and its memory."""
        return self.agent.getLocalMD()

    def get_partial_agent_metadata(
        self, descs: nixlBind.nixlRegDList, inc_conn_info: bool = False, backends: Sequence[str] = ()
    ) -> bytes:
        """The same for some registered descriptors; of none for the connection alone."""
        return self.agent.getLocalPartialMD(descs, inc_conn_info, self._handles(backends))

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """Takes in a peer's metadata and returns its name, as bytes."""
        return self.agent.loadRemoteMD(metadata)

    def remove_remote_agent(self, agent: str) -> None:
        """Forgets a peer, if it is known."""
        self.agent.invalidateRemoteMD(agent)

    def send_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Sends this agent's metadata to a listener, or puts it into etcd. Does not wait."""
        self.agent.sendLocalMD(ip_addr, port)

    def send_partial_agent_metadata(
        self,
        descs: nixlBind.nixlRegDList,
        inc_conn_info: bool = False,
        backends: Sequence[str] = (),
        ip_addr: str = "",
        port: int = DEFAULT_COMM_PORT,
        label: str = "",
    ) -> None:
        """The same with partial metadata, in etcd under a label."""
        handles = self._handles(backends)
        self.agent.sendLocalPartialMD(descs, inc_conn_info, handles, ip_addr, port, label)

    def fetch_remote_metadata(
        self, remote_agent: str, ip_addr: str = "", port: int = DEFAULT_COMM_PORT, label: str = ""
    ) -> None:
        """Asks a listener or etcd for a peer's metadata and loads it. Does not wait: see check_remote_metadata."""
        self.agent.fetchRemoteMD(remote_agent, ip_addr, port, label)

    def invalidate_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Tells a listener to forget this agent, or takes its keys out of etcd. Does not wait."""
        self.agent.invalidateLocalMD(ip_addr, port)

    def check_remote_metadata(self, agent: str, descs: Optional[nixlBind.nixlXferDList] = None) -> bool:
        """Whether a peer is known and, if there are descriptors, each is within its memory."""
        return self.agent.checkRemoteMD(agent, descs) == nixlBind.NIXL_SUCCESS

    # Lists.

    def get_xfer_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlXferDList]:
        """A list object of tuples (address, length, device), of an N x 3 array, of a tensor, or of a list of tensors."""
        if isinstance(descs, nixlBind.nixlXferDList):
            return descs
        if isinstance(descs, nixlBind.nixlRegDList):
            logger.error("RegList type detected for transfer, please use XferList")
            return None
        return self._list(nixlBind.nixlXferDList, descs, mem_type, 3, "3-tuple list needed for transfer")

    def get_reg_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlRegDList]:
        """As :meth:`get_xfer_descs`, for registration; tuples have the metadata fourth."""
        if isinstance(descs, nixlBind.nixlRegDList):
            return descs
        if isinstance(descs, nixlBind.nixlXferDList):
            logger.error("XferList type detected for registration, please use RegList")
            return None
        return self._list(nixlBind.nixlRegDList, descs, mem_type, 4, "4-tuple list needed for registration")

    def get_remote_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlRemoteDList]:
        """A list object of tuples (address, length, device, agent)."""
        if isinstance(descs, nixlBind.nixlRemoteDList):
            return descs
        if isinstance(descs, (nixlBind.nixlXferDList, nixlBind.nixlRegDList)):
            logger.error("%s type detected for remote descriptors, please use RemoteList", type(descs).__name__)
            return None
        needed = "4-tuple list (addr, len, dev_id, agent_name) needed for remote descriptors"
        return self._list(nixlBind.nixlRemoteDList, descs, mem_type, 4, needed)

    def _list(self, kind: type, descs: Any, mem_type: Optional[str], width: int, needed: str) -> Any:
        if is_tensor(descs):
            descs = [descs]
        if isinstance(descs, np.ndarray):
            if mem_type is None:
                logger.error("Please specify a mem type if not using Tensors")
                return None
            if descs.ndim != 2 or descs.shape[1] != 3:
                logger.error("Nx3 shape required for descriptor list from numpy array")
                return None
            return kind(self.nixl_mems[mem_type], descs)
        if not isinstance(descs, (list, tuple, str, bytes)):
            raise TypeError(f"descriptors are a list, an array or tensors, not {type(descs).__name__}")
        if descs and is_tensor(descs[0]):
            memory, rows = descs_of_tensors(descs)
            return None if memory is None else kind(self.nixl_mems[memory], rows)
        if mem_type is None:
            logger.error("Please specify a mem type if not using Tensors")
            return None
        if descs and not (isinstance(descs[0], tuple) and len(descs[0]) == width):
            logger.error("%s", needed)
            return None
        return kind(self.nixl_mems[mem_type], descs)

    def get_serialized_descs(self, descs: Any) -> bytes:
        """A list object as bytes."""
        return pickle.dumps(descs)

    def deserialize_descs(self, serialized_descs: bytes) -> Any:
        """A list object out of bytes. Bytes that would build anything else are refused."""
        return _Unpickler(io.BytesIO(serialized_descs)).load()


class _Unpickler(pickle.Unpickler):
    """Builds our lists and plain values, and runs nobody's code."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "kvferry_nixl._lists" and name in ("nixlXferDList", "nixlRegDList"):
            return getattr(nixlBind, name)
        if (module, name) == ("kvferry_nixl._enums", "nixl_mem_t"):
            return nixlBind.nixl_mem_t
        raise pickle.UnpicklingError(f"a list of descriptors does not hold {module}.{name}")


def _state(status: nixlBind.nixl_status_t) -> str:
    return "DONE" if status == nixlBind.NIXL_SUCCESS else "PROC"


def _is_torch_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch, which is looked for and never imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)



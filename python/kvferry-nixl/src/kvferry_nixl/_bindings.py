"""The raw names: constants, enumerations, exceptions, lists and the raw agent."""

from kvferry_nixl._agent import NIXL_INIT_AGENT, nixlAgent
from kvferry_nixl._config import DEFAULT_COMM_PORT, nixlAgentConfig, nixlXferTelemetry
from kvferry_nixl._enums import nixl_cost_t, nixl_mem_t, nixl_status_t, nixl_thread_sync_t, nixl_xfer_op_t
from kvferry_nixl._errors import (
    nixlBackendError,
    nixlCancelledError,
    nixlInvalidParamError,
    nixlMismatchError,
    nixlNoTelemetryError,
    nixlNotAllowedError,
    nixlNotFoundError,
    nixlNotPostedError,
    nixlNotSupportedError,
    nixlRemoteDisconnectError,
    nixlRepostActiveError,
    nixlUnknownError,
)
from kvferry_nixl._lists import nixlRegDList, nixlRemoteDList, nixlXferDList

HAVE_UCX_GPU_DEVICE_API = False
"""Whether kernels on a GPU can start transfers: they can't."""

for _kind in (nixl_mem_t, nixl_xfer_op_t, nixl_status_t, nixl_cost_t, nixl_thread_sync_t):
    globals().update(_kind.__members__)
del _kind

__all__ = [name for name in globals() if not name.startswith("_")]

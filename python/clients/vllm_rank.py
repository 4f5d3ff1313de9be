"""One rank of a vLLM engine without a model: a KV cache whose contents are known, and vLLM's NIXL connector over it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import numpy
import torch

sys.path.insert(0, os.getcwd())

from tests.v1.attention.utils import dense_kv_cache_views  # noqa: E402
from tests.v1.kv_connector.unit.utils import create_vllm_config  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed import init_distributed_environment  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # noqa: E402
from vllm.distributed.parallel_state import initialize_model_parallel  # noqa: E402
from vllm.forward_context import ForwardContext  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheLayout,
)

BLOCK, HEADS, HEAD = 32, 12, 64
POISON = 0xA5


def pattern(request: int, layer: int, blocks: int, page: int) -> numpy.ndarray:
    """What the blocks of a request hold in a layer, over all heads: `blocks` rows of `page` bytes."""
    source = numpy.random.Generator(numpy.random.PCG64((request, layer)))
    return numpy.frombuffer(source.bytes(blocks * page), numpy.uint8).reshape(blocks, page)


class Watched:
    """The agent of a connector, which can lie about one transfer."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        #: Transfers that are said to have failed at the next look.
        self.lies: list[Any] = []
        #: How often giving up a transfer was refused.
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def check_xfer_state(self, handle: Any) -> str:
        """Says that a transfer failed, if it is to."""
        if handle in self.lies:
            self.lies.remove(handle)
            return "ERR"
        return self._agent.check_xfer_state(handle)

    def release_xfer_handle(self, handle: Any) -> None:
        """Counts refusals."""
        try:
            self._agent.release_xfer_handle(handle)
        except Exception:
            self.refused += 1
            raise


class Rank:
    """One rank: a KV cache, and the worker's half of the connector."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.rank, self.ranks = options, options.rank, options.ranks
        config = create_vllm_config(
            block_size=BLOCK,
            max_num_batched_tokens=16384,
            max_model_len=16384,
            kv_role=options.role,
            kv_connector=options.connector,
            kv_connector_extra_config={"kv_lease_duration": options.lease},
        )
        config.cache_config.kv_cache_layout = "LBHNC"
        config.parallel_config.tensor_parallel_size = config.parallel_config.world_size = self.ranks
        config.kv_transfer_config.kv_buffer_device = "cpu"
        config.kv_transfer_config.engine_id = options.engine
        self.config = config
        self.heads = HEADS // self.ranks
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=self.heads, head_size=HEAD, dtype=torch.float16)
        names = [f"layer{layer}" for layer in range(options.layers)]
        self.page = spec.page_size_bytes
        self.cache_config = KVCacheConfig(
            num_blocks=options.blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(names, spec)]
        )
        with set_current_vllm_config(config):
            init_distributed_environment(self.ranks, self.rank, f"file://{options.meeting}", self.rank, "gloo")
            initialize_model_parallel(self.ranks, 1)
            self.raw = torch.full((self.page * options.blocks * options.layers,), POISON - 256, dtype=torch.int8)
            views = dense_kv_cache_views(
                self.raw, spec, options.blocks, num_layers=options.layers, layout=KVCacheLayout.LBHNC
            )
            self.bytes = self.raw.numpy().view(numpy.uint8).reshape(options.layers, options.blocks, self.page)
            for layer, view in enumerate(views):
                assert view[1].data_ptr() == self.bytes[layer, 1].ctypes.data, "the cache is laid out in another way"
            self.expected = self.bytes.copy()
            self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, self.cache_config)
            self.connector.register_kv_caches(dict(zip(names, views)))
        self.worker = self.connector.connector_worker
        self.agent = self.worker.nixl_wrapper = Watched(self.worker.nixl_wrapper)

    def share(self, request: int, layer: int, blocks: int) -> numpy.ndarray:
        """What this rank holds of a request's blocks in a layer: the bytes of its heads."""
        whole = pattern(request, layer, blocks, self.page * self.ranks).reshape(blocks, self.ranks, self.page)
        return whole[:, self.rank]

    def fill(self, request: int, blocks: list[int]) -> None:
        """Does what a forward pass would: writes the request's KV."""
        for layer in range(self.options.layers):
            self.bytes[layer, blocks] = self.expected[layer, blocks] = self.share(request, layer, len(blocks))

    def check(self, request: int, blocks: list[int]) -> str:
        """What is wrong with the blocks that have come in, or nothing."""
        for layer in range(self.options.layers):
            wanted = self.share(request, layer, len(blocks))
            same = (self.bytes[layer, blocks] == wanted).all(axis=1)
            if not same.all():
                bad = [block for block, fine in zip(blocks, same) if not fine]
                return f"rank {self.rank}, layer {layer}: {len(bad)} of {len(blocks)} blocks differ, first {bad[0]}"
            self.expected[layer, blocks] = wanted
        return ""

    def forgive(self, blocks: list[int]) -> None:
        """Takes the bytes of these blocks as they are: their transfer failed."""
        self.expected[:, blocks] = self.bytes[:, blocks]

    def elsewhere(self) -> str:
        """Which block holds bytes that nobody should have written, or nothing."""
        if numpy.array_equal(self.bytes, self.expected):
            return ""
        layer, block = numpy.argwhere((self.bytes != self.expected).any(axis=2))[0]
        return f"rank {self.rank}: block {block} of layer {layer} has changed"

    def step(self, metadata: Any, finished: set[str], trap: dict[str, Any]) -> dict[str, Any]:
        """The worker's part of a step; what the connector reports."""
        self.connector.bind_connector_metadata(metadata)
        self.connector.start_load_kv(ForwardContext(no_compile_layers={}, attn_metadata={}, slot_mapping={}))
        state = self.spring(trap) if trap else ""
        if state == "closed":
            return {"sent": set(), "received": set(), "invalid": set(), "state": state}
        sent, received = self.connector.get_finished(finished)
        invalid = self.connector.get_block_ids_with_load_errors()
        self.connector.clear_connector_metadata()
        return {"sent": sent or set(), "received": received or set(), "invalid": invalid or set(), "state": state}

    def spring(self, trap: dict[str, Any]) -> str:
        """Does what a trap says, if a transfer runs; the transfer's state, or `closed`."""
        handles = self.handles()
        if not handles:
            return ""
        state = self.agent._agent.check_xfer_state(handles[0])
        if state == "PROC" and "pid" in trap:
            os.kill(trap["pid"], trap["signal"])
        if state == "PROC" and trap.get("fault"):
            self.agent.lies.append(handles[0])
        if state == "PROC" and trap.get("close"):
            self.connector.shutdown()
            return "closed"
        return state

    def handles(self) -> list[Any]:
        """The transfers that the connector holds."""
        holders = [getattr(self.worker, name, {}) for name in ("_recving_transfers", "_sending_transfers")]
        return [handle for holder in holders for handles in list(holder.values()) for handle in handles]

    def held(self) -> int:
        """Transfers that the agent holds: as the drop-in counts them, else as the connector does."""
        table = getattr(self.agent.agent, "_transfers", None)
        return len(self.handles()) if table is None else len(table)

    def refusals(self) -> int:
        """How often giving up a transfer was refused."""
        return self.agent.refused

    def poison(self, blocks: list[int]) -> None:
        """Writes into blocks that belong to nobody."""
        self.bytes[:, blocks] = self.expected[:, blocks] = POISON

    def metadata(self) -> Any:
        """What a peer needs to reach this rank."""
        return self.connector.get_handshake_metadata()

    def over(self) -> None:
        """The last word to the other ranks."""

    def close(self) -> str:
        """Ends the connector, then looks once more whether anything writes into the cache; which block has changed."""
        self.connector.shutdown()
        self.poison(list(range(self.options.blocks)))
        time.sleep(0.3)
        return self.elsewhere()


def everywhere(rank: Rank, what: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Runs a method on each rank, called by the first one; what each returns."""
    if rank.ranks == 1:
        return [getattr(rank, what)(*arguments)]
    torch.distributed.broadcast_object_list([(what, arguments)], src=0)
    answers: list[Any] = [None] * rank.ranks
    torch.distributed.gather_object(getattr(rank, what)(*arguments), answers)
    return answers


def follow(rank: Rank) -> None:
    """Does what the first rank says, until the end."""
    while True:
        told: list[Any] = [None]
        torch.distributed.broadcast_object_list(told, src=0)
        what, arguments = told[0]
        torch.distributed.gather_object(getattr(rank, what)(*arguments))
        if what == "over":
            return

"""A vLLM engine without a model: vLLM's scheduler and its NIXL connector, unmodified, over a KV cache whose contents are known.

vllm_connector.py forks a process for each rank and calls `main` there. The first rank reads commands, a JSON object on each
line of standard input, and writes events in the same form to the file descriptor named by --events; the other ranks do what the
first one does.

  {"do": "prefill", "id": N, "tokens": N}                   -> prefilled {id, params}
  {"do": "decode", "id": N, "tokens": N, "params": {...}}   -> received {id, ...} or failed {id, ...}
  {"do": "settle", "seconds": N}                            -> settled {...}, once no block is in use
  {"do": "end"}                                             -> ended

A command may have a "trap", which springs when its transfer runs: {"pid": N, "signal": N} sends a signal, {"fault": true} lets
the connector be told once that the transfer failed, {"close": true} shuts the connector down, {"tell": true} makes an event of it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import time
from typing import Any

from vllm_rank import BLOCK, Rank, everywhere, follow  # isort: skip; makes vLLM's tests importable

from tests.v1.kv_connector.unit.utils import create_model_runner_output, create_request, create_scheduler
from vllm.config import set_current_vllm_config


class Engine:
    """The first rank, with the scheduler; speaks for all ranks."""

    def __init__(self, rank: Rank) -> None:
        self.rank, options = rank, rank.options
        with set_current_vllm_config(rank.config):
            self.scheduler = create_scheduler(rank.config, options.blocks, rank.cache_config)
        self.blocks = self.scheduler.kv_cache_manager.block_pool
        metadata = self.all("metadata")
        self.scheduler.get_kv_connector().set_xfer_handshake_metadata_pp_aware(
            {(0, number): one for number, one in enumerate(metadata)}
        )
        self.requests: dict[str, Any] = {}
        self.tokens: dict[str, int] = {}
        self.started: dict[str, float] = {}
        self.trap: dict[str, Any] = {}
        self.state = ""
        self.partly: dict[str, dict[str, int]] = {}
        self.closed = False
        self.commands = b""
        self.events = os.fdopen(options.events, "w", buffering=1)

    def all(self, what: str, *arguments: Any) -> list[Any]:
        """Runs a method on each rank; what each returns."""
        return everywhere(self.rank, what, arguments)

    def tell(self, event: str, **more: Any) -> None:
        """Writes an event."""
        print(json.dumps({"event": event, **more}), file=self.events)

    def add(self, command: dict[str, Any]) -> None:
        """Takes a request in."""
        produce = command["do"] == "prefill"
        request = create_request(
            request_id=command["id"],
            num_tokens=command["tokens"],
            max_tokens=1,
            do_remote_decode=produce,
            do_remote_prefill=not produce,
            block_size=BLOCK,
        )
        if not produce:
            request.kv_transfer_params = dict(command["params"])
        self.trap = command.get("trap", {})
        self.requests[request.request_id] = request
        self.started[request.request_id] = time.monotonic()
        self.scheduler.add_request(request)

    def step(self) -> None:
        """One step of the engine."""
        planned = self.scheduler.schedule()
        names = list(planned.num_scheduled_tokens)
        for new in planned.scheduled_new_reqs:
            request = self.requests[new.req_id]
            if (request.kv_transfer_params or {}).get("do_remote_decode"):
                self.all("fill", number(new.req_id), held_blocks(new.block_ids[0], request.num_prompt_tokens))
        reports = self.all("step", planned.kv_connector_metadata, planned.finished_req_ids, self.trap)
        if self.trap and (states := [report["state"] for report in reports if report["state"]]):
            if self.trap.get("tell"):
                self.tell("sprung", state=states[0])
            self.trap, self.state = {}, states[0]
        if self.state == "closed":
            self.closed = True
            return
        received, sent = self.merge(reports, "received"), self.merge(reports, "sent")
        invalid = set.union(*(report["invalid"] for report in reports))
        for name in received:
            self.look(name, invalid)
        output = create_model_runner_output(
            [self.requests[name] for name in names], finished_sending=sent, finished_recving=received,
            invalid_block_ids=invalid,
        )
        for client in self.scheduler.update_from_output(planned, output).values():
            for one in client.outputs:
                self.finished(one)

    def merge(self, reports: list[dict[str, Any]], what: str) -> set[str]:
        """The requests of which every rank has reported this by now."""
        counts = self.partly.setdefault(what, {})
        for report in reports:
            for name in report[what]:
                counts[name] = counts.get(name, 0) + 1
        whole = {name for name, count in counts.items() if count == self.rank.ranks}
        for name in whole:
            del counts[name]
        return whole

    def look(self, name: str, invalid: set[int]) -> None:
        """Compares what has come in for a request."""
        blocks = self.of(name)
        if invalid & set(blocks):
            # Whatever came in of it stays; from now on nothing may.
            self.all("poison", blocks)
            return
        wrong = "".join(self.all("check", number(name), blocks))
        seconds = time.monotonic() - self.started[name]
        self.tell("received", id=number(name), wrong=wrong, seconds=seconds, blocks=len(blocks), state=self.state)

    def of(self, name: str) -> list[int]:
        """The blocks of a request's prompt."""
        blocks = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        return held_blocks(blocks, self.requests[name].num_prompt_tokens)

    def finished(self, output: Any) -> None:
        """Tells of a request that ended."""
        if output.finish_reason is None:
            return
        reason = str(output.finish_reason)
        seconds = time.monotonic() - self.started[output.request_id]
        if output.kv_transfer_params:
            self.tell("prefilled", id=number(output.request_id), params=output.kv_transfer_params)
        elif reason not in ("length", "stop"):
            self.tell(
                "failed",
                id=number(output.request_id),
                reason=reason,
                seconds=seconds,
                state=self.state,
                refused=sum(self.all("refusals")),
            )

    def settle(self, seconds: float) -> None:
        """Steps until no block is in use."""
        end = time.monotonic() + seconds
        total = self.blocks.get_num_free_blocks
        while True:
            self.step()
            used = self.rank.options.blocks - 1 - total()
            held = sum(self.all("held"))
            if (used == 0 and held == 0 and not self.scheduler.requests) or time.monotonic() > end:
                break
            time.sleep(0.01)
        elsewhere = "".join(self.all("elsewhere"))
        self.tell(
            "settled",
            used=used,
            held=held,
            requests=len(self.scheduler.requests),
            elsewhere=elsewhere,
            refused=sum(self.all("refusals")),
        )

    def run(self) -> None:
        """Steps, and does what it is told, until the end."""
        self.tell("ready")
        while not self.closed:
            command = self.command()
            if command.get("do") == "end":
                break
            if command.get("do") == "settle":
                self.settle(command["seconds"])
            elif command:
                self.add(command)
            self.step()
        changed = "".join(self.all("close"))
        self.scheduler.shutdown()
        self.tell("ended", changed=changed, state=self.state, refused=sum(self.all("refusals")))
        self.all("over")

    def command(self) -> dict[str, Any]:
        """The next command, if there is one; the end of input is one too."""
        patience = 0.002 if self.scheduler.requests else 0.02
        if b"\n" not in self.commands and select.select([0], [], [], patience)[0]:
            piece = os.read(0, 1 << 20)
            if not piece:
                return {"do": "end"}
            self.commands += piece
        line, end, rest = self.commands.partition(b"\n")
        if not end:
            return {}
        self.commands = rest
        return json.loads(line)


def number(name: str) -> int:
    """The number of a request, whose name is `id-N`."""
    return int(name.split("-")[1])


def held_blocks(blocks: list[int], tokens: int) -> list[int]:
    """Those of a request's blocks that hold its prompt."""
    return list(blocks[: -(-tokens // BLOCK)])


def main(arguments: list[str]) -> int:
    """Runs one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", choices=("kv_producer", "kv_consumer", "kv_both"), required=True)
    parser.add_argument("--connector", default="NixlConnector", help="vLLM's name of the connector")
    parser.add_argument("--engine", required=True, help="the engine's name, the same on all ranks")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1, help="size of the tensor-parallel group")
    parser.add_argument("--meeting", required=True, help="a file that does not exist, where the ranks meet")
    parser.add_argument("--events", type=int, required=True, help="a file descriptor")
    parser.add_argument("--blocks", type=int, default=64, help="blocks of the cache")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--lease", type=int, default=30, help="seconds for which a producer keeps blocks")
    options = parser.parse_args(arguments)
    rank = Rank(options)
    if options.rank == 0:
        Engine(rank).run()
    else:
        follow(rank)
    return 0

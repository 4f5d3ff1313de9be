"""Drives two real vLLM servers on the CPU, one that prefills and one that decodes, with the `nixl` of this environment
between them: their tokens must be those of one server alone, and the KV cache must have moved.

Scenarios:
  tokens   the same tokens as one server; hits of the external cache and bytes of transfers; another prompt's KV gives other tokens
  rejoin   the prefill server is killed with SIGKILL and started again; the decode server goes on without a restart
  load     50 requests, 4 at a time, some given up at random moments: no wrong token, nothing leaks
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from serving import Refused, Server, ServingError, chosen_path, ours

#: Layers x (K and V) x heads x size of a head x bytes of a value: what a token of the model takes in the cache.
BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 4
BLOCK = 32
#: Seconds for which the prefill server keeps the blocks of a request that nobody fetches. vLLM gives them to others then, and a
#: decode server that stood still for as long reads what is theirs: wrong tokens, whatever carried them.
LEASE = 60
#: Two tokens of a prompt's answer must differ by this much in log probability, so that rounding can't swap them.
MARGIN = 0.02
TOKENS, FEW_TOKENS = 32, 12

SUBJECTS = """
why the sky is blue, how bread rises, what makes tides, how a bicycle stays upright, why leaves change colour, how glass is made,
what a comet is, how vaccines work, why ice floats, how bees find flowers, what causes thunder, how paper is made, why the sea is
salty, how a clock keeps time, what a fossil is, how birds navigate, why metals rust, how yeast grows, what an eclipse is, how
rivers bend
""".replace("\n", " ").strip().split(", ")
PADDING = "Earlier I asked about many other things, and every answer helped me a little more than the one before. "


class Wrong(Exception):
    """A scenario found what must not be; the text says what."""


@dataclass(frozen=True)
class Question:
    """A prompt, and what one server alone answers."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def expect(condition: object, why: str) -> None:
    """Raises `Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(why)


class Pair:
    """The two servers, and a client that asks both as a router would."""

    def __init__(self, model: Path, logs: Path, environment: dict[str, str]) -> None:
        extra = {"kv_lease_duration": LEASE}
        self.prefill = Server("prefill", "kv_producer", model, logs / "prefill.log", environment, extra)
        self.decode = Server("decode", "kv_consumer", model, logs / "decode.log", environment, extra)

    def start(self) -> None:
        """Starts both and waits for both."""
        for server in (self.prefill, self.decode):
            server.start()
        for server in (self.prefill, self.decode):
            server.ready()

    def end(self) -> None:
        """Sees to it that nothing is left."""
        for server in (self.decode, self.prefill):
            server.end()

    def alone(self, prompt: str, count: int) -> Question | None:
        """What the prefill server answers by itself; nothing if two tokens are too close to tell."""
        body = {"prompt": prompt, "logprobs": 2, "return_tokens_as_token_ids": True, **greedy(count)}
        choice = self.prefill.complete(body)["choices"][0]
        gaps = [margin(best) for best in choice["logprobs"]["top_logprobs"]]
        if min(gaps) < MARGIN:
            return None
        return Question(tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"]))

    def fill(self, question: Question) -> dict[str, Any]:
        """Lets the prefill server compute a prompt; where its KV cache lies."""
        asked = {"do_remote_decode": True, "do_remote_prefill": False}
        asked |= dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
        body = {"prompt": question.prompt, "kv_transfer_params": asked, **greedy(1)}
        answer = self.prefill.complete(body)
        params = answer.get("kv_transfer_params")
        expect(params and params.get("remote_block_ids"), f"the prefill server gives no place of the cache: {params}")
        return params

    def ask(self, question: Question, params: dict[str, Any]) -> tuple[int, ...]:
        """Lets the decode server answer with a cache that lies there."""
        choice = self.decode.complete(self.rest(question, params))["choices"][0]
        return tuple(choice["token_ids"])

    def rest(self, question: Question, params: dict[str, Any]) -> dict[str, Any]:
        """What the decode server is sent."""
        return {"prompt": question.prompt, "kv_transfer_params": params, **greedy(len(question.tokens))}

    def both(self, question: Question) -> tuple[int, ...]:
        """A whole request."""
        return self.ask(question, self.fill(question))

    def meet(self, question: Question, tries: int = 5) -> tuple[int, ...]:
        """The first request between two servers. vLLM's handshake fails if the prefill server does not answer within 5 s, as
        may be on a machine that still starts things: then it is asked again."""
        for left in reversed(range(tries)):
            try:
                return self.both(question)
            except Refused as refused:
                if left == 0:
                    raise
                print(f"asking again: {refused}", flush=True)
                time.sleep(2.0)
        raise AssertionError("unreachable")


def greedy(count: int) -> dict[str, Any]:
    """Settings under which the answer has that many tokens, the likeliest each time."""
    return {"max_tokens": count, "temperature": 0.0, "ignore_eos": True, "return_token_ids": True}


def margin(best: dict[str, float]) -> float:
    """By how much the likeliest token leads."""
    first, *others = sorted(best.values(), reverse=True)
    return first - others[0] if others else 0.0


def questions(pair: Pair, count: int, tokens: int, paddings: tuple[int, ...]) -> list[Question]:
    """Prompts of several lengths with the answers of one server."""
    found: list[Question] = []
    for number, subject in enumerate(SUBJECTS):
        padding = PADDING * paddings[number % len(paddings)]
        text = f"<|im_start|>user\n{padding}Explain in two sentences {subject}.<|im_end|>\n<|im_start|>assistant\n"
        question = pair.alone(text, tokens)
        if question is not None:
            found.append(question)
        if len(found) == count:
            return found
    raise Wrong(f"only {len(found)} of {count} prompts have answers without close calls")


def tokens(pair: Pair) -> str:
    """The scenario of that name."""
    asked = questions(pair, 5, TOKENS, (0, 3, 11))
    expect(pair.meet(asked[0]) == asked[0].tokens, "wrong tokens at the first request")
    # The decode server counts what it has moved with its next step.
    pair.decode.complete({"prompt": "x", **greedy(1)})
    before = pair.decode.metrics()
    for question in asked:
        got = pair.both(question)
        expect(got == question.tokens, f"{len(question.prompt)} tokens: {got} instead of {question.tokens}")
    moved = Moved(pair.decode, before)
    prompt = sum(len(question.prompt) for question in asked)
    expect(moved.failed == 0, f"{moved.failed:.0f} transfers failed")
    expect(moved.hits >= prompt - len(asked), f"{moved.hits:.0f} of {prompt} tokens are hits of the external cache")
    expect(moved.hits <= moved.queries, "there are more hits than tokens asked for")
    expect(moved.bytes >= prompt * BYTES_PER_TOKEN, f"{moved.bytes:.0f} bytes moved for {prompt} tokens")
    foreign(pair, asked)
    rate = 100 * moved.hits / moved.queries
    return (
        f"{len(asked)} answers of {TOKENS} tokens like one server's; external cache hits {rate:.1f} %, "
        f"{moved.bytes / 2**20:.1f} MiB in {moved.transfers:.0f} transfers, {moved.descriptors:.0f} descriptors"
    )


def foreign(pair: Pair, asked: list[Question]) -> None:
    """With the cache of another prompt the answer is another: the decode server uses what has moved."""
    mine = asked[0]
    other = next(other for other in asked[1:] if len(other.prompt) >= len(mine.prompt))
    cut = Question(other.prompt[: len(mine.prompt)], mine.tokens)
    got = pair.ask(mine, pair.fill(cut))
    expect(got != mine.tokens, "the answer does not depend on the cache that moved")


class Moved:
    """What the decode server has counted since it was last looked at."""

    def __init__(self, server: Server, before: dict[str, float]) -> None:
        now = server.metrics()

        def since(name: str) -> float:
            if name not in now:
                raise Wrong(f"{server.name} has no metric {name}")
            return now[name] - before.get(name, 0.0)

        self.hits = since("vllm:external_prefix_cache_hits_total")
        self.queries = since("vllm:external_prefix_cache_queries_total")
        self.bytes = since("vllm:nixl_bytes_transferred_sum")
        self.transfers = since("vllm:nixl_bytes_transferred_count")
        self.descriptors = since("vllm:nixl_num_descriptors_sum")
        self.failed = since("vllm:nixl_num_failed_transfers_total")


def rejoin(pair: Pair) -> str:
    """The scenario of that name."""
    asked = questions(pair, 2, FEW_TOKENS, (3,))
    decode = pair.decode.process
    expect(pair.meet(asked[0]) == asked[0].tokens, "wrong tokens before anything was killed")
    stale = pair.fill(asked[1])
    pair.prefill.kill()

    # The prompt was computed, and its cache died with the server: an error, in time, and never other tokens.
    started = time.monotonic()
    try:
        got = pair.ask(asked[1], stale)
    except Refused as refused:
        lost = f"refused ({str(refused)[:80]})"
    else:
        expect(got == asked[1].tokens, f"with the cache of a dead server: {got} instead of {asked[1].tokens}")
        lost = "answered without it"
    took = time.monotonic() - started
    expect(took < 60.0, f"a request for a dead server's cache took {took:.0f} s")

    started = time.monotonic()
    pair.prefill.start()
    pair.prefill.ready()
    back = time.monotonic() - started
    # The decode server counts what it lost with its next step.
    pair.decode.complete({"prompt": "x", **greedy(1)})
    before = pair.decode.metrics()
    started = time.monotonic()
    expect(pair.both(asked[0]) == asked[0].tokens, "wrong tokens after the prefill server came back")
    first = time.monotonic() - started
    expect(pair.both(asked[1]) == asked[1].tokens, "wrong tokens after the prefill server came back")
    moved = Moved(pair.decode, before)
    expect(moved.transfers >= 2 and moved.failed == 0, f"{moved.transfers:.0f} transfers, {moved.failed:.0f} failed")
    expect(pair.decode.process is decode and decode is not None and decode.poll() is None, "the decode server ended")
    return f"its lost request {lost} after {took:.1f} s; back in {back:.0f} s, first answer in {first:.1f} s"


class Tally:
    """How the requests of the load ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}
        self.wrong: list[str] = []

    def add(self, how: str, wrong: str = "") -> None:
        """Counts one."""
        with self._lock:
            self.counts[how] = self.counts.get(how, 0) + 1
            if wrong:
                self.wrong.append(wrong)


def load(pair: Pair, seed: int, requests: int = 50) -> str:
    """The scenario of that name."""
    chance = random.Random(seed)
    asked = questions(pair, 10, FEW_TOKENS, (0, 2, 5, 9, 12))
    expect(pair.meet(asked[0]) == asked[0].tokens, "wrong tokens at the first request")
    play(pair, asked, chance, 12)
    settle(pair)
    before = {server.name: server.footprint() for server in (pair.prefill, pair.decode)}
    counted = pair.decode.metrics()
    tally = play(pair, asked, chance, requests)
    settle(pair)
    expect(not tally.wrong, "; ".join(tally.wrong[:3]))
    moved = Moved(pair.decode, counted)
    expect(moved.failed == 0, f"{moved.failed:.0f} transfers failed")
    expect(sum(tally.counts.values()) == requests, f"{tally.counts} are not {requests} requests")
    expect(tally.counts.get("whole", 0) >= requests // 3, f"too few whole requests: {tally.counts}")
    grown = []
    for server in (pair.prefill, pair.decode):
        now, then = server.footprint(), before[server.name]
        more, fds = now.resident - then.resident, now.descriptors - then.descriptors
        expect(more < 100 << 20, f"{server.name} has grown by {more >> 20} MiB")
        expect(fds <= 8, f"{server.name} holds {fds} more file descriptors")
        grown.append(f"{server.name} {more / 2**20:+.0f} MiB, {fds:+d} descriptors")
    how = ", ".join(f"{count} {name}" for name, count in sorted(tally.counts.items()))
    return f"{how}; no wrong token; all blocks free; {'; '.join(grown)}; {moved.bytes / 2**20:.0f} MiB moved"


def play(pair: Pair, asked: list[Question], chance: random.Random, requests: int) -> Tally:
    """Requests, four at a time."""
    tally = Tally()
    plans = [(chance.choice(asked), chance.random(), chance.random()) for _ in range(requests)]
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(one, pair, tally, *plan) for plan in plans]:
            done.result()
    return tally


def one(pair: Pair, tally: Tally, question: Question, fate: float, moment: float) -> None:
    """A request, which may be given up while it is prefilled, after that, while KV moves or while it is decoded."""
    if fate < 0.1:
        body = {"model": "model", "prompt": question.prompt, **greedy(200)}
        connection = pair.prefill.send("POST", "/v1/completions", body)
        time.sleep(moment * 0.5)
        connection.close()
        tally.add("given up in prefill")
        return
    params = pair.fill(question)
    if fate < 0.2:
        tally.add("never decoded")
    elif fate < 0.3:
        connection = pair.decode.send("POST", "/v1/completions", {"model": "model", **pair.rest(question, params)})
        time.sleep(moment * 0.2)
        connection.close()
        tally.add("given up as KV moved")
    elif fate < 0.4:
        most = 1 + int(moment * (len(question.tokens) - 2))
        got = pair.decode.stream(pair.rest(question, params), most)
        wrong = "" if tuple(got) == question.tokens[: len(got)] and got else f"{got} begins no {question.tokens}"
        tally.add("given up in decode", wrong)
    else:
        got = pair.ask(question, params)
        tally.add("whole", "" if got == question.tokens else f"{got} instead of {question.tokens}")


def settle(pair: Pair, seconds: float = 240.0) -> None:
    """Waits until no block of either server is in use. A server looks at its leases when it has something to do: it gets a
    token to compute now and then."""
    end = time.monotonic() + seconds
    while True:
        used = {}
        for server in (pair.prefill, pair.decode):
            server.complete({"prompt": "x", **greedy(1)})
            now = server.metrics()
            used[server.name] = (
                now["vllm:kv_cache_usage_perc"],
                now["vllm:num_requests_running"],
                now["vllm:num_requests_waiting"],
            )
        if all(not any(values) for values in used.values()):
            return
        expect(time.monotonic() < end, f"blocks stay in use (share, running, waiting): {used}")
        time.sleep(1.0)


def main() -> int:
    """Plays the scenarios asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the model's folder, as gguf_to_hf.py makes it")
    parser.add_argument(
        "--scenario", action="append", choices=("tokens", "rejoin", "load"), help="one of them; again for more"
    )
    parser.add_argument("--seed", type=int, default=20261130, help="of the random choices of the load")
    parser.add_argument("--logs", type=Path, help="where the servers' logs go; a temporary folder otherwise")
    arguments = parser.parse_args()
    # So that an end from outside takes the servers along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    logs = arguments.logs or Path(tempfile.mkdtemp(prefix="vllm-servers-"))
    logs.mkdir(parents=True, exist_ok=True)
    scenarios: dict[str, Callable[[Pair], str]] = {
        "tokens": tokens, "rejoin": rejoin, "load": lambda pair: load(pair, arguments.seed)
    }
    pair = Pair(arguments.model.absolute(), logs, chosen_path())
    try:
        failed = run(pair, {name: scenarios[name] for name in arguments.scenario or scenarios})
    except (ServingError, OSError) as why:
        failed = str(why)
    finally:
        pair.end()
    print(f"RESULT FAIL: {failed}" if failed else "RESULT PASS", flush=True)
    return 1 if failed else 0


def run(pair: Pair, scenarios: dict[str, Callable[[Pair], str]]) -> str:
    """Plays scenarios, the next one also after one that failed; which failed and why, or nothing."""
    started = time.monotonic()
    pair.start()
    print(f"both servers answer after {time.monotonic() - started:.0f} s", flush=True)
    failed = []
    for name, scenario in scenarios.items():
        started = time.monotonic()
        try:
            verdict, told = "PASS in", scenario(pair)
        except (Wrong, ServingError, OSError) as why:
            verdict, told = "FAIL after", str(why)
            failed.append(f"{name}: {why}")
        print(f"{name}: {verdict} {time.monotonic() - started:.1f} s: {told}", flush=True)
    codes = {server.name: server.stop() for server in (pair.decode, pair.prefill)}
    print(f"exit codes: {codes}", flush=True)
    if ours() and any(codes.values()):
        failed.append(f"exit codes {codes}")
    return "; ".join(failed)


if __name__ == "__main__":
    sys.exit(main())

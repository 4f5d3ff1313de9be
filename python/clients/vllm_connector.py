"""Drives vLLM's own NIXL connectors and its scheduler, unmodified, in processes of their own and on CPU memory, against the
`nixl` of this environment. Each byte that moves is compared, and each that must not change.

Modes:
  pull      a consumer reads from a producer, requests of several sizes
  push      a producer writes to a consumer
  tp        a producer of one rank, a consumer of two: each reads its heads' part of every block
  tp-push   the same, written by the producer
  gather    a producer of two ranks, a consumer of one
  rejoin    the producer is killed with SIGKILL while idle and while a transfer runs; another comes under the same address
            each time; the consumer goes on
  release   the producer stops in the middle of a transfer (SIGSTOP); the consumer's connector gives the transfer up and shuts down
  release-push  the consumer stops in the middle of a write; the producer's connector gives it up, if need be after some tries

Run it in the folder `source` that vllm_environment.py makes: it holds the tests of vLLM's source archive and a model's
configuration.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

from serving import HOST, chosen_path, ours
from vllm_scene import Engine, Scene, Wrong, expect

#: Tokens of a prompt whose transfer can be caught while it runs: 420 MB.
BIG = 12000

#: Everything on the loopback device, no hub.
ENVIRONMENT = {
    "KVFERRY_ADDRESS": HOST,
    "UCX_NET_DEVICES": "lo",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
    "OMP_NUM_THREADS": "1",
}


def plain(scene: Scene, ranks: tuple[int, int] = (1, 1)) -> str:
    """Requests of several sizes, one by one and then several at once."""
    producer, consumer = scene.pair(ranks, blocks=256)
    sizes = (1, 32, 56, 500, 1500)
    seconds = [scene.move(producer, consumer, tokens) for tokens in sizes]
    together = [scene.prefill(producer, 300 + 17 * number) for number in range(8)]
    for request in together:
        consumer.do("decode", **request)
    for _ in together:
        told = consumer.event("received")
        expect(not told["wrong"], told["wrong"])
    scene.close(consumer, producer)
    return f"{len(sizes)} requests of {sizes[0]} to {sizes[-1]} tokens, then 8 at once; largest in {seconds[-1]:.3f} s"


def push(scene: Scene, ranks: tuple[int, int] = (1, 1)) -> str:
    """The same with the connector that writes."""
    scene.connector = "NixlPushConnector"
    return plain(scene, ranks)


def rejoin(scene: Scene) -> str:
    """Producers that are killed, and others that come in their place."""
    producer, consumer = scene.pair(blocks=420)
    scene.move(producer, consumer, 500)
    port = producer.port
    producer.kill()

    def another() -> Engine:
        new = Engine(scene, "producer", "kv_producer", port=port, blocks=420)
        new.ready()
        return new

    producer = another()
    first = scene.move(producer, consumer, 700)
    scene.move(producer, consumer, BIG)
    trap = {"pid": producer.pid, "signal": signal.SIGKILL}
    consumer.do("decode", trap=trap, **scene.prefill(producer, BIG))
    told = consumer.event("failed", "received")
    expect(told["state"] == "PROC", f"the producer was not killed while the transfer ran: {told}")
    expect(told["event"] == "failed", f"a transfer out of a dead process counts as received: {told}")
    producer.kill()
    lost = told["seconds"]
    producer = another()
    second = scene.move(producer, consumer, BIG)
    scene.close(consumer, producer)
    return (
        f"killed while idle: the next request took {first:.3f} s; killed in a transfer of {BIG} tokens: "
        f"failed after {lost:.3f} s, the next took {second:.3f} s"
    )


def release(scene: Scene) -> str:
    """Transfers that are given up while they run, by the connector's own ways to do so: one that it believes to have failed,
    one whose producer does not answer (SIGSTOP), and all of them when it shuts down."""
    producer, consumer = scene.pair(blocks=420)
    scene.move(producer, consumer, BIG)

    consumer.do("decode", trap={"fault": True}, **scene.prefill(producer, BIG))
    given_up = dropped(consumer)
    consumer.settled()
    scene.move(producer, consumer, BIG)
    # Nobody told the producer, which keeps the blocks of the lost request as long as it must.
    producer.settled(60.0)

    stop = {"pid": producer.pid, "signal": signal.SIGSTOP, "fault": True}
    consumer.do("decode", trap=stop, **scene.prefill(producer, BIG))
    try:
        stuck = dropped(consumer)
        consumer.settled()
    finally:
        os.kill(producer.pid, signal.SIGCONT)
    again = scene.move(producer, consumer, 700)

    consumer.do("decode", trap={"close": True}, **scene.prefill(producer, BIG))
    told = consumer.event("ended")
    expect(told["state"] == "closed", f"the connector was not shut down while a transfer ran: {told}")
    expect(not told["changed"], f"after the shutdown: {told['changed']}")
    for process in consumer.processes:
        code = process.wait()
        expect(code == 0 or scene.crash_allowed, f"{consumer.name} ended with {code}")
    producer.settled(60.0)
    producer.close(scene.crash_allowed)
    return (
        f"given up in {given_up['seconds']:.3f} s ({given_up['refused']} refusals); with a stopped producer in "
        f"{stuck['seconds']:.3f} s ({stuck['refused'] - given_up['refused']} refusals), the next took {again:.3f} s; "
        "shut down in a transfer"
    )


def dropped(consumer: Engine) -> dict[str, Any]:
    """The event of a request whose transfer was given up while it ran."""
    told = consumer.event("failed", "received")
    expect(told["state"] == "PROC", f"the transfer did not run when it was to be given up: {told}")
    expect(told["event"] == "failed", f"a transfer that was given up counts as received: {told}")
    return told


def release_push(scene: Scene) -> str:
    """A consumer stops (SIGSTOP) in the middle of a producer's write, which the producer's connector believes to have failed.
    It may give the write up only when nothing of it can land any more: until then it keeps handle and blocks."""
    scene.connector = "NixlPushConnector"
    producer, consumer = scene.pair(blocks=420)
    scene.move(producer, consumer, BIG)
    trap = {"pid": consumer.pid, "signal": signal.SIGSTOP, "fault": True, "tell": True}
    consumer.do("decode", **scene.prefill(producer, BIG, trap=trap))
    told = producer.event("sprung")
    expect(told["state"] == "PROC", f"the write did not run when it was to be given up: {told}")
    refused = producer.settled(90.0)["refused"]
    # What the consumer waits for never comes. Another one takes its place.
    consumer.kill()
    consumer = Engine(scene, "consumer", "kv_consumer", blocks=420)
    consumer.ready()
    again = scene.move(producer, consumer, 700)
    scene.close(consumer, producer)
    return f"given up after {refused} refusals; another consumer's request took {again:.3f} s"


MODES: dict[str, Callable[[Scene], str]] = {
    "pull": plain,
    "push": push,
    "tp": lambda scene: plain(scene, (1, 2)),
    "tp-push": lambda scene: push(scene, (1, 2)),
    "gather": lambda scene: plain(scene, (2, 1)),
    "rejoin": rejoin,
    "release": release,
    "release-push": release_push,
}


def main() -> int:
    """Plays the modes asked for, the next one also after one that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="+", choices=MODES, metavar="MODE")
    parser.add_argument("--logs", type=Path, help="where the engines' logs go; a temporary folder otherwise")
    arguments = parser.parse_args()
    folder = arguments.logs or Path(tempfile.mkdtemp(prefix="vllm-connector-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(chosen_path())
    os.environ.update(ENVIRONMENT)
    failed = []
    for mode in arguments.modes:
        why = play(mode, Scene(folder.absolute(), not ours()))
        if why:
            failed.append(why)
    print(f"RESULT FAIL: {'; '.join(failed)}" if failed else "RESULT PASS", flush=True)
    return 1 if failed else 0


def play(mode: str, scene: Scene) -> str:
    """Plays a mode and tells of it; why it failed, or nothing."""
    started = time.monotonic()
    try:
        verdict, told, failed = "PASS", MODES[mode](scene), ""
    except (Wrong, OSError) as why:
        verdict, told, failed = "FAIL", f"{why} (logs in {scene.folder})", f"{mode}: {why}"
    finally:
        scene.end()
    print(f"{mode}: {verdict} in {time.monotonic() - started:.1f} s: {told}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

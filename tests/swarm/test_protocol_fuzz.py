"""The master's ear: 100,000 messages that nobody of ours would send, and a run that goes on beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from loadtest.replay.tally import Seen
from loadtest.swarm import protocol
from loadtest.swarm.coordinator import Coordinator
from loadtest.swarm.protocol import Assignment, Batch, Beat, Claim, Go, Ping, Ready
from tests.swarm.stage import Letter, stage
from tests.swarm.test_coordinator import HERE, plan

MESSAGES = 100_000
KINDS = (protocol.CLAIM, protocol.READY, protocol.BEAT, protocol.PING, protocol.BATCH)
VALUES: tuple[object, ...] = (
    *(None, True, 0, -1, 2**63 - 1, 2**64 - 1, 1.5, float("nan"), float("inf")),
    *("", "r1", "r2", "x" * 300, "\x1b[2J\0", b"", b"\xff" * 9, [], [1, [2]], {}, {"run": "r1"}, [0] * 200),
)
HONEST: tuple[msgspec.Struct, ...] = (
    *(Claim("elsewhere", 1), Ready("r1", 0), Ready("r1", 7, 5), Beat("r1", 0, 10, 5, 1, 4, 0), Ping(1)),
    *(Batch("r1", 0, b"abc"), Batch("r1", 2**60, b"abc"), Beat("r1", 0, seen=Seen()), Beat("r1", -9)),
)


def crafted(rng: np.random.Generator) -> object:
    """Bytes of the right form with wrong values, cut, flipped or grown; or nothing like a message."""
    form = rng.integers(6)
    if form == 0:
        return rng.bytes(int(rng.integers(0, 40)))
    if form == 1:
        return VALUES[rng.integers(len(VALUES))]
    fields = dict(msgspec.structs.asdict(HONEST[rng.integers(len(HONEST))]))
    if form < 4:
        name = list(fields)[rng.integers(len(fields))]
        fields[name] = VALUES[rng.integers(len(VALUES))]
        return msgspec.msgpack.encode(fields)
    data = bytearray(msgspec.msgpack.encode(fields))
    at = int(rng.integers(len(data)))
    data[at] ^= 1 << int(rng.integers(8))
    return bytes(data if form == 4 else data[:at])


def test_no_message_ends_or_bends_the_run(tmp_path: Path) -> None:
    """Nothing raises; the worker that was there before keeps its shard, finishes, and what it said counts."""
    scene: Any = stage()
    coordinator = Coordinator(scene)
    coordinator.begin(plan(1, directory=tmp_path))
    scene.say(protocol.CLAIM, HERE, "worker")
    scene.say(protocol.READY, Ready("r1", 0), "worker")
    assert 1 == len(scene.heard(protocol.GO, Go))
    rng = np.random.default_rng(0)
    listeners: dict[str, Callable[..., None]] = scene.runner.listeners
    for number in range(MESSAGES):
        letter = Letter(crafted(rng), f"stranger {number % 50}")  # type: ignore[arg-type]
        listeners[KINDS[rng.integers(len(KINDS))]](environment=scene, msg=letter)
        if number % 1000 == 0:
            coordinator.check()
            coordinator.progress()
            scene.runner.sent.clear()
    assert not coordinator.over
    assert not coordinator.error
    assert [] == list(tmp_path.iterdir())
    scene.say(protocol.BEAT, Beat("r1", 0, planned=3, sent=3, finished=3, done=True), "worker")
    assert coordinator.over
    assert (3, 3) == (coordinator.progress().planned, coordinator.progress().finished)


def test_a_worker_that_lies_about_itself_ends_nothing(tmp_path: Path) -> None:
    """One that holds the token, and a shard, sends the same: its part is its own, the other's is untouched."""
    scene: Any = stage()
    coordinator = Coordinator(scene)
    coordinator.begin(plan(2, directory=tmp_path))
    for client in ("liar", "honest"):
        scene.say(protocol.CLAIM, HERE, client)
        scene.say(protocol.READY, Ready("r1", 0), client)
    assert 2 == len(scene.heard(protocol.ASSIGN, Assignment))
    rng = np.random.default_rng(1)
    for number in range(MESSAGES // 10):
        kind = KINDS[rng.integers(len(KINDS))]
        data = crafted(rng)
        if kind == protocol.BEAT and isinstance(data, bytes) and says_the_end(data):
            continue
        scene.runner.listeners[kind](environment=scene, msg=Letter(data, "liar"))  # type: ignore[arg-type]
        if number % 100 == 0:
            coordinator.check()
            coordinator.progress()
    scene.say(protocol.BEAT, Beat("r1", 1, planned=3, finished=3, done=True), "honest")
    scene.say(protocol.BEAT, Beat("r1", 0, done=True), "liar")
    assert coordinator.over
    assert not coordinator.lost


def says_the_end(data: bytes) -> bool:
    """A worker may end its own part, or say that it cannot go on: that is no lie to be tested."""
    try:
        beat = protocol.unpack(data, Beat)
    except msgspec.DecodeError:
        return False
    return beat.done or bool(beat.error) or bool(beat.aborted)


@pytest.mark.parametrize("data", VALUES, ids=str)
def test_values_of_every_type_are_dropped(data: object) -> None:
    """Locust's own decoder may hand over anything that msgpack can say."""
    heard: list[object] = []
    listen = __import__("loadtest.swarm.doorman", fromlist=["polite"]).polite(
        lambda msg: heard.append(protocol.unpack(msg.data, Ping))
    )
    listen(msg=SimpleNamespace(data=data, node_id="w"))
    assert [] == heard

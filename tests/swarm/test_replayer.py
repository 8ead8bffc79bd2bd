"""The replayer: one shard per test, owned by the process and not by a Locust user."""

from __future__ import annotations

import gc
from typing import Any

import gevent
import pytest

from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import Progress, SenderOptions
from loadtest.swarm import protocol
from loadtest.swarm.protocol import Assignment, Beat, Claim, Go, Ready, Stop
from loadtest.swarm.replayer import OnRequest, Replayer, Shard
from tests.swarm.stage import stage


class Sender:
    """Is done after so many turns."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.started_at_ns: list[int] = []
        self.closed = 0
        self.gc_was_on: bool | None = None

    @property
    def done(self) -> bool:
        return self.turns == 0

    def start(self, t0_ns: int) -> None:
        self.started_at_ns.append(t0_ns)
        self.gc_was_on = gc.isenabled()

    def stop(self) -> None:
        self.turns = 0

    def progress(self) -> Progress:
        return Progress(10, 10 - self.turns, 0, 10 - self.turns, 1)

    def turn(self, _: float) -> None:
        self.turns = max(self.turns - 1, 0)
        gevent.sleep(0)

    def close(self) -> None:
        self.closed += 1


def assignment(run: str = "r1") -> Assignment:
    return Assignment(run, 0, 1, "schedule.npz", "records-0.bin", Endpoint.parse("http://h"), SenderOptions(), "hub")


@pytest.fixture
def sender() -> Sender:
    return Sender(turns=3)


@pytest.fixture
def scene(sender: Sender) -> Any:
    made = stage()

    def build(_: Assignment, on_request: OnRequest) -> Shard:
        made.on_request = on_request
        return Shard(sender, sender.turn, sender.close)

    made.replayer = Replayer(made, build)
    return made


def run_greenlets() -> None:
    """Let everything that was spawned finish."""
    for _ in range(20):
        gevent.sleep(0)


def test_one_claim_per_test(scene: Any) -> None:
    """However many users Locust starts in this process, it asks for one shard; again in the next test."""
    scene.replayer.claim()
    scene.replayer.claim()
    assert 1 == len(scene.heard(protocol.CLAIM, Claim))
    scene.events.test_start.fire(environment=scene)
    scene.replayer.claim()
    assert 2 == len(scene.heard(protocol.CLAIM, Claim))


def test_a_shard_is_loaded_started_and_reported(scene: Any, sender: Sender) -> None:
    """Assignment, Ready, Go at the instant given, a last beat that says done, the journal closed."""
    scene.say(protocol.ASSIGN, assignment())
    assert [Ready("r1", 0)] == scene.heard(protocol.READY, Ready)
    assert [] == sender.started_at_ns
    scene.say(protocol.GO, Go("r1", 12345))
    run_greenlets()
    assert [12345] == sender.started_at_ns
    assert 1 == sender.closed
    assert Beat("r1", 0, 10, 10, 0, 10, 1, done=True) == scene.heard(protocol.BEAT, Beat)[-1]


def test_no_garbage_collection_while_measuring(scene: Any, sender: Sender) -> None:
    """The collector is off from Ready to the end, and on again afterwards."""
    scene.say(protocol.ASSIGN, assignment())
    scene.say(protocol.GO, Go("r1", 1))
    run_greenlets()
    assert sender.gc_was_on is False
    assert gc.isenabled()


def test_go_twice_starts_once(scene: Any, sender: Sender) -> None:
    """A repeated Go, or one of another run, does nothing."""
    scene.say(protocol.ASSIGN, assignment())
    scene.say(protocol.GO, Go("r0", 1))
    scene.say(protocol.GO, Go("r1", 2))
    scene.say(protocol.GO, Go("r1", 3))
    run_greenlets()
    assert [2] == sender.started_at_ns


def test_stop_of_another_run_is_not_ours(scene: Any, sender: Sender) -> None:
    """Only the run's own Stop ends the sender early."""
    sender.turns = 1000
    scene.say(protocol.ASSIGN, assignment())
    scene.say(protocol.GO, Go("r1", 1))
    scene.say(protocol.STOP, Stop("r0"))
    run_greenlets()
    assert not sender.done
    scene.say(protocol.STOP, Stop("r1"))
    run_greenlets()
    assert sender.done
    assert scene.heard(protocol.BEAT, Beat)[-1].done


def test_the_end_of_the_test_stops_the_sender_and_frees_the_user(scene: Any, sender: Sender) -> None:
    """Locust's stop, by shape, key or web page, ends an unfinished replay in order."""
    sender.turns = 1000
    scene.say(protocol.ASSIGN, assignment())
    scene.say(protocol.GO, Go("r1", 1))
    gevent.sleep(0)
    scene.events.test_stopping.fire(environment=scene)
    run_greenlets()
    assert scene.replayer.stopping.is_set()
    assert 1 == sender.closed


def test_a_shard_that_never_started_closes_its_journal(scene: Any, sender: Sender) -> None:
    """An interrupt between Ready and Go leaves a journal that has an end, and the collector on."""
    scene.say(protocol.ASSIGN, assignment())
    scene.say(protocol.STOP, Stop("r1"))
    assert 1 == sender.closed
    assert gc.isenabled()
    scene.say(protocol.GO, Go("r1", 1))
    assert [] == sender.started_at_ns


def test_never_two_senders_in_one_process(scene: Any, sender: Sender) -> None:
    """A second assignment while a sender is at work is answered with an error."""
    sender.turns = 1000
    scene.say(protocol.ASSIGN, assignment("r1"))
    scene.say(protocol.GO, Go("r1", 1))
    scene.say(protocol.ASSIGN, assignment("r2"))
    assert "busy" in scene.heard(protocol.BEAT, Beat)[-1].error
    scene.say(protocol.STOP, Stop("r1"))
    run_greenlets()


def test_a_shard_that_cannot_be_built_says_why() -> None:
    """The coordinator gets the reason instead of a silent worker."""
    made = stage()

    def build(_: Assignment, __: OnRequest) -> Shard:
        raise OSError("disk full")

    Replayer(made, build)
    made.say(protocol.ASSIGN, assignment())
    assert "OSError: disk full" == made.heard(protocol.BEAT, Beat)[-1].error
    assert gc.isenabled()


def test_requests_become_locust_events(scene: Any) -> None:
    """Locust's statistics, CSV and web page see every finished request."""
    seen: list[dict[str, Any]] = []
    scene.events.request.add_listener(lambda **fields: seen.append(fields))
    scene.say(protocol.ASSIGN, assignment())
    scene.on_request("request", 12.5, 0, "http_429")
    assert ("request", 12.5, "http_429") == (seen[0]["name"], seen[0]["response_time"], seen[0]["exception"])
    scene.say(protocol.STOP, Stop("r1"))

"""One worker's shard put together: schedule rows, prompts, journal, sender, and the loop that drives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gevent

from loadtest import clock
from loadtest.errors import UsageError
from loadtest.replay.reactor import EpollReactor, HubReactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.sender import Sender
from loadtest.swarm.protocol import Assignment
from loadtest.swarm.replayer import OnRequest, Shard
from metrics.journal import JournalWriter
from workloads.prompts import Prompts
from workloads.schedule import Schedule

REACTORS = ("hub", "epoll")


def build(assignment: Assignment, on_request: OnRequest) -> Shard:
    """Everything a worker needs to start at a word; raises what reading the schedule or making files raises."""
    assignment.endpoint.hold_secrets()
    schedule = Schedule.load(assignment.schedule_path)
    if not assignment.schedule:
        schedule = schedule.shard(assignment.worker, assignment.workers)
    reactor, turn = _reactor(assignment.reactor)
    journal = JournalWriter(Path(assignment.journal_path), assignment.worker, assignment.run)
    recorder = Recorder(journal, schedule, assignment.worker, assignment.options.slo)
    sender = Sender(
        assignment.endpoint,
        schedule,
        Prompts.of(schedule),
        assignment.options,
        recorder,
        reactor,
        on_request=on_request,
    )
    return Shard(sender, turn, recorder.close, recorder.abandon)


def _reactor(name: str) -> tuple[HubReactor | EpollReactor, Callable[[float], object]]:
    """The loop, and how to let it run for some seconds."""
    if name == "hub":
        hub = HubReactor()
        return hub, lambda seconds: _turn_hub(hub, seconds)
    if name == "epoll":
        reactor = EpollReactor()
        return reactor, lambda seconds: _turn_epoll(reactor, seconds)
    raise UsageError(f"there is no reactor {name!r}", hint=f"choose from {', '.join(REACTORS)}")


def _turn_hub(reactor: HubReactor, seconds: float) -> None:
    """The hub works while this greenlet sleeps; raises what a callback has raised meanwhile, once."""
    gevent.sleep(seconds)
    failure, reactor.failure = reactor.failure, None
    if failure is not None:
        raise failure


def _turn_epoll(reactor: EpollReactor, seconds: float) -> None:
    """The bare loop works; between turns the hub gets its moment, for heartbeats and the coordinator's words."""
    end_ns = clock.monotonic_ns() + int(seconds * 1e9)
    reactor.run_until(lambda: clock.monotonic_ns() >= end_ns)
    gevent.sleep(0)

"""The engine on a clock that moves only when told, around a cluster whose every move is scripted."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import pytest

from loadtest.backends.cluster import ClusterStats, Emission, PromptTooLong, QueueFull, Spans
from loadtest.backends.emulated import EmulatedEngine, emulated_engine
from loadtest.backends.server.engine import Refused
from loadtest.backends.server.engine import Spans as ServedSpans
from loadtest.clock import VirtualClock
from loadtest.deployment import Deployment
from loadtest.errors import UsageError


class ScriptedCluster:
    """Each request's tokens come 1 s apart, the first after 1 s."""

    model_name = "scripted"
    max_model_len = 100

    def __init__(self) -> None:
        self.due: list[tuple[float, int, int, bool]] = []
        self.calls: list[tuple[str, float]] = []
        self.prompts: list[int] = []
        self.aborted: list[int] = []
        self.refusal: Exception | None = None

    def submit(self, request_id: int, prompt_tokens: int, output_tokens: int, now: float) -> None:
        self.calls.append(("submit", now))
        self.prompts.append(prompt_tokens)
        if self.refusal is not None:
            raise self.refusal
        for index in range(output_tokens):
            heapq.heappush(self.due, (now + index + 1, request_id, index, index == output_tokens - 1))

    def next_deadline(self) -> float | None:
        return self.due[0][0] if self.due else None

    def advance(self, now: float) -> list[Emission]:
        self.calls.append(("advance", now))
        emissions = []
        while self.due and self.due[0][0] <= now:
            time, request_id, index, finished = heapq.heappop(self.due)
            emissions.append(Emission(request_id, time, index, finished))
        return emissions

    def abort(self, request_id: int) -> None:
        self.aborted.append(request_id)
        self.due = [entry for entry in self.due if entry[1] != request_id]

    def stats(self) -> ClusterStats:
        return ClusterStats(2, 3, 0.5, 7, 11, 0, 0, 0.0, 0.0)

    def spans(self, request_id: int) -> Spans:
        return Spans(queue_s=request_id + 0.25, prefill_s=0.5, transfer_s=0.0, decode_s=1.0)


class FakeAlarm:
    """Remembers its deadline; the test rings it."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.deadline: float | None = None
        self.closed = False

    def set(self, deadline: float | None) -> None:
        self.deadline = deadline

    def close(self) -> None:
        self.closed = True


class Ear:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.tokens: list[tuple[float, bool]] = []
        self.heard_spans: list[ServedSpans] = []

    def token(self, time_s: float, finished: bool) -> None:
        self.tokens.append((time_s, finished))

    def spans(self, spans: ServedSpans) -> None:
        assert not self.tokens or not self.tokens[-1][1], "spans come before the last token"
        self.heard_spans.append(spans)


class Bench:
    """An engine with everything around it under the test's control."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        self.clock = VirtualClock(100.0)
        self.alarms: list[FakeAlarm] = []
        self.engine = EmulatedEngine(self.cluster, self.clock, self._new_alarm)  # type: ignore[arg-type]

    @property
    def alarm(self) -> FakeAlarm:
        (alarm,) = self.alarms
        return alarm

    def ring_at(self, instant: float) -> None:
        self.clock.advance_to(instant)
        self.alarm.ring()

    def _new_alarm(self, ring: Callable[[], None]) -> FakeAlarm:
        self.alarms.append(FakeAlarm(ring))
        return self.alarms[-1]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_tokens_carry_their_due_time_however_late_the_alarm(bench: Bench) -> None:
    """A late wake-up hands over what was due, with the times of the schedule, and does not shift what follows."""
    ear = Ear()
    bench.engine.submit(10, 3, ear)
    assert bench.alarm.deadline == 101.0
    bench.ring_at(102.6)
    assert [10] == bench.cluster.prompts
    assert [(101.0, False), (102.0, False)] == ear.tokens
    assert bench.alarm.deadline == 103.0
    bench.ring_at(103.0)
    assert (103.0, True) == ear.tokens[-1]
    assert bench.alarm.deadline is None


def test_due_tokens_go_out_before_a_new_request_enters(bench: Bench) -> None:
    """The cluster's time never goes back, so `submit` first brings it to the present."""
    ear = Ear()
    bench.engine.submit(10, 2, ear)
    bench.clock.advance_to(101.5)
    bench.engine.submit(10, 1, Ear())
    assert [(101.0, False)] == ear.tokens
    assert [("advance", 101.5), ("submit", 101.5)] == bench.cluster.calls[-2:]
    assert bench.alarm.deadline == 102.0


def test_every_request_has_an_id_of_its_own(bench: Bench) -> None:
    """Two listeners never share tokens."""
    first, second = Ear(), Ear()
    assert bench.engine.submit(1, 1, first) != bench.engine.submit(1, 2, second)
    bench.ring_at(110.0)
    assert [(101.0, True)] == first.tokens
    assert [(101.0, False), (102.0, True)] == second.tokens


def test_spans_are_told_before_the_last_token(bench: Bench) -> None:
    """A listener knows where the time went when it closes its answer."""
    ear = Ear()
    request_id = bench.engine.submit(10, 2, ear)
    bench.ring_at(101.0)
    assert [] == ear.heard_spans
    bench.ring_at(102.0)
    assert [ServedSpans(request_id + 0.25, 0.5, 0.0, 1.0)] == ear.heard_spans


def test_abort_frees_the_cluster_and_silences_the_listener(bench: Bench) -> None:
    """After an abort nothing is heard, the alarm is off, and aborting again is harmless."""
    ear = Ear()
    request_id = bench.engine.submit(10, 2, ear)
    bench.engine.abort(request_id)
    bench.engine.abort(request_id)
    assert [request_id] == bench.cluster.aborted
    assert bench.alarm.deadline is None
    bench.ring_at(105.0)
    assert [] == ear.tokens


def test_abort_after_the_last_token_does_not_reach_the_cluster(bench: Bench) -> None:
    """A client that closes after [DONE] aborts nothing."""
    request_id = bench.engine.submit(10, 1, Ear())
    bench.ring_at(101.0)
    bench.engine.abort(request_id)
    assert [] == bench.cluster.aborted


@pytest.mark.parametrize(
    ("refusal", "status", "retry_after_s"), [(PromptTooLong("too long"), 400, None), (QueueFull("full"), 429, 1)]
)
def test_refusals_become_statuses(bench: Bench, refusal: Exception, status: int, retry_after_s: int | None) -> None:
    """A prompt that can never run is 400, a full queue 429 with Retry-After; neither is listened to."""
    bench.cluster.refusal = refusal
    with pytest.raises(Refused) as raised:
        bench.engine.submit(10, 1, Ear())
    assert (status, str(refusal), retry_after_s) == (
        raised.value.status,
        raised.value.message,
        raised.value.retry_after_s,
    )
    assert bench.alarm.deadline is None


def test_load_is_the_clusters(bench: Bench) -> None:
    """/metrics shows what the cluster holds."""
    assert (2, 3, 0.5, 7, 11) == bench.engine.load()
    assert ("scripted", 100, 100.0) == (bench.engine.model, bench.engine.max_model_len, bench.engine.now())
    bench.engine.close()
    assert bench.alarm.closed


def test_a_prefix_cache_is_refused_instead_of_ignored() -> None:
    """The server never looks at prompts, so the option would change nothing."""
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(UsageError, match="no prefix cache"):
            emulated_engine(Deployment.parse("emulated:chunked,prefix_cache=on"), loop)
    finally:
        loop.close()

"""The emulated server: the simulated cluster on the real clock.

An iteration that the performance model gives 25 ms ends 25 ms after its start by the clock, whenever the
event loop gets round to it: deadlines are absolute, so lateness never adds up.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from loadtest.backends import cluster as clusters
from loadtest.backends.server.alarm import Alarm, new_alarm
from loadtest.backends.server.engine import Listener, Load, Refused, Spans
from loadtest.clock import Clock, MonotonicClock
from loadtest.deployment import Deployment
from loadtest.errors import UsageError

_RETRY_AFTER_S = 1


class EmulatedEngine:
    """Drives a cluster and hands each token to its request's listener at its instant."""

    def __init__(self, cluster: clusters.Cluster, clock: Clock, alarm: Callable[[Callable[[], None]], Alarm]) -> None:
        """`alarm` makes the alarm that calls the function it is given."""
        self._cluster = cluster
        self._clock = clock
        self._ids = itertools.count()
        self._listeners: dict[int, Listener] = {}
        self._alarm = alarm(self._ring)

    @property
    def model(self) -> str:
        return self._cluster.model_name

    @property
    def max_model_len(self) -> int:
        return self._cluster.max_model_len

    def now(self) -> float:
        return self._clock.now()

    def submit(self, prompt_tokens: int, output_tokens: int, listener: Listener) -> int:
        now = self._clock.now()
        self._emit(now)  # what is due comes first: the cluster's time never goes back
        request_id = next(self._ids)
        try:
            self._cluster.submit(request_id, prompt_tokens, output_tokens, now)
        except clusters.PromptTooLong as error:
            raise Refused(400, str(error)) from None
        except clusters.QueueFull as error:
            raise Refused(429, str(error), retry_after_s=_RETRY_AFTER_S) from None
        self._listeners[request_id] = listener
        self._alarm.set(self._cluster.next_deadline())
        return request_id

    def abort(self, request_id: int) -> None:
        if self._listeners.pop(request_id, None) is not None:
            self._cluster.abort(request_id)
            self._alarm.set(self._cluster.next_deadline())

    def load(self) -> Load:
        stats = self._cluster.stats()
        return Load(stats.running, stats.waiting, stats.kv_usage, stats.preemptions, stats.transferred_bytes)

    def close(self) -> None:
        """Ring no more."""
        self._alarm.close()

    def _ring(self) -> None:
        self._emit(self._clock.now())
        self._alarm.set(self._cluster.next_deadline())

    def _emit(self, now: float) -> None:
        for emission in self._cluster.advance(now):
            listener = self._listeners.get(emission.request_id)
            if listener is None:
                continue
            if emission.finished:
                del self._listeners[emission.request_id]
                spans = self._cluster.spans(emission.request_id)
                listener.spans(Spans(spans.queue_s, spans.prefill_s, spans.transfer_s, spans.decode_s))
            listener.token(emission.time, emission.finished)


def emulated_engine(deployment: Deployment, loop: asyncio.AbstractEventLoop) -> EmulatedEngine:
    """The engine of an `emulated:` deployment on the machine's clock; raises UsageError for another backend."""
    if deployment.backend != "emulated":
        raise UsageError(
            f"this server cannot serve {str(deployment)!r}: it is not an emulated deployment",
            hint="write emulated:chunked, emulated:colocated or emulated:disaggregated",
            code="bad_deployment",
        )
    if deployment["prefix_cache"] == "on":
        raise UsageError(
            "the emulated server counts the tokens of a prompt and does not look at them: it has no prefix cache",
            hint="leave prefix_cache out, or simulate (goodput run --virtual)",
            code="bad_deployment",
        )
    return EmulatedEngine(clusters.Cluster(deployment), MonotonicClock(), lambda ring: new_alarm(loop, ring))

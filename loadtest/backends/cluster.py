"""Pools of instances, routing and KV transfer: the one thing that the simulator and the emulated server both drive.

    cluster.submit(id, prompt_tokens, output_tokens, now)    when a request arrives
    cluster.next_deadline()                                  when something happens next, absolute
    cluster.advance(now)                                     everything due by `now`, in time order

An iteration starts at the deadline of the one before it, or at the arrival that woke an idle instance; `now` only says
how far to go. So a late caller delays no iteration, and the same arrivals give the same tokens however often
`advance` is called.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from itertools import chain

import msgspec

from loadtest.backends.instance import Instance
from loadtest.backends.kvlink import Port, transfer
from loadtest.backends.request import Emission, Request, Spans
from loadtest.backends.router import ROUTERS
from loadtest.backends.spec import ClusterSpec, Pool, resolve
from loadtest.deployment import Deployment

__all__ = ["Cluster", "ClusterStats", "Emission", "PromptTooLong", "QueueFull", "Spans"]


class PromptTooLong(ValueError):
    """Prompt plus output exceed the model's context; the message is vLLM's, for an HTTP 400."""


class QueueFull(Exception):
    """`max_queue` requests are waiting already: for an HTTP 429."""


class ClusterStats(msgspec.Struct, frozen=True):
    """All instances together, now; counters since the start."""

    running: int
    waiting: int  # for admission, or for their KV
    kv_usage: float  # share of all KV blocks
    preemptions: int
    transferred_bytes: int
    prompt_tokens: int  # computed, recomputations included
    generated_tokens: int
    busy_s: float  # sum over instances, whole iterations counted at their start
    extrapolated_s: float  # of it, outside the range the performance model was fitted on

    @property
    def extrapolated_share(self) -> float:
        """Share of busy time outside the calibrated range, 0 to 1."""
        return self.extrapolated_s / self.busy_s if self.busy_s else 0.0


class Cluster:
    """A deployment at work; times are seconds on the caller's clock, which must not go back."""

    def __init__(self, deployment: Deployment | ClusterSpec, *, every_token: bool = True) -> None:
        self.spec = resolve(deployment) if isinstance(deployment, Deployment) else deployment
        self._every_token = every_token
        self._pools = [self._instances(pool) for pool in self.spec.pools]
        self._route, *self._route_decode = (ROUTERS[self.spec.router](pool) for pool in self._pools)
        self._ports = {instance: Port() for instance in chain(*self._pools)}
        self._requests: dict[int, Request] = {}
        self._ended: dict[int, Request] = {}  # since the last `advance`
        self._reported: dict[int, Request] = {}  # by the last `advance`
        # (when, order of scheduling, whose iteration ends, or whose KV has landed)
        self._events: list[tuple[float, int, Instance | Request]] = []
        self._scheduled = 0
        self._now = float("-inf")
        self._emissions: list[Emission] = []
        self._transferred_tokens = 0

    def submit(self, request_id: int, prompt_tokens: int, output_tokens: int, now: float) -> Request:
        """Take in a request that arrives `now`; raises PromptTooLong or QueueFull and then has not taken it."""
        if prompt_tokens < 1 or output_tokens < 1 or request_id in self._requests:
            raise ValueError(f"request {request_id} is in use, or asks for {prompt_tokens} + {output_tokens} tokens")
        self._check_length(prompt_tokens, output_tokens)
        now = self._run_to(now)
        if self.spec.max_queue is not None and self._waiting() >= self.spec.max_queue:
            raise QueueFull(f"{self.spec.max_queue} requests are waiting already")
        request = self._requests[request_id] = Request(request_id, prompt_tokens, output_tokens, now)
        instance = self._route()
        instance.add(request)
        self._wake(instance, now)
        return request

    @property
    def model_name(self) -> str:
        """The emulated model."""
        return self.spec.model

    @property
    def max_model_len(self) -> int:
        """The context, prompt and output together."""
        return self.spec.max_model_len

    def next_deadline(self) -> float | None:
        """When the next iteration or transfer ends, absolute; None when all is idle."""
        return self._events[0][0] if self._events else None

    def advance(self, now: float) -> list[Emission]:
        """Everything due by `now`, in time order: the tokens since the last call, at their own instants."""
        self._run_to(now)
        emissions, self._emissions = self._emissions, []
        self._reported, self._ended = self._ended, {}
        return emissions

    def abort(self, request_id: int) -> None:
        """Forget a request and free its KV; one that has ended already is no error."""
        request = self._requests.pop(request_id, None)
        if request is None or request.instance is None:
            return
        request.instance.remove(request)
        if request.source is not None:
            request.source.release(request)
            self._wake(request.source, self._now)
        self._wake(request.instance, self._now)

    def spans(self, request_id: int) -> Spans:
        """Seconds a request spent in each phase: one that is here, or that the last `advance` saw end."""
        return ChainMap(self._requests, self._ended, self._reported)[request_id].spans

    def stats(self) -> ClusterStats:
        """Gauges and counters over all instances."""
        instances = list(self._ports)
        blocks = sum(instance.limits.num_blocks for instance in instances)
        return ClusterStats(
            running=sum(len(instance.running) for instance in instances),
            waiting=self._waiting(),
            kv_usage=1 - sum(instance.free_blocks for instance in instances) / blocks,
            preemptions=sum(instance.preemptions for instance in instances),
            transferred_bytes=self._transferred_tokens * (self.spec.link.kv_bytes_per_token if self.spec.link else 0),
            prompt_tokens=sum(instance.prompt_tokens for instance in instances),
            generated_tokens=sum(instance.generated_tokens for instance in instances),
            busy_s=sum(instance.busy_s for instance in instances),
            extrapolated_s=sum(instance.extrapolated_s for instance in instances),
        )

    def _instances(self, pool: Pool) -> list[Instance]:
        return [
            Instance(
                pool.perf, pool.policy, pool.limits, hands_off=pool.role == "prefill", every_token=self._every_token
            )
            for _ in range(pool.instances)
        ]

    def _check_length(self, prompt_tokens: int, output_tokens: int) -> None:
        total = prompt_tokens + output_tokens
        if total > self.spec.max_model_len:
            raise PromptTooLong(
                f"This model's maximum context length is {self.spec.max_model_len} tokens. However, you requested "
                f"{total} tokens ({prompt_tokens} in the messages, {output_tokens} in the completion). "
                "Please reduce the length of the messages or completion."
            )

    def _waiting(self) -> int:
        return sum(len(instance.waiting) + len(instance.reserved) for instance in self._ports)

    def _run_to(self, now: float) -> float:
        """Process what is due; returns `now`, or the latest one if the caller's clock went back."""
        self._now = now = max(now, self._now)
        events = self._events
        while events and events[0][0] <= now:
            when, _, subject = heapq.heappop(events)
            if isinstance(subject, Instance):
                self._end_iteration(subject, when)
            elif subject.request_id in self._requests:  # not aborted on the way
                self._land(subject, when)
        return now

    def _wake(self, instance: Instance, now: float) -> None:
        """Begin what an instance can begin: an iteration if it is between two, transfers into its free blocks."""
        if instance.step is None and (step := instance.start(now)):
            self._at(now + step.duration_s, instance)
        for request in instance.pull():
            self._send(request, now)

    def _at(self, when: float, subject: Instance | Request) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (when, self._scheduled, subject))

    def _end_iteration(self, instance: Instance, now: float) -> None:
        finished = instance.finish(now)
        self._emissions += finished.emissions
        for request in finished.ended:
            self._retire(request)
        for request in finished.handed_off:
            self._hand_off(request, instance, now)
        self._wake(instance, now)

    def _hand_off(self, request: Request, source: Instance, now: float) -> None:
        """A computed prompt goes to the decode pool, or is the whole answer if one token was asked for."""
        request.generated = 1
        source.generated_tokens += 1
        last = request.output_tokens == 1
        if last or self.spec.first_token == "prefill":
            self._emit_first(request, now)
        if last:
            source.release(request)
            request.landed = request.done = now
            self._retire(request)
            return
        request.source = source
        target = self._route_decode[0]()
        target.add(request)
        self._wake(target, now)

    def _send(self, request: Request, now: float) -> None:
        assert self.spec.link is not None
        assert request.source is not None
        assert request.instance is not None
        out, into = self._ports[request.source], self._ports[request.instance]
        self._transferred_tokens += request.prompt_tokens
        self._at(transfer(self.spec.link, out, into, request, now), request)

    def _land(self, request: Request, now: float) -> None:
        assert request.source is not None
        assert request.instance is not None
        source, request.source = request.source, None
        request.landed = now
        if self.spec.first_token == "decode":
            self._emit_first(request, now)
        source.release(request)
        request.instance.land(request)
        self._wake(source, now)
        self._wake(request.instance, now)

    def _emit_first(self, request: Request, now: float) -> None:
        self._emissions.append(Emission(request.request_id, now, 0, request.output_tokens == 1))
        if not self._every_token:
            request.pieces.append(now)

    def _retire(self, request: Request) -> None:
        del self._requests[request.request_id]
        self._ended[request.request_id] = request

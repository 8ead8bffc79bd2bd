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
from collections.abc import Sequence
from itertools import chain

import msgspec

from loadtest.backends.instance import Instance, Work
from loadtest.backends.kvlink import Network, transfer
from loadtest.backends.pipeline import Pipeline
from loadtest.backends.prefixcache import PrefixCache
from loadtest.backends.request import Emission, Request, Spans
from loadtest.backends.router import ROUTERS, Router, borrowing
from loadtest.backends.spec import ClusterSpec, Pool, resolve
from loadtest.deployment import Deployment

__all__ = ["Cluster", "ClusterStats", "Emission", "PromptTooLong", "QueueFull", "Spans"]


class PromptTooLong(ValueError):
    """Prompt plus output exceed the model's context; the message is vLLM's, for an HTTP 400."""


class QueueFull(Exception):
    """`max_queue` requests are waiting already: for an HTTP 429."""


class PoolWork(msgspec.Struct, frozen=True):
    """What the instances of a pool did, in seconds summed over them."""

    role: str  # prefill, decode, or empty for both
    busy_s: float
    prefill_s: float  # of it, iterations with prompt tokens
    prefill_iterations: int
    prompt_tokens: int

    @classmethod
    def of(cls, role: str, work: Sequence[Work]) -> PoolWork:
        """Of a pool with this role, whose instances did this."""
        return cls(
            role,
            sum(one.busy_s for one in work),
            sum(one.prefill_s for one in work),
            sum(one.prefill_iterations for one in work),
            sum(one.prompt_tokens for one in work),
        )


class ClusterStats(msgspec.Struct, frozen=True):
    """All instances together, now; counters since the start."""

    running: int
    waiting: int  # for admission, or for their KV
    kv_usage: float  # share of all KV blocks
    preemptions: int
    transferred_bytes: int
    prompt_tokens: int  # computed, recomputations included
    generated_tokens: int
    busy_s: float  # sum over instances, of whole iterations that have ended
    extrapolated_s: float  # of it, outside the range the performance model was fitted on
    prefix_tokens: int = 0  # prompt tokens that the prefix cache spared
    bubble_s: float = 0.0  # groups of requests before a pipeline stage that was taken
    pools: tuple[PoolWork, ...] = ()

    @property
    def extrapolated_share(self) -> float:
        """Share of busy time outside the calibrated range, 0 to 1."""
        return self.extrapolated_s / self.busy_s if self.busy_s else 0.0


class Cluster:
    """A deployment at work; times are seconds on the caller's clock, which must not go back."""

    def __init__(self, deployment: Deployment | ClusterSpec, *, every_token: bool = True) -> None:
        """With `every_token` each token is emitted; without, requests keep their instants and nothing is emitted."""
        self.spec = resolve(deployment) if isinstance(deployment, Deployment) else deployment
        self._every_token = every_token
        self._pools = [self._instances(pool) for pool in self.spec.pools]
        self._all = list(chain(*self._pools))
        self._route, *self._route_decode = self._routers()
        self._network = Network(self.spec.contention)
        self._requests: dict[int, Request] = {}
        self._ended: dict[int, Request] = {}  # since the last `advance`
        self._reported: dict[int, Request] = {}  # by the last `advance`
        # (when, order of scheduling, whose step ends, or whose KV has landed)
        self._events: list[tuple[float, int, Instance | Request]] = []
        self._due: dict[Instance, int] = {}  # the event of each instance that counts: a cut step leaves another behind
        self._scheduled = 0
        self._now = float("-inf")
        self._emissions: list[Emission] = []
        self._transferred_tokens = 0

    def submit(
        self, request_id: int, prompt_tokens: int, output_tokens: int, now: float, prefix: Sequence[int] = ()
    ) -> Request:
        """Take in a request that arrives `now`; raises PromptTooLong or QueueFull and then has not taken it.

        `prefix` are the hashes of the prompt's first blocks, for the prefix cache.
        """
        if prompt_tokens < 1 or output_tokens < 1 or request_id in self._requests:
            raise ValueError(f"request {request_id} is in use, or asks for {prompt_tokens} + {output_tokens} tokens")
        self._check_length(prompt_tokens, output_tokens)
        now = self._run_to(now)
        if self.spec.max_queue is not None and self._waiting() >= self.spec.max_queue:
            raise QueueFull(f"{self.spec.max_queue} requests are waiting already")
        whole_blocks = prefix[: prompt_tokens // self.spec.prefix_block] if self.spec.prefix_block else ()
        request = Request(request_id, prompt_tokens, output_tokens, now, whole_blocks)
        self._requests[request_id] = request
        self._place(request, self._route(now), now)
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
        self._cut(request.instance, self._now)
        request.instance.remove(request)
        if request.source is not None:
            self._cut(request.source, self._now)
            request.source.release(request)
            self._wake(request.source, self._now)
        self._wake(request.instance, self._now)

    def spans(self, request_id: int) -> Spans:
        """Seconds a request spent in each phase: one that is here, or that the last `advance` saw end."""
        return ChainMap(self._requests, self._ended, self._reported)[request_id].spans

    def ended(self) -> list[Request]:
        """The requests whose last token the last `advance` brought."""
        return list(self._reported.values())

    def stats(self) -> ClusterStats:
        """Gauges and counters over all instances."""
        work = [instance.work for instance in self._all]
        caches = [instance.memory.cache for instance in self._all if instance.memory.cache is not None]
        blocks = sum(instance.limits.num_blocks for instance in self._all)
        return ClusterStats(
            running=sum(len(instance.running) for instance in self._all),
            waiting=self._waiting(),
            kv_usage=1 - sum(instance.memory.free for instance in self._all) / blocks,
            preemptions=sum(done.preemptions for done in work),
            transferred_bytes=self._transferred_tokens * (self.spec.link.kv_bytes_per_token if self.spec.link else 0),
            prompt_tokens=sum(done.prompt_tokens for done in work),
            generated_tokens=sum(done.generated_tokens for done in work),
            busy_s=sum(done.busy_s for done in work),
            extrapolated_s=sum(done.extrapolated_s for done in work),
            prefix_tokens=sum(cache.hit_tokens for cache in caches),
            bubble_s=sum(pipeline.bubble_s for pipeline in {i.pipeline for i in self._all if i.pipeline is not None}),
            pools=tuple(
                PoolWork.of(pool.role, [instance.work for instance in instances])
                for pool, instances in zip(self.spec.pools, self._pools, strict=True)
            ),
        )

    def _instances(self, pool: Pool) -> list[Instance]:
        return [instance for _ in range(pool.instances) for instance in self._groups(pool)]

    def _groups(self, pool: Pool) -> list[Instance]:
        """The groups of requests of one replica: one, or as many as its pipeline has stages."""
        spec = self.spec
        pipeline = Pipeline(pool.stages) if pool.stages > 1 else None
        block = spec.prefix_block if pool.role != "decode" else None  # KV that came over a link is not looked up
        return [
            Instance(
                pool.perf,
                pool.policy,
                pool.limits,
                hands_off=pool.role == "prefill" or spec.mixed is not None,
                decodes=pool.role != "prefill" or spec.mixed is not None,
                every_token=self._every_token,
                pipeline=pipeline,
                cache=PrefixCache(block, pool.limits.block_size) if block else None,
            )
            for _ in range(pool.stages)
        ]

    def _routers(self) -> list[Router]:
        routers = [ROUTERS[self.spec.router](pool) for pool in self._pools]
        if self.spec.mixed is not None:
            routers[0] = borrowing(routers[0], self._pools[1], self.spec.mixed.prompt_tokens)
        return routers

    def _decoder(self, source: Instance, now: float) -> Instance:
        """Where a prompt that `source` computed is decoded: by the decode pool, unless that has too long a queue.

        KV goes from the prefill pool to the decode pool only, so that no two instances wait for each other's room.
        """
        target = self._route_decode[0](now)
        mixed = self.spec.mixed
        if mixed is not None and (source in self._pools[1] or target.queued_decode_tokens > mixed.decode_tokens):
            return source
        return target

    def _check_length(self, prompt_tokens: int, output_tokens: int) -> None:
        total = prompt_tokens + output_tokens
        if total > self.spec.max_model_len:
            raise PromptTooLong(
                f"This model's maximum context length is {self.spec.max_model_len} tokens. However, you requested "
                f"{total} tokens ({prompt_tokens} in the messages, {output_tokens} in the completion). "
                "Please reduce the length of the messages or completion."
            )

    def _waiting(self) -> int:
        return sum(len(instance.waiting) + len(instance.reserved) for instance in self._all)

    def _run_to(self, now: float) -> float:
        """Process what is due; returns `now`, or the latest one if the caller's clock went back."""
        self._now = now = max(now, self._now)
        events = self._events
        while events and events[0][0] <= now:
            when, order, subject = heapq.heappop(events)
            if isinstance(subject, Instance):
                if self._due[subject] == order:
                    self._end_step(subject, when)
            elif subject.request_id in self._requests:  # not aborted on the way
                self._land(subject, when)
        return now

    def _place(self, request: Request, instance: Instance, now: float) -> None:
        """Queue a request at an instance, which takes it up after the iteration in progress at the latest."""
        self._cut(instance, now)
        instance.add(request)
        self._wake(instance, now)

    def _cut(self, instance: Instance, now: float) -> None:
        ends = instance.cut(now)
        if ends is not None:
            self._at(ends, instance)

    def _wake(self, instance: Instance, now: float) -> None:
        """Begin what an instance can begin: a step if it is between two, transfers into its free blocks."""
        if instance.step is None:
            self._begin(instance, now)
        pulled = instance.pull()
        if pulled:
            self._cut(instance, now)  # it has less memory than the step counts on
        for request in pulled:
            self._send(request, now)

    def _begin(self, instance: Instance, now: float) -> None:
        """Start a step, or come back when the first stage of the pipeline is free."""
        pipeline = instance.pipeline
        if pipeline is not None and pipeline.free_at > now:
            self._at(pipeline.free_at, instance)
        elif step := instance.start(now):
            time = step.time
            self._at(time.end(time.iterations) if pipeline is None else pipeline.enter(now, time.first_s), instance)

    def _at(self, when: float, subject: Instance | Request) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (when, self._scheduled, subject))
        if isinstance(subject, Instance):
            self._due[subject] = self._scheduled

    def _end_step(self, instance: Instance, now: float) -> None:
        if instance.step is not None:
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
        source.work.generated_tokens += 1
        last = request.output_tokens == 1
        if last or self.spec.first_token == "prefill":
            self._emit_first(request, now)
        if last:
            source.release(request)
            request.landed = request.done = now
            self._retire(request)
            return
        target = self._decoder(source, now)
        if target is source:
            source.keep(request)
            self._land_here(request, now)
            return
        request.source = source
        self._place(request, target, now)

    def _send(self, request: Request, now: float) -> None:
        assert self.spec.link is not None
        assert request.source is not None
        assert request.instance is not None
        out, into = self._network.ports(request.source, request.instance)
        self._transferred_tokens += request.prompt_tokens
        self._at(transfer(self.spec.link, out, into, request, now), request)

    def _land(self, request: Request, now: float) -> None:
        assert request.source is not None
        assert request.instance is not None
        source, request.source = request.source, None
        self._cut(source, now)
        self._cut(request.instance, now)
        source.release(request)
        request.instance.land(request)
        self._land_here(request, now)
        self._wake(source, now)
        self._wake(request.instance, now)

    def _land_here(self, request: Request, now: float) -> None:
        request.landed = now
        if self.spec.first_token == "decode":
            self._emit_first(request, now)

    def _emit_first(self, request: Request, now: float) -> None:
        request.first_token = now
        if self._every_token:
            self._emissions.append(Emission(request.request_id, now, 0, request.output_tokens == 1))
        else:
            request.pieces.append(now)

    def _retire(self, request: Request) -> None:
        del self._requests[request.request_id]
        self._ended[request.request_id] = request

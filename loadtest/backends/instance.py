"""One model replica as a state machine: requests in, iterations out.

    add(request) -> start(now) -> Step -> ... until it ends ... -> finish(now) -> Finished -> start(now) -> ...

A step is one iteration, or, when nobody asks for every token, as many iterations of the same decodes as come before
one of them ends or memory runs out. What arrives meanwhile shortens it: `cut(now)`.
"""

from __future__ import annotations

from collections import deque
from math import isnan
from typing import NamedTuple

from loadtest.backends.batch import Batch
from loadtest.backends.decodes import Decodes
from loadtest.backends.memory import KvMemory, Limits
from loadtest.backends.perfmodel import PerfModel
from loadtest.backends.pipeline import Pipeline
from loadtest.backends.policies import Policy
from loadtest.backends.prefixcache import PrefixCache
from loadtest.backends.request import Emission, Request
from loadtest.backends.stretch import Stretch


class Step(NamedTuple):
    """Iterations of one composition: when they run, how many decodes they serve, and their pieces of prompts."""

    time: Stretch
    decodes: int
    chunks: list[tuple[Request, int]]


class Finished(NamedTuple):
    """What a step brought about."""

    emissions: list[Emission]
    ended: list[Request]
    handed_off: list[Request]  # prompts computed here whose decoding is the cluster's to place


class Work:
    """What an instance has done so far, in whole iterations."""

    __slots__ = (
        *("prompt_tokens", "generated_tokens", "preemptions", "prefill_iterations"),
        *("busy_s", "prefill_s", "extrapolated_s"),
    )

    def __init__(self) -> None:
        self.prompt_tokens = self.generated_tokens = self.preemptions = self.prefill_iterations = 0
        self.busy_s = 0.0
        self.prefill_s = 0.0  # of it, with prompt tokens in the iteration
        self.extrapolated_s = 0.0  # of it, outside the range the performance model was fitted on


class Instance:
    """Schedules its requests by a policy and says how long each iteration takes; it never looks at a clock.

    With `every_token` each token is an Emission (the server streams them); without, tokens stay implied by `stretches`
    and the requests' `pieces` (the simulator reads them afterwards), and a step may be many iterations.
    """

    def __init__(
        self,
        perf: PerfModel,
        policy: Policy,
        limits: Limits,
        *,
        hands_off: bool = False,
        decodes: bool = True,
        every_token: bool = True,
        pipeline: Pipeline | None = None,
        cache: PrefixCache | None = None,
    ) -> None:
        self.perf = perf
        self.policy = policy
        self.limits = limits
        self.hands_off = hands_off
        self.every_token = every_token
        self.pipeline = pipeline  # shared with the other groups of the replica
        self.memory = KvMemory(limits, cache, decodes=decodes)
        self.waiting: deque[Request] = deque()
        self.reserved: dict[Request, None] = {}  # have blocks here, their KV is on the link
        self.running: dict[Request, None] = {}  # in order of admission: the newest is last
        self.prefilling: dict[Request, None] = {}
        self.decodes = Decodes(limits.block_size)
        self.outgoing: dict[Request, int] = {}  # blocks of those prefilled here, KV not yet with the decode pool
        self.step: Step | None = None
        self.stretches: list[Stretch] = []  # of all decode iterations, tick after tick
        self.pending_tokens = 0  # of prompts, waiting or under way
        self.resident_tokens = 0  # prompt + generated of everything here, in flight included
        self.work = Work()
        self._landed: list[Request] = []
        self._grown = False  # the blocks of the tick in progress are taken
        self._long = 0  # running requests that reach beyond the calibrated context

    def add(self, request: Request) -> None:
        """Queue a request: a new one, or (with `source` set) one whose KV is to come from a prefill instance."""
        request.instance = self
        self.resident_tokens += request.prompt_tokens + request.generated
        if request.source is None:
            self.pending_tokens += request.prefill_left
        self.waiting.append(request)

    def start(self, now: float) -> Step | None:
        """Compose the next step; None when there is nothing to do. Only between steps."""
        for request in self._landed:
            self.decodes.join(request)
        self._landed.clear()
        self._grown = False
        batch = Batch(self)
        if self.waiting or self.prefilling:
            self.policy.compose(batch)
        elif self.decodes.members:
            batch.decode_all()
        if not batch.tokens:
            return None
        for request, _ in batch.chunks:
            if isnan(request.prefill_started):
                request.prefill_started = now
        self.step = Step(self._time(batch, now), batch.decodes, batch.chunks)
        return self.step

    def cut(self, now: float) -> float | None:
        """End a step of many iterations with the one in progress; returns when, None if that changes nothing."""
        if self.step is None or self.step.time.iterations == 1:
            return None
        time, decodes, chunks = self.step
        over = time.over(now)
        began, ends = time.end(over), time.end(over + 1)
        if over:
            self._pass(time, over, decodes, chunks, began)
            self._grow(self.decodes.growth(1))
        self.step = Step(Stretch(began, ends - began, 0.0, 1), decodes, chunks)
        return ends if over + 1 < time.iterations else None

    def finish(self, now: float) -> Finished:
        """Complete the step in progress at its end, `now`."""
        assert self.step is not None
        (time, decodes, chunks), self.step = self.step, None
        done = Finished([], [], [])
        ending = self._pass(time, time.iterations, decodes, chunks, now)
        if self.every_token:
            self._emit_decodes(decodes, now, done)
        done.ended.extend(ending)
        for request, tokens in chunks:
            if request in self.prefilling:  # not aborted meanwhile
                self._finish_chunk(request, tokens, now, done)
        for request in done.ended:
            request.done = now
            self.remove(request)
        return done

    def pull(self) -> list[Request]:
        """Reserve blocks for requests at the head of the queue whose KV is elsewhere: their transfer may start."""
        pulled = []
        while self.waiting and self.waiting[0].source is not None and self.can_admit(self.waiting[0]):
            request = self.waiting.popleft()
            self.memory.take(request)
            self.reserved[request] = None
            pulled.append(request)
        return pulled

    def land(self, request: Request) -> None:
        """A reserved request's KV is here: it decodes from the next iteration on."""
        del self.reserved[request]
        self._enter(request)
        self._landed.append(request)

    def keep(self, request: Request) -> None:
        """A prompt computed here is to be decoded here: its KV stays where it is."""
        request.instance = self
        request.blocks = self.outgoing.pop(request)
        self.resident_tokens += request.prompt_tokens + request.generated
        self._enter(request)
        self._landed.append(request)

    def release(self, request: Request) -> None:
        """A handed-off request's KV has left: its blocks are free again."""
        self.memory.give_back(request, self.outgoing.pop(request))

    def remove(self, request: Request) -> None:
        """Forget a request that has ended or was aborted, and free what it held."""
        if request in self.running:
            self._exit(request)
        elif request in self.reserved:
            del self.reserved[request]
            self.memory.give_back(request, request.blocks)
        else:
            self.waiting.remove(request)
        if request in self._landed:
            self._landed.remove(request)
        if request.source is None:
            self.pending_tokens -= request.prefill_left
        self.resident_tokens -= request.prompt_tokens + request.generated

    def resident(self, now: float) -> int:
        """Tokens of prompts and answers here at `now`, those of a step in progress counted by iteration."""
        if self.step is None or self.step.time.iterations == 1:
            return self.resident_tokens
        return self.resident_tokens + self.step.decodes * self.step.time.over(now)

    @property
    def queued_decode_tokens(self) -> int:
        """Tokens of KV that found no room here yet."""
        return sum(request.prompt_tokens for request in self.waiting if request.source is not None)

    def head(self) -> Request | None:
        """The head of the queue if its prompt can be computed here now, else None."""
        request = self.waiting[0]
        if request.source is not None or not self.can_admit(request):
            return None
        if self.memory.cache is not None:
            spared = self.memory.look_up(request)
            self.pending_tokens += request.prefilled - spared
            request.prefilled = spared
        return request

    def can_admit(self, request: Request) -> bool:
        """Is there a slot, and are there blocks? Beside others, the watermark stays free."""
        others = len(self.running) + len(self.reserved)
        if others >= self.limits.max_num_seqs:
            return False
        margin = self.limits.watermark_blocks if others else 0
        return self.memory.needed(request) + margin <= self.memory.free

    def admit(self, request: Request) -> None:
        """Take the head of the queue into the batch; `can_admit` was asked."""
        assert self.waiting[0] is request
        self.waiting.popleft()
        self.memory.take(request)
        if self.memory.cache is not None:
            self.memory.cache.hit_tokens += request.prefilled
        self._enter(request)
        self.prefilling[request] = None

    def grow(self) -> bool:
        """Take the blocks this tick's tokens need, preempting the newest requests if there are too few.

        True when somebody was preempted.
        """
        before = self.work.preemptions
        while (blocks := self.decodes.growth(1)) > self.memory.free and self.memory.grows:
            self._preempt(next(reversed(self.running)))
        self._grow(blocks)
        return self.work.preemptions > before

    def _grow(self, blocks: int) -> None:
        """Take the blocks of the tick in progress."""
        if self.memory.grows:
            self.memory.spend(blocks)
            self._grown = True

    def _time(self, batch: Batch, now: float) -> Stretch:
        """When the iterations of this composition run: many if it repeats itself and nobody asks for every token."""
        context = self.decodes.context
        first_s = self.perf.mixed_s(batch.prompt_tokens, batch.attended, batch.decodes, context)
        if self.every_token or self.pipeline is not None or not batch.settled:
            return Stretch(now, first_s, 0.0, 1)
        iterations = self.decodes.until_end
        if self.memory.grows and iterations > 1:
            iterations = 1 + self.decodes.covered(self.memory.free, iterations - 1, after=1)
        return Stretch(now, first_s, self.perf.decode_growth_s(batch.decodes), iterations)

    def _pass(
        self, time: Stretch, iterations: int, decodes: int, chunks: list[tuple[Request, int]], now: float
    ) -> list[Request]:
        """So many iterations of a step are over; returns those whose last token the last of them gave."""
        seconds = time.lasts(iterations)
        self.work.busy_s += seconds
        if chunks:
            self.work.prefill_s += seconds
            self.work.prefill_iterations += 1
        if self._long or decodes > self.perf.calibrated_batch:
            self.work.extrapolated_s += seconds
        members = len(self.decodes.members)
        if not decodes or not members:  # all aborted
            return []
        if iterations > 1 and self.memory.grows:
            self.memory.spend(self.decodes.growth(iterations - 1, after=1))
        self._grown = False
        self.resident_tokens += members * iterations
        self.work.generated_tokens += members * iterations
        if not self.every_token:
            run = Stretch(now, 0.0, 0.0, 1) if iterations == 1 else Stretch(*time[:3], iterations)
            self.stretches.append(run)
        return self.decodes.advance(iterations)

    def _emit_decodes(self, decodes: int, now: float, done: Finished) -> None:
        if decodes:
            tick = self.decodes.tick
            for request in self.decodes.members:
                tokens = request.generated + tick - request.joined
                done.emissions.append(Emission(request.request_id, now, tokens - 1, tokens == request.output_tokens))

    def _finish_chunk(self, request: Request, tokens: int, now: float, done: Finished) -> None:
        request.prefilled += tokens
        self.pending_tokens -= tokens
        self.work.prompt_tokens += tokens
        if request.prefill_left:
            return
        del self.prefilling[request]
        self.memory.keep_prefix(request)
        first = request.generated == 0
        if first:
            request.prefill_ended = now
            if self.hands_off:
                self._hand_off(request, done)
                return
            request.landed = request.first_token = now
        self.work.generated_tokens += 1
        self.resident_tokens += 1
        request.generated += 1
        last = request.generated == request.output_tokens
        if self.every_token:
            done.emissions.append(Emission(request.request_id, now, request.generated - 1, last))
        else:
            request.pieces.append(now)
        if last:
            done.ended.append(request)
        else:
            self.decodes.join(request)

    def _hand_off(self, request: Request, done: Finished) -> None:
        """The prompt's KV stays here, in `outgoing`, until the decode pool has it."""
        del self.running[request]
        self._long -= self._is_long(request)
        self.resident_tokens -= request.prompt_tokens
        self.outgoing[request] = request.blocks
        done.handed_off.append(request)

    def _enter(self, request: Request) -> None:
        self.running[request] = None
        self._long += self._is_long(request)

    def _exit(self, request: Request) -> None:
        del self.running[request]
        self._long -= self._is_long(request)
        self.prefilling.pop(request, None)
        if request not in self.decodes.members:
            self.memory.give_back(request, request.blocks)
            return
        self.decodes.leave(request)
        if not self.every_token and self.decodes.tick > request.joined:
            request.pieces.append((self, request.joined, self.decodes.tick))
        tokens = request.prompt_tokens + request.generated - (not self._grown)  # the newest token has no KV yet
        self.memory.give_back(request, self.memory.held(request, tokens))

    def _preempt(self, request: Request) -> None:
        """Back to the head of the queue; prompt and answer so far are computed again (vLLM's recompute)."""
        self.work.preemptions += 1
        self.pending_tokens -= request.prefill_left
        self._exit(request)
        if request in self._landed:
            self._landed.remove(request)
        request.prefill_tokens = request.prompt_tokens + request.generated
        request.prefilled = 0
        self.pending_tokens += request.prefill_left
        self.waiting.appendleft(request)

    def _is_long(self, request: Request) -> bool:
        return request.prompt_tokens + request.output_tokens > self.perf.calibrated_context

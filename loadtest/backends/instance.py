"""One model replica as a state machine: requests in, iterations out, KV blocks accounted for.

    add(request) -> start(now) -> Step -> ... its duration later ... -> finish(now) -> Finished -> start(now) -> ...

KV blocks: a request takes those of its prompt when it is admitted, and one more whenever a decode starts a new one
(`on_demand`), or those of prompt and answer at once (`reserve_output`). How many a decode holds follows from its
context, so nothing is counted per request and token.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from loadtest.backends.batch import Batch
from loadtest.backends.decodes import Decodes
from loadtest.backends.perfmodel import PerfModel
from loadtest.backends.policies import Policy
from loadtest.backends.request import Emission, Request


@dataclass(frozen=True)
class Limits:
    """An instance's KV memory and batch limits, in vLLM's terms."""

    num_blocks: int
    block_size: int
    watermark_blocks: int  # kept free when a request is admitted beside others
    max_num_seqs: int
    reserve_output: bool  # blocks for the whole answer at admission: no growth, no preemption


class Step(NamedTuple):
    """One iteration: how long it takes, how many decodes it serves, and its pieces of prompts."""

    duration_s: float
    decodes: int
    chunks: list[tuple[Request, int]]


class Finished(NamedTuple):
    """What an iteration brought about."""

    emissions: list[Emission]
    ended: list[Request]
    handed_off: list[Request]  # prompts a prefill instance has computed for the decode pool


class Instance:
    """Schedules its requests by a policy and says how long each iteration takes; it never looks at a clock.

    With `every_token` each token is an Emission (the server streams them); without, only first and last ones are, and
    the others stay implied by `tick_times` and the requests' `pieces` (the simulator reads them afterwards).
    """

    def __init__(
        self, perf: PerfModel, policy: Policy, limits: Limits, *, hands_off: bool = False, every_token: bool = True
    ) -> None:
        self.perf = perf
        self.policy = policy
        self.limits = limits
        self.hands_off = hands_off
        self.every_token = every_token
        self.waiting: deque[Request] = deque()
        self.reserved: dict[Request, None] = {}  # have blocks here, their KV is on the link
        self.running: dict[Request, None] = {}  # in order of admission: the newest is last
        self.prefilling: dict[Request, None] = {}
        self.decodes = Decodes(limits.block_size)
        self.outgoing: dict[Request, int] = {}  # blocks of those prefilled here, KV not yet with the decode pool
        self.step: Step | None = None
        self.free_blocks = limits.num_blocks
        self.tick_times = array("d")
        self.pending_tokens = 0  # of prompts, waiting or under way
        self.resident_tokens = 0  # prompt + generated of everything here, in flight included
        self.preemptions = 0
        self.prompt_tokens = self.generated_tokens = 0  # computed so far
        self.busy_s = self.extrapolated_s = 0.0
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
        """Compose the next iteration; None when there is nothing to do. Only between iterations."""
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
        self.step = Step(self._duration_s(batch), batch.decodes, batch.chunks)
        return self.step

    def finish(self, now: float) -> Finished:
        """Complete the iteration in progress at its end, `now`."""
        assert self.step is not None
        step, self.step = self.step, None
        done = Finished([], [], [])
        if step.decodes:
            self._finish_decodes(now, done)
        for request, tokens in step.chunks:
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
            self._take_blocks(request)
            self.reserved[request] = None
            pulled.append(request)
        return pulled

    def land(self, request: Request) -> None:
        """A reserved request's KV is here: it decodes from the next iteration on."""
        del self.reserved[request]
        self._enter(request)
        self._landed.append(request)

    def release(self, request: Request) -> None:
        """A handed-off request's KV has left: its blocks are free again."""
        self.free_blocks += self.outgoing.pop(request)

    def remove(self, request: Request) -> None:
        """Forget a request that has ended or was aborted, and free what it held."""
        if request in self.running:
            self._exit(request)
        elif request in self.reserved:
            del self.reserved[request]
            self.free_blocks += request.blocks
        else:
            self.waiting.remove(request)
        if request in self._landed:
            self._landed.remove(request)
        if request.source is None:
            self.pending_tokens -= request.prefill_left
        self.resident_tokens -= request.prompt_tokens + request.generated

    def can_admit(self, request: Request) -> bool:
        """Is there a slot, and are there blocks? Beside others, the watermark stays free."""
        others = len(self.running) + len(self.reserved)
        if others >= self.limits.max_num_seqs:
            return False
        margin = self.limits.watermark_blocks if others else 0
        return self._blocks_to_admit(request) + margin <= self.free_blocks

    def admit(self, request: Request) -> None:
        """Take the head of the queue into the batch; `can_admit` was asked."""
        assert self.waiting[0] is request
        self.waiting.popleft()
        self._take_blocks(request)
        self._enter(request)
        self.prefilling[request] = None

    def grow(self) -> bool:
        """Take the blocks this tick's tokens need, preempting the newest requests if there are too few.

        True when somebody was preempted.
        """
        if self.limits.reserve_output:
            return False
        growing = self.decodes.growing
        before = self.preemptions
        while len(growing) > self.free_blocks:
            self._preempt(next(reversed(self.running)))
        self.free_blocks -= len(growing)
        self._grown = True
        return self.preemptions > before

    def _finish_decodes(self, now: float, done: Finished) -> None:
        batch = self.decodes
        ending = batch.advance()
        self._grown = False
        self.resident_tokens += len(batch.members)
        self.generated_tokens += len(batch.members)
        if self.every_token:
            for request in batch.members:
                tokens = request.generated + batch.tick - request.joined
                done.emissions.append(Emission(request.request_id, now, tokens - 1, tokens == request.output_tokens))
        else:
            self.tick_times.append(now)
            done.emissions.extend(Emission(r.request_id, now, r.output_tokens - 1, True) for r in ending)
        done.ended.extend(ending)

    def _finish_chunk(self, request: Request, tokens: int, now: float, done: Finished) -> None:
        request.prefilled += tokens
        self.pending_tokens -= tokens
        self.prompt_tokens += tokens
        if request.prefill_left:
            return
        del self.prefilling[request]
        if self.hands_off:
            self._hand_off(request, now, done)
            return
        first = request.generated == 0
        if first:
            request.prefill_ended = request.landed = now
        self.generated_tokens += 1
        self.resident_tokens += 1
        request.generated += 1
        last = request.generated == request.output_tokens
        if self.every_token or first or last:
            done.emissions.append(Emission(request.request_id, now, request.generated - 1, last))
        if not self.every_token:
            request.pieces.append(now)
        if last:
            done.ended.append(request)
        else:
            self.decodes.join(request)

    def _hand_off(self, request: Request, now: float, done: Finished) -> None:
        """The prompt's KV stays here, in `outgoing`, until the decode pool has it."""
        request.prefill_ended = now
        self.remove(request)
        self.free_blocks -= request.blocks
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
            self.free_blocks += request.blocks
            return
        self.decodes.leave(request)
        if not self.every_token and self.decodes.tick > request.joined:
            request.pieces.append((self, request.joined, self.decodes.tick))
        self.free_blocks += self._blocks_of_decode(request)

    def _preempt(self, request: Request) -> None:
        """Back to the head of the queue; prompt and answer so far are computed again (vLLM's recompute)."""
        self.preemptions += 1
        self.pending_tokens -= request.prefill_left
        self._exit(request)
        if request in self._landed:
            self._landed.remove(request)
        request.prefill_tokens = request.prompt_tokens + request.generated
        request.prefilled = 0
        self.pending_tokens += request.prefill_left
        self.waiting.appendleft(request)

    def _take_blocks(self, request: Request) -> None:
        request.blocks = self._blocks_to_admit(request)
        self.free_blocks -= request.blocks

    def _blocks_to_admit(self, request: Request) -> int:
        if self.limits.reserve_output and not self.hands_off:
            return self._blocks_for(request.prompt_tokens + request.output_tokens)
        return self._blocks_for(request.prefill_tokens)

    def _blocks_of_decode(self, request: Request) -> int:
        """Blocks it holds, from its context: the newest token's slot is taken when its tick begins."""
        if self.limits.reserve_output:
            return request.blocks
        return self._blocks_for(request.prompt_tokens + request.generated - (not self._grown))

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size)

    def _is_long(self, request: Request) -> bool:
        return request.prompt_tokens + request.output_tokens > self.perf.model.calibrated_context

    def _duration_s(self, batch: Batch) -> float:
        duration_s = self.perf.mixed_s(batch.prompt_tokens, batch.attended, batch.decodes, self.decodes.context)
        self.busy_s += duration_s
        if self._long or batch.decodes > self.perf.model.calibrated_batch:
            self.extrapolated_s += duration_s
        return duration_s

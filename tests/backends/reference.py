"""A scheduler written the slow way, to judge the quick one by: every token counted, every block owned by a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from loadtest.backends.instance import Limits
from loadtest.backends.perfmodel import PerfModel

Arrival = tuple[float, int, int]  # seconds, prompt tokens, output tokens


@dataclass(eq=False)
class _Request:
    prompt: int
    output: int
    target: int  # prompt tokens to compute before the next token
    done: int = 0
    blocks: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def decoding(self) -> bool:
        return self.done == self.target


class SlowInstance:
    """One instance, pooled arrangements; KV blocks on demand, preemption of the newest."""

    def __init__(self, arrangement: str, budget: int, perf: PerfModel, limits: Limits) -> None:
        self.arrangement, self.budget, self.perf, self.limits = arrangement, budget, perf, limits
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.free = limits.num_blocks
        self.preemptions = 0

    def run(self, arrivals: list[Arrival]) -> list[list[float]]:
        """Token times of each arrival; they are in order, and no two at one instant."""
        requests = [_Request(prompt, output, prompt) for _, prompt, output in arrivals]
        upcoming = [(when, request) for (when, _, _), request in zip(arrivals, requests, strict=True)]
        now = 0.0
        while upcoming or self.waiting or self.running:
            if not self.waiting and not self.running:
                now, request = upcoming.pop(0)
                self.waiting.append(request)
            now = self._iterate(now)
            while upcoming and upcoming[0][0] < now:
                self.waiting.append(upcoming.pop(0)[1])
        return [request.times for request in requests]

    def _iterate(self, now: float) -> float:
        decodes: list[_Request] = []
        chunks: list[tuple[_Request, int]] = []
        if self.arrangement == "colocated_prefill_first":
            self._admit_whole(decodes, chunks)
            if not chunks:
                self._decode(decodes)
        elif self._decode(decodes):
            if self.arrangement == "chunked":
                self._continue_chunks(decodes, chunks)
        elif self.arrangement == "chunked":
            self._continue_chunks(decodes, chunks)
            self._admit_chunks(decodes, chunks)
        else:
            self._admit_whole(decodes, chunks)
        tokens = sum(count for _, count in chunks)
        attended = sum((r.done + count) ** 2 - r.done**2 for r, count in chunks)
        context = sum(r.prompt + len(r.times) for r in decodes)
        now += self.perf.mixed_s(tokens, attended, len(decodes), context)
        for request in decodes:
            request.times.append(now)
            request.target = request.done = request.prompt + len(request.times)
        for request, count in chunks:
            request.done += count
            if request.decoding:
                request.times.append(now)
        for request in [r for r in self.running if len(r.times) == r.output]:
            self.running.remove(request)
            self.free += request.blocks
        return now

    def _decode(self, decodes: list[_Request]) -> bool:
        """vLLM's loop: oldest first, each takes what it needs, the newest gives way."""
        preempted = False
        for request in [r for r in self.running if r.decoding]:
            while request in self.running and self._needs(request.prompt + len(request.times)) > request.blocks:
                if self.free:
                    self.free -= 1
                    request.blocks += 1
                    continue
                self._preempt(self.running[-1])
                preempted = True
            if request in self.running:
                decodes.append(request)
        return preempted

    def _preempt(self, victim: _Request) -> None:
        self.preemptions += 1
        self.running.remove(victim)
        self.free += victim.blocks
        victim.blocks = victim.done = 0
        victim.target = victim.prompt + len(victim.times)
        self.waiting.insert(0, victim)

    def _continue_chunks(self, decodes: list[_Request], chunks: list[tuple[_Request, int]]) -> None:
        for request in self.running:
            room = self.budget - len(decodes) - sum(count for _, count in chunks)
            if not request.decoding and room > 0:
                chunks.append((request, min(room, request.target - request.done)))

    def _admit_chunks(self, decodes: list[_Request], chunks: list[tuple[_Request, int]]) -> None:
        while (room := self.budget - len(decodes) - sum(count for _, count in chunks)) > 0 and self._fits():
            request = self._admit()
            chunks.append((request, min(room, request.target)))

    def _admit_whole(self, decodes: list[_Request], chunks: list[tuple[_Request, int]]) -> None:
        while self._fits():
            total = len(decodes) + sum(count for _, count in chunks) + self.waiting[0].target
            if chunks and total > self.budget:
                return
            request = self._admit()
            chunks.append((request, request.target))

    def _fits(self) -> bool:
        if not self.waiting or len(self.running) >= self.limits.max_num_seqs:
            return False
        left = self.free - self._needs(self.waiting[0].target)
        return left >= (self.limits.watermark_blocks if self.running else 0)

    def _admit(self) -> _Request:
        request = self.waiting.pop(0)
        request.blocks = self._needs(request.target)
        self.free -= request.blocks
        self.running.append(request)
        return request

    def _needs(self, tokens: int) -> int:
        return ceil(tokens / self.limits.block_size)

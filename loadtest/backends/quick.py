"""One instance whose memory never runs short, as one loop.

Blocks need not be counted while all running requests fit with their whole answers: then nobody is ever preempted and
nobody waits for memory, whatever the KV policy. The loop proves that as it goes, counting tokens, and gives up
(`None`) where it cannot; the cluster then does the same work block by block. Both give the same times, which
tests/backends/test_quick.py keeps true; this one is several times faster.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from loadtest.backends.instance import Work
from loadtest.backends.memory import Limits
from loadtest.backends.policies import Chunked, Colocated, ColocatedPrefillFirst
from loadtest.backends.spec import ClusterSpec, Pool
from loadtest.backends.stretch import Stretch, iterations_over


class Served(NamedTuple):
    """When each request's prefill began and its first and last token came, and the decode tick at which it joined."""

    started: list[float]
    first_token: list[float]
    done: list[float]
    joined: list[int]
    stretches: list[Stretch]  # none are kept where nobody wants token times
    work: Work

    @classmethod
    def empty(cls, count: int) -> Served:
        """Of so many requests, before anything happened."""
        return cls([0.0] * count, [0.0] * count, [0.0] * count, [0] * count, [], Work())


def applies(spec: ClusterSpec) -> bool:
    """Is this one instance with a policy that the loop knows, and nothing else?"""
    pool = spec.pools[0]
    simple = len(spec.pools) == pool.instances == pool.stages == 1 and spec.max_queue is spec.prefix_block is None
    return simple and (
        isinstance(pool.policy, Colocated | ColocatedPrefillFirst)
        or (isinstance(pool.policy, Chunked) and not pool.policy.threshold)
    )


def serve(pool: Pool, arrive: list[float], prompts: list[int], outputs: list[int], *, events: bool) -> Served | None:
    """Serve all requests, in order of arrival; None as soon as memory or batch slots might matter."""
    policy, mixed_s, count = pool.policy, pool.perf.mixed_s, len(arrive)
    assert isinstance(policy, Chunked | Colocated | ColocatedPrefillFirst)
    budget, chunked, alone = policy.budget, isinstance(policy, Chunked), isinstance(policy, ColocatedPrefillFirst)
    slots, slack, free = pool.limits.max_num_seqs, pool.limits.block_size - 1, _tokens(pool.limits)
    most_batch, most_context = pool.perf.calibrated_batch, pool.perf.calibrated_context
    lines = [(0.0, 0.0, 0.0, 0.0), *map(pool.perf.decode_line, range(1, slots + 1))]  # by batch
    started, first_token, done, joined, stretches, work = served = Served.empty(count)
    ends, busy_s, prefill_s, outside_s, now = list[int](), 0.0, 0.0, 0.0, 0.0
    head = part = tick = batch = context = long = 0
    while head < count or ends:
        if idle := not ends and not part and arrive[head] >= now:
            now = arrive[head]
        tokens, attended, first, decodes = 0, 0, head, 0 if alone else batch
        while head < count and (idle or part or arrive[head] < now):  # compose: prompts of this iteration
            idle = False
            left = piece = prompts[head] - part  # `part` tokens of prompt `head` are computed
            if chunked:
                piece = min(left, budget - decodes - tokens)
            elif tokens and decodes + tokens + left > budget:
                break
            if not part and piece:  # admit
                started[head] = now
                long += prompts[head] + outputs[head] > most_context
                free -= prompts[head] + outputs[head] + slack
            if free < 0 or batch + head - first >= slots:
                return None
            tokens += piece
            attended += piece * (2 * part + piece)
            if piece < left:
                part += piece
                break
            head, part = head + 1, 0
        if tokens:
            run, seconds = min(decodes, 1), mixed_s(tokens, attended, decodes, context)
            prefill_s, work.prefill_iterations = prefill_s + seconds, work.prefill_iterations + 1
            if events and run:
                stretches.append(Stretch(now + seconds, 0.0, 0.0, 1))
        else:  # decodes up to the iteration that ends a request, or in which the next one arrives
            fixed_s, slope_s, step_s, _ = lines[batch]
            decodes, first_s, until = batch, fixed_s + slope_s * context, arrive[head] if head < count else inf
            run, seconds = _cut(now, first_s, step_s, ends[0] // count - tick + 1, until)
            if events:
                stretches.append(Stretch(now, first_s, step_s, run))
        tick, context = tick + run, context + batch * run
        now, busy_s = now + seconds, busy_s + seconds
        if long or decodes > most_batch:
            outside_s += seconds
        for request in range(first, head):  # prompts completed: their first tokens
            first_token[request], joined[request] = now, tick
            batch, context = batch + 1, context + prompts[request] + 1
            heappush(ends, (tick + outputs[request] - 2) * count + request)  # by the tick of its last token
        while ends and ends[0] < tick * count:  # last tokens
            request = heappop(ends) % count
            total = prompts[request] + outputs[request]
            done[request], batch, context, free = now, batch - 1, context - total, free + total + slack
            long -= total > most_context
    work.busy_s, work.prefill_s, work.extrapolated_s = busy_s, prefill_s, outside_s
    return served


def _cut(start: float, first_s: float, step_s: float, iterations: int, until: float) -> tuple[int, float]:
    """How many of these iterations run, and for how long: the one in progress at `until` is the last."""
    seconds = iterations * (first_s + step_s * (iterations - 1) / 2)
    if start + seconds <= until:
        return iterations, seconds
    iterations = iterations_over(until, start, first_s, step_s, iterations) + 1
    return iterations, iterations * (first_s + step_s * (iterations - 1) / 2)


def _tokens(limits: Limits) -> int:
    """Tokens of KV that may be in use without anybody noticing that memory is limited."""
    return (limits.num_blocks - limits.watermark_blocks) * limits.block_size

"""The requests that decode together, counted by iteration instead of by token.

A decode iteration gives one token to every member, so nothing is kept per request and token. The *tick* counts decode
iterations: a request that joined at tick j has generated tick - j tokens since, ends at a tick known when it joins,
and starts a new KV block at ticks of one remainder modulo the block size. An iteration thus costs the same for 4
members as for 400, and a stretch of iterations in which nobody ends costs the same as one.
"""

from __future__ import annotations

from heapq import heappop, heappush

from loadtest.backends.request import Request


class Decodes:
    """Members, the sum of their contexts, who ends when, and who needs a KV block when."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.members: dict[Request, None] = {}
        self.tick = 0  # of the next iteration, or of the one in progress
        self.context = 0  # sum of prompt + generated
        self._ends: dict[int, list[Request]] = {}  # by the tick of their last token
        self._end_ticks: list[int] = []  # a heap of the keys of `_ends`
        self._growth = [0] * block_size  # members by the phase in which they start a KV block

    @property
    def until_end(self) -> int:
        """Iterations up to and with the one that gives some member its last token."""
        return self._end_ticks[0] - self.tick + 1

    def growth(self, iterations: int, after: int = 0) -> int:
        """KV blocks that so many iterations start, not counting the first `after` from now."""
        cycles, rest = divmod(iterations, self._block_size)
        begin = (self.tick + after) % self._block_size
        blocks = sum(self._growth[begin : begin + rest])
        if begin + rest > self._block_size:
            blocks += sum(self._growth[: begin + rest - self._block_size])
        return cycles * len(self.members) + blocks

    def covered(self, blocks: int, most: int, after: int) -> int:
        """How many iterations, at most `most`, so many KV blocks last for, after the first `after` from now."""
        size, members = self._block_size, len(self.members)
        if (most // size + 1) * members <= blocks:
            return most
        cycles = blocks // members
        left, iterations = blocks - cycles * members, cycles * size
        while iterations < most:
            left -= self._growth[(self.tick + after + iterations) % size]
            if left < 0:
                break
            iterations += 1
        return min(iterations, most)

    def join(self, request: Request) -> None:
        """Decode from the next iteration on."""
        tick = request.joined = self.tick
        context = request.prompt_tokens + request.generated
        self.members[request] = None
        self.context += context
        self._growth[(tick - context + 1) % self._block_size] += 1
        last = tick + request.output_tokens - request.generated - 1
        if last in self._ends:
            self._ends[last].append(request)
        else:
            self._ends[last] = [request]
            heappush(self._end_ticks, last)

    def leave(self, request: Request) -> None:
        """Stop decoding, at the end or before; brings `generated` up to date."""
        tick = self.tick
        request.generated += tick - request.joined
        context = request.prompt_tokens + request.generated
        del self.members[request]
        self.context -= context
        self._growth[(tick - context + 1) % self._block_size] -= 1  # the same phase as when it joined
        if request.generated < request.output_tokens:
            self._ends[tick + request.output_tokens - request.generated - 1].remove(request)

    def advance(self, iterations: int = 1) -> list[Request]:
        """So many iterations are over, none of which but the last ended a member.

        Returns those whose last token it was; they are to leave.
        """
        self.tick += iterations
        self.context += iterations * len(self.members)
        if self._end_ticks[0] >= self.tick:
            return []
        return self._ends.pop(heappop(self._end_ticks))

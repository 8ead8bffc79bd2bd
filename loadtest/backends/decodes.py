"""The requests that decode together, counted by iteration instead of by token.

A decode iteration gives one token to every member, so nothing is kept per request and token. The *tick* counts decode
iterations: a request that joined at tick j has generated tick - j tokens since, ends at a tick known when it joins,
and starts a new KV block at ticks of one remainder modulo the block size. An iteration thus costs the same for 4
members as for 400.
"""

from __future__ import annotations

from collections import defaultdict

from loadtest.backends.request import Request


class Decodes:
    """Members, the sum of their contexts, who ends when, and who needs a KV block when."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.members: dict[Request, None] = {}
        self.tick = 0  # of the next iteration, or of the one in progress
        self.context = 0  # sum of prompt + generated
        self._ends: defaultdict[int, list[Request]] = defaultdict(list)
        self._growth: list[dict[Request, None]] = [{} for _ in range(block_size)]

    @property
    def growing(self) -> dict[Request, None]:
        """Members whose token of this tick is the first of a KV block."""
        return self._growth[self.tick % self._block_size]

    def join(self, request: Request) -> None:
        """Decode from the next iteration on."""
        request.joined = self.tick
        self.members[request] = None
        self.context += request.prompt_tokens + request.generated
        self._ends[self._last_tick(request)].append(request)
        self._growth[self._phase(request)][request] = None

    def leave(self, request: Request) -> None:
        """Stop decoding, at the end or before; brings `generated` up to date."""
        request.generated += self.tick - request.joined
        self.context -= request.prompt_tokens + request.generated
        del self.members[request]
        del self._growth[self._phase(request)][request]
        if request.generated < request.output_tokens:
            self._ends[self._last_tick(request)].remove(request)

    def advance(self) -> list[Request]:
        """An iteration is over: one more token each. Returns those whose last it was; they are to leave."""
        ending = self._ends.pop(self.tick, [])
        self.tick += 1
        self.context += len(self.members)
        return ending

    # Both come out the same when the request joins and, with `generated` up to date, at any later tick.

    def _last_tick(self, request: Request) -> int:
        return self.tick + request.output_tokens - request.generated - 1

    def _phase(self, request: Request) -> int:
        return (self.tick - request.prompt_tokens - request.generated + 1) % self._block_size

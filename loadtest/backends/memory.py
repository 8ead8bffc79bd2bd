"""The KV memory of one instance, in blocks.

A request takes the blocks of its prompt when it is admitted, and one more whenever a decode starts a new one
(`on_demand`), or those of prompt and answer at once (`reserve_output`). How many a decode holds follows from its
context, so nothing is counted per request and token.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.backends.prefixcache import PrefixCache
from loadtest.backends.request import Request


@dataclass(frozen=True)
class Limits:
    """An instance's KV memory and batch limits, in vLLM's terms."""

    num_blocks: int
    block_size: int
    watermark_blocks: int  # kept free when a request is admitted beside others
    max_num_seqs: int
    reserve_output: bool  # blocks for the whole answer at admission: no growth, no preemption


class KvMemory:
    """Free blocks, among them those of the prefix cache that nobody uses."""

    def __init__(self, limits: Limits, cache: PrefixCache | None, *, decodes: bool) -> None:
        """`decodes`: answers are written here too, and `reserve_output` has to make room for them."""
        self.block_size = limits.block_size
        self.grows = not limits.reserve_output
        self.cache = cache
        self.free = limits.num_blocks
        self._whole_answer = limits.reserve_output and decodes

    def needed(self, request: Request) -> int:
        """Free blocks that admitting it takes."""
        blocks = self._total(request)
        if self.cache is not None:
            blocks -= self.cache.shared(request.prefix[: self.cache.known(request.prefix)])
        return blocks

    def look_up(self, request: Request) -> int:
        """Prompt tokens that the prefix cache spares it; the last one is always computed."""
        if self.cache is None or not request.prefix:
            return 0
        return min(self.cache.known(request.prefix) * self.cache.block_tokens, request.prefill_tokens - 1)

    def take(self, request: Request) -> None:
        """Take the blocks of a request that is admitted."""
        request.blocks = self._total(request)
        if self.cache is not None:
            request.cached = self.cache.known(request.prefix)
            request.blocks -= request.cached * self.cache.unit
            self.free -= self.cache.take(request.prefix[: request.cached])
        self.spend(request.blocks)

    def spend(self, blocks: int) -> None:
        """Take free blocks; unused ones of the cache make room."""
        self.free -= blocks
        if self.cache is not None:
            self.cache.shrink(self.free)

    def keep_prefix(self, request: Request) -> None:
        """Its prompt is computed: later prompts may begin with its blocks."""
        if self.cache is not None:
            kept = self.cache.keep(request.prefix[request.cached :])
            request.cached += kept
            request.blocks -= kept * self.cache.unit

    def give_back(self, request: Request, blocks: int) -> None:
        """Free the blocks of its own; the shared ones stay for others."""
        self.free += blocks
        if self.cache is not None:
            self.free += self.cache.give_back(request.prefix[: request.cached])
            request.cached = 0

    def held(self, request: Request, tokens: int) -> int:
        """Blocks of its own that a decoding request with so many tokens of KV holds."""
        if not self.grows:
            return request.blocks
        own = -(-tokens // self.block_size)
        return own if self.cache is None else own - request.cached * self.cache.unit

    def _total(self, request: Request) -> int:
        tokens = request.prompt_tokens + request.output_tokens if self._whole_answer else request.prefill_tokens
        return -(-tokens // self.block_size)

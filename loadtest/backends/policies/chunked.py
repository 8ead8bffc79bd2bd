"""Chunked prefill with stall-free batching (Sarathi-Serve, OSDI 2024; vLLM v1).

Every decode runs in every iteration, and what is left of the token budget goes to prompts in pieces: the first one
already begun, then new ones. The budget bounds an iteration, and so the token gap of every running request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.backends.batch import Batch


@dataclass(frozen=True)
class Chunked:
    """`budget` = max_num_batched_tokens; `threshold` = long_prefill_token_threshold, 0 for none."""

    budget: int
    threshold: int = 0

    def compose(self, batch: Batch) -> None:
        """Every decode, then the prompts under way, then new ones, up to the budget."""
        batch.decode_all()
        for begun in batch.begun():
            if batch.tokens < self.budget:
                batch.prefill(begun, self._chunk(begun.prefill_left, batch))
        while batch.tokens < self.budget and (request := batch.next_waiting()):
            batch.prefill(request, self._chunk(request.prefill_left, batch))

    def _chunk(self, left: int, batch: Batch) -> int:
        return min(left, self.budget - batch.tokens, self.threshold or left)

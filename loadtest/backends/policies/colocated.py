"""Hybrid continuous batching (Orca, OSDI 2022): all decodes and whole prompts share one iteration.

A prompt is never split, so every running decode waits for the longest iteration a prompt makes: the interference the
other arrangements set out to remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.backends.batch import Batch


@dataclass(frozen=True)
class Colocated:
    """`budget` = max_num_batched_tokens; a prompt longer than that is the only prompt of its iteration."""

    budget: int

    def compose(self, batch: Batch) -> None:
        """Every decode, then whole prompts in order of arrival while they fit the budget."""
        batch.decode_all()
        while request := batch.next_waiting():
            if batch.prompt_tokens and batch.tokens + request.prefill_left > self.budget:
                break
            batch.prefill(request, request.prefill_left)

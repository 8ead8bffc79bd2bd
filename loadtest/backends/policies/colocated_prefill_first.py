"""Prefill-prioritising continuous batching (vLLM v0): prompts alone as long as one waits, else decodes alone.

Good for TTFT, and the worst of all for running decodes: they stand still for whole iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.backends.batch import Batch


@dataclass(frozen=True)
class ColocatedPrefillFirst:
    """`budget` = max_num_batched_tokens; a prompt longer than that runs alone."""

    budget: int

    def compose(self, batch: Batch) -> None:
        """Whole prompts in order of arrival while they fit the budget; only if there is none, every decode."""
        while request := batch.next_waiting():
            if batch.prompt_tokens and batch.tokens + request.prefill_left > self.budget:
                break
            batch.prefill(request, request.prefill_left)
        if not batch.prompt_tokens:
            batch.decode_all()

"""Pipeline parallelism: groups of requests pass the stages of a replica one behind the other.

An iteration that takes T stays T / stages in each stage, so the next group may enter T / stages later. A group that
catches up with a slower one waits: the bubbles of uneven batches (Sarathi-Serve, OSDI 2024, section 3.3).
"""

from __future__ import annotations


class Pipeline:
    """The stages of one replica and until when each is taken."""

    def __init__(self, stages: int) -> None:
        self._free_at = [float("-inf")] * stages
        self.bubble_s = 0.0  # spent by groups before a stage that was taken

    @property
    def free_at(self) -> float:
        """When the first stage takes the next group."""
        return self._free_at[0]

    def enter(self, now: float, duration_s: float) -> float:
        """Send an iteration that takes `duration_s` without others through all stages; returns when it is out."""
        share_s = duration_s / len(self._free_at)
        left = now
        for stage, free_at in enumerate(self._free_at):
            left = self._free_at[stage] = max(left, free_at) + share_s
        self.bubble_s += left - now - duration_s
        return left

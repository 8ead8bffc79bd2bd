"""The ladder: fixed points at low load, which show a change of a few per cent in minutes.

A queue amplifies a server's changes and its noise alike; with one prompt at a time, or a batch that decodes alone,
there is no queue. What it cannot show is what users feel: that is the replay's part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from loadtest.errors import Interrupted, TargetError
from loadtest.record import planned_info, record
from loadtest.target import Target
from loadtest.workload import fresh_salt
from metrics import rundir
from metrics.gate.sample import Sample, sample_of
from metrics.rundir import Run
from metrics.summary import summarise
from workloads.schedule import Schedule, unrelated

BATCHES: Final = (1, 8, 32)
PROMPTS: Final = (512, 2048, 8192)
BATCH_PROMPT, BATCH_TOKENS = 64, 128
REPEATS: Final = 5
SECONDS_PER_1K_TOKENS: Final = 0.5  # between two prompts of a point
ONE_BATCH_S: Final = 4.0  # between two batches of a point
RULES: Final = (
    *(f"tpot@{batch}.p50 rise < 3%" for batch in BATCHES),
    *(f"ttft@{prompt}.p50 rise < 5%" for prompt in PROMPTS),
)


class Point(NamedTuple):
    """One rung: `repeats` groups of `batch` equal requests, `every_s` apart."""

    metric: Literal["ttft", "tpot"]
    at: int  # what the rule calls it: batch size or prompt length
    batch: int
    prompt_tokens: int
    output_tokens: int
    every_s: float
    repeats: int = REPEATS

    def schedule(self) -> Schedule:
        """The rung as a schedule; its first group is warm-up."""
        return unrelated(
            np.repeat(np.arange(self.repeats + 1) * self.every_s, self.batch),
            self.prompt_tokens,
            self.output_tokens,
            warmup_s=self.every_s,
            salt=fresh_salt(),
            name=f"ladder {self.metric}@{self.at}",
            name_hash=f"ladder-{self.metric}-{self.at}",
        )


POINTS: Final = (
    *(Point("tpot", batch, batch, BATCH_PROMPT, BATCH_TOKENS, ONE_BATCH_S, 3) for batch in BATCHES),
    *(Point("ttft", prompt, 1, prompt, 1, max(0.5, prompt / 1000 * SECONDS_PER_1K_TOKENS)) for prompt in PROMPTS),
)


@dataclass(frozen=True)
class Ladder:
    """All rungs one after another against an opened target, each drained before the next begins."""

    command: list[str] = field(default_factory=list)
    points: tuple[Point, ...] = POINTS

    def expected_s(self) -> float:
        """Seconds of load in one run of the ladder."""
        return sum(point.every_s * (point.repeats + 1) for point in self.points)

    def __call__(self, target: Target, number: int, folder: Path) -> Sample:  # noqa: ARG002
        """One sample with the values of every rung that fits the model's context."""
        samples = [self._climb(target, point, folder) for point in self.points if _fits(point, target)]
        if not samples:
            raise TargetError("no rung of the ladder fits the model's context", code="exceeds_context")
        merged = msgspec.structs.replace(
            samples[0],
            values={key: value for sample in samples for key, value in sample.values.items()},
            few=[],
            requests=sum(sample.requests for sample in samples),
            failed=sum(sample.failed for sample in samples),
            findings=[finding for sample in samples for finding in sample.findings],
            trace="ladder",
            trace_name="ladder",
            recipe="",
        )
        merged.values["failed"] = merged.failed / max(merged.requests, 1)
        return merged

    def judge_stored(self, run: Run) -> Sample:
        """A single stored run is one rung, never a ladder."""
        raise TargetError(f"{run.info.name} is a stored run: the ladder needs two servers", code="stored_ladder")

    def _climb(self, target: Target, point: Point, folder: Path) -> Sample:
        inside = rundir.create(folder / f"{point.metric}-{point.at}")
        schedule = point.schedule()
        info = msgspec.structs.replace(planned_info(target, schedule), name=inside.name, command=self.command)
        run = record(target, schedule, info, inside)
        if run.info.state == "partial":
            raise Interrupted(f"stopped by the user; the runs so far are in {folder.parent}")
        sample = sample_of(summarise(run, None))
        prefix = f"{point.metric}."
        named = {key.replace(".", f"@{point.at}."): v for key, v in sample.values.items() if key.startswith(prefix)}
        # Several rungs would each say that its percentiles rest on few requests: that is what a ladder is.
        return msgspec.structs.replace(sample, values=named)


def _fits(point: Point, target: Target) -> bool:
    limit = target.facts.max_model_len
    return limit is None or point.prompt_tokens + point.output_tokens <= limit

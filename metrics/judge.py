"""Is this request good? The one place where a latency is held against a limit (docs/definitions.md).

`judge_rows` judges whole columns, `judge_row` one row with plain numbers while a run is under way; they always agree.
A joint SLO takes the worst verdict of its limits, a family of limits each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import inf, isnan, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metrics.latency import Mask, Seconds, e2e_s, is_ok, tpot_s, ttft_s
from metrics.records import Flag, Outcome, Rows

# A difference of two floats must not turn "exactly at the limit" into a miss.
SLACK_S = 1e-6
# Of the wait for the first token: a buffered answer that came whole within so little was held back, in however many
# reads its length made of it.
HELD_BACK = 0.01

_NOT_STREAMED, _BUFFERED = int(Flag.NOT_STREAMED), int(Flag.BUFFERED)  # arithmetic on Flag is slow
Limits = Mapping[str, float]  # seconds by quantity: ttft, tpot, e2e
Verdicts = NDArray[np.uint8]


class Verdict(IntEnum):
    """What became of a request under a limit; under several limits at once the highest counts."""

    GOOD = 0  # within the limit, or the limit does not apply
    UNDECIDED = 1  # cut off by a stop before it was past a limit: left out of attainment
    UNMEASURABLE = 2  # the limit applies and could not be measured on this answer: not good
    MISSED = 3
    FAILED = 4  # no answer came through


class Measured(NamedTuple):
    """What each row has to show for limits on some quantities, in seconds.

    NaN where nothing could be measured, -inf where a limit does not apply, inf where nothing came that could meet one.
    Of a row that a stop cut off it is the least that the whole request would have shown; NaN where that is not known.
    """

    values: dict[str, Seconds]
    failed: Mask
    interrupted: Mask


@dataclass(frozen=True, eq=False)
class Judgement:
    """The verdict of every row, under each limit alone and under all of them."""

    measured: Measured
    by_limit: dict[str, Verdicts]

    @cached_property
    def verdict(self) -> Verdicts:
        """Under all limits at once."""
        return np.asarray(np.maximum.reduce(list(self.by_limit.values())))

    @property
    def good(self) -> Mask:
        """Rows that met every limit."""
        return np.asarray(self.verdict == Verdict.GOOD)

    @property
    def decided(self) -> Mask:
        """Rows that attainment is about."""
        return np.asarray(self.verdict != Verdict.UNDECIDED)

    @property
    def none_measurable(self) -> bool:
        """Whether answers came and not one of them could be judged, so that a share of good ones means nothing."""
        answers = self.verdict[~(self.measured.failed | self.measured.interrupted)]
        return bool(len(answers) and (answers == Verdict.UNMEASURABLE).all())

    def count(self, verdict: Verdict, quantity: str | None = None) -> int:
        """Rows with a verdict, under all limits or one."""
        found = self.verdict if quantity is None else self.by_limit[quantity]
        return int(np.count_nonzero(found == verdict))


def judge_rows(rows: Rows, limits: Limits) -> Judgement:
    """Every row under limits that must hold together."""
    return judge(measure(rows, limits), limits)


def measure(rows: Rows, quantities: Iterable[str]) -> Measured:
    """What every row has to show, to be held against any limits on these quantities."""
    ok, interrupted = is_ok(rows), np.asarray(rows["outcome"] == Outcome.INTERRUPTED)
    empty = no_token(rows)
    values = {}
    for quantity in quantities:
        value = np.where(ok & ~empty, measured_s(rows, quantity), inf)
        if interrupted.any():
            value[interrupted] = _least_s(rows[interrupted], quantity)
        values[quantity] = value
    return Measured(values, ~ok & ~interrupted, interrupted)


def judge(measured: Measured, limits: Limits, slack: float = SLACK_S) -> Judgement:
    """What was measured, held against limits on its quantities."""
    found = {}
    for quantity, limit in limits.items():
        value = measured.values[quantity]
        verdict = np.full(len(value), Verdict.MISSED, dtype=np.uint8)
        verdict[value <= limit + slack] = Verdict.GOOD
        verdict[np.isnan(value)] = Verdict.UNMEASURABLE
        verdict[measured.interrupted & ~(value > limit + slack)] = Verdict.UNDECIDED
        verdict[measured.failed] = Verdict.FAILED
        found[quantity] = verdict
    return Judgement(measured, found)


def no_token(rows: Rows) -> Mask:
    """Rows without any token, streamed or counted by the server: such an answer misses every limit."""
    return np.asarray(np.isnan(rows["first_token_s"]) & (rows["output_tokens"] <= 0))


def measured_s(rows: Rows, quantity: str) -> Seconds:
    """A latency as the judge takes it: NaN where it could not be measured, -inf where a limit on it does not apply.

    One token has no time between tokens. The TPOT of several is unmeasurable when they came in one read, were held back
    on the way until the answer was whole, or were hidden.
    """
    if quantity != "tpot":
        return ttft_s(rows) if quantity == "ttft" else np.asarray(e2e_s(rows))
    span, wait = rows["last_token_s"] - rows["first_token_s"], rows["first_token_s"] - rows["sent_s"]
    held_back = ((rows["flags"] & _BUFFERED) != 0) & (span < HELD_BACK * wait)
    visible = np.where((span > 0) & ~held_back, tpot_s(rows), nan)
    return np.where(is_ok(rows) & (rows["output_tokens"] < 2), -inf, visible)


def _least_s(rows: Rows, quantity: str) -> Seconds:
    """The least that interrupted requests would have shown, had all that was missing come at the stop."""
    first, waited = rows["first_token_s"], rows["done_s"] - rows["scheduled_s"]
    if quantity == "e2e":
        return np.asarray(waited)
    if quantity == "ttft":
        return np.asarray(np.where(np.isnan(first), waited, first - rows["scheduled_s"]))
    most = np.maximum(rows["max_tokens"], rows["output_tokens"])
    last = np.where(rows["output_tokens"] >= rows["max_tokens"], rows["last_token_s"], rows["done_s"])
    return np.where(rows["max_tokens"] >= 2, (last - first) / np.maximum(most - 1, 1), nan)


# --- one row, with plain numbers ---------------------------------------------------------------------------------


def judge_row(row: Mapping[str, float], limits: Limits) -> Verdict:
    """One row by its columns under limits that must hold together: what `judge_rows` says of it."""
    outcome = row["outcome"]
    if outcome == Outcome.INTERRUPTED:
        late = any(_least_of(row, quantity) > limit + SLACK_S for quantity, limit in limits.items())
        return Verdict.MISSED if late else Verdict.UNDECIDED
    if outcome != Outcome.OK:
        return Verdict.FAILED
    worst = Verdict.GOOD
    for quantity, limit in limits.items():
        value = measured_of(row, quantity)
        if not value <= limit + SLACK_S:
            worst = max(worst, Verdict.UNMEASURABLE if isnan(value) else Verdict.MISSED)
    return worst


def measured_of(row: Mapping[str, float], quantity: str) -> float:
    """What an answer that came through has to show for a limit, as in `Measured`."""
    tokens, first = row["output_tokens"], row["first_token_s"]
    if tokens <= 0 and isnan(first):
        return inf
    if quantity == "e2e":
        return row["done_s"] - row["scheduled_s"]
    if quantity == "tpot" and tokens < 2:
        return -inf
    flags = int(row["flags"])
    if flags & _NOT_STREAMED:
        return nan
    if quantity == "ttft":
        return first - row["scheduled_s"]
    gaps, span_s = tokens - row["hidden_tokens"] - 1, row["last_token_s"] - first
    held_back = flags & _BUFFERED and span_s < HELD_BACK * (first - row["sent_s"])
    return span_s / gaps if gaps >= 1 and span_s > 0 and not held_back else nan


def overdue(limits: Limits, waited_s: float, *, started: bool) -> bool:
    """Whether a request on its way is certain to miss: it has waited longer for its first token, or its end, than is
    allowed. What has `started` is late only by its end."""
    ttft_limit, e2e_limit = inf if started else limits.get("ttft", inf), limits.get("e2e", inf)
    return waited_s > min(ttft_limit, e2e_limit) + SLACK_S


def _least_of(row: Mapping[str, float], quantity: str) -> float:
    """`_least_s` of one row."""
    first, waited_s = row["first_token_s"], row["done_s"] - row["scheduled_s"]
    if quantity == "e2e":
        return waited_s
    if quantity == "ttft":
        return waited_s if isnan(first) else first - row["scheduled_s"]
    asked, tokens = row["max_tokens"], row["output_tokens"]
    last = row["last_token_s"] if tokens >= asked else row["done_s"]
    return (last - first) / (max(asked, tokens) - 1) if asked >= 2 else nan

"""What a deployment is asked for, in every form: a joint SLO, or a family of limits that must hold side by side.

A joint `SLO` judges each request by all its limits at once (DistServe). A `Family` is a list of percentiles: `P99 x <=
L` means that 99 % of all x are at most L. Both give counts per run, so both are searched for by the same fit.

    ttft=200ms,tpot=50ms,share=90%      joint
    ttft.p90=1s,itl.p99=60ms            a family written by hand
    splitwise, sarathi:strict, ...      a family by name (metrics/families.py)
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.errors import MetricsError
from metrics.goodput import LimitCount
from metrics.judge import SLACK_S, Measured, Verdict, judge_rows, measure, measured_s, no_token
from metrics.judge import judge as hold
from metrics.latency import Mask, counted, is_ok, itl_s, select
from metrics.records import RecordTable, Rows
from metrics.slo import FAILURES, NOT_MEASURABLE, SLO, hinges, unknown_because

Floats = NDArray[np.float64]

JOINT = "all limits"
QUANTITIES = ("ttft", "tpot", "e2e", "itl", "queue")  # in seconds
SLOWDOWNS = ("ttft_slowdown", "tpot_slowdown", "e2e_slowdown")  # times the same request alone
TIMES = {"ttft", "tpot", "e2e"}  # what the judge measures of a row
NUMERATORS = {name: name.removesuffix("_slowdown") for name in SLOWDOWNS}
_NOT_TOLD = {"queue": "the server does not tell how long requests waited"}
_LIMIT = re.compile(r"\s*([a-z0-9_]+)\.p(\d+(?:\.\d+)?)\s*=\s*([\d.]+)\s*(ms|s|m|x)\s*")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "x": 1.0}


class Limit(msgspec.Struct, frozen=True):
    """At least `share` of all values are at most `limit`: seconds, or times the reference for a slowdown."""

    quantity: str
    limit: float
    share: float

    @property
    def name(self) -> str:
        """`ttft.p90`."""
        return f"{self.quantity}.p{self.share * 100:.6g}"

    def __str__(self) -> str:
        unit = "x" if self.quantity in SLOWDOWNS else "s"
        return f"{self.name}={self.limit:.6g}{unit}"


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that must all hold, each over all requests (or token gaps) of a run; `source` says whose they are."""

    name: str = ""
    source: str = ""
    limits: tuple[Limit, ...]

    @property
    def needs_gaps(self) -> bool:
        """Whether a limit is on token gaps."""
        return any(limit.quantity == "itl" for limit in self.limits)

    @property
    def needs_reference(self) -> bool:
        """Whether a limit is on a slowdown."""
        return any(limit.quantity in SLOWDOWNS for limit in self.limits)

    def __str__(self) -> str:
        return self.name or ",".join(str(limit) for limit in self.limits)


class Reference(NamedTuple):
    """What each row of a table would take alone on an idle server, in seconds; NaN below two tokens for TPOT."""

    ttft_s: Floats
    tpot_s: Floats


class Judged(msgspec.Struct, frozen=True):
    """A run against an objective: the counts per objective, the worst of them, and what was missed how often.

    `unmeasurable` are units that count as missed because nothing could be measured on them.
    """

    limits: list[LimitCount]
    misses: dict[str, int]
    unmeasurable: dict[str, int] = {}

    @property
    def worst(self) -> LimitCount:
        """The objective that is farthest from its share, in units of the misses it allows."""
        return max(self.limits, key=lambda c: (c.total - c.good) / max((1 - c.share) * c.total, 1e-9))

    @property
    def met(self) -> bool:
        """Whether every objective is."""
        return all(limit.met for limit in self.limits)

    @property
    def hinges_on_unmeasurable(self) -> bool:
        """Whether an objective is missed only because some units could not be measured."""
        return any(hinges(c.good, self.unmeasurable.get(c.name, 0), c.total, c.share) for c in self.limits)


Objective = SLO | Family


def parse_objective(text: str) -> Objective:
    """Read a joint SLO, a list of percentile limits, or the name of a family; MetricsError `bad_slo`."""
    from metrics.families import FAMILIES

    named = FAMILIES.get(text.strip().lower())
    if named is not None:
        return named
    if "=" not in text:
        near = difflib.get_close_matches(text.lower(), FAMILIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "write ttft=200ms,tpot=50ms or a name of docs/goodput.md"
        raise MetricsError(f"there is no SLO of the name {text!r}", code="bad_slo", hint=hint)
    if ".p" not in text:
        return SLO.parse(text)
    return Family(limits=tuple(_read_limit(part, text) for part in text.split(",")))


def judge(
    table: RecordTable, objective: Objective, reference: Reference | None = None, stopped_at_s: float | None = None
) -> Judged:
    """Count every row after the warm-up (and before a stop); MetricsError when something cannot be measured."""
    keep = counted(table.rows, stopped_at_s)
    rows = select(table.rows, keep)
    if isinstance(objective, SLO):
        return _joint(rows, objective)
    measured = measure(rows, {NUMERATORS.get(limit.quantity, limit.quantity) for limit in objective.limits} & TIMES)
    found = [_count(table, rows, keep, limit, measured, reference) for limit in objective.limits]
    counts = [count for count, _ in found]
    misses = {limit.name: limit.total - limit.good for limit in counts}
    misses[FAILURES] = int(measured.failed.sum())
    return Judged(counts, misses, {count.name: unmeasurable for count, unmeasurable in found if unmeasurable})


def _joint(rows: Rows, slo: SLO) -> Judged:
    judged = judge_rows(rows, slo.limits)
    reason = unknown_because(rows, judged)
    if reason is not None and reason.endswith(NOT_MEASURABLE):
        raise MetricsError(f"no answer shows its {reason.removesuffix(NOT_MEASURABLE).upper()}", code=reason)
    not_met = {q: judged.count(Verdict.MISSED, q) + judged.count(Verdict.UNMEASURABLE, q) for q in slo.limits}
    count = LimitCount(JOINT, judged.count(Verdict.GOOD), int(judged.decided.sum()), slo.share)
    unmeasurable = judged.count(Verdict.UNMEASURABLE)
    return Judged(
        [count],
        {FAILURES: judged.count(Verdict.FAILED)} | not_met,
        {JOINT: unmeasurable} if unmeasurable else {},
    )


def _count(
    table: RecordTable, rows: Rows, keep: Mask, limit: Limit, measured: Measured, reference: Reference | None
) -> tuple[LimitCount, int]:
    """How many units met one limit of a family, and how many could not be measured."""
    if limit.quantity == "itl":
        return _count_gaps(table, keep, limit, int(measured.failed.sum()))
    shown = measured._replace(values={limit.quantity: _values(rows, keep, limit.quantity, measured, reference)})
    slack = 1e-9 if limit.quantity in SLOWDOWNS else SLACK_S
    judged = hold(shown, {limit.quantity: limit.limit}, slack)
    if judged.none_measurable:
        raise MetricsError(
            _NOT_TOLD.get(limit.quantity, f"no answer shows its {limit.quantity}"),
            code=f"{limit.quantity}{NOT_MEASURABLE}",
        )
    count = LimitCount(limit.name, judged.count(Verdict.GOOD), int(judged.decided.sum()), limit.share)
    return count, judged.count(Verdict.UNMEASURABLE)


def _count_gaps(table: RecordTable, keep: Mask, limit: Limit, failed: int) -> tuple[LimitCount, int]:
    """Token gaps of all answers. Those between tokens that no read told apart are there and were not measured."""
    if table.events is None:
        raise MetricsError("token gaps were not kept, so no limit on them can be judged", code="no_token_times")
    answers = keep & is_ok(table.rows)
    hidden = answers & np.isnan(measured_s(table.rows, "tpot"))
    values = itl_s(table.events, answers & ~hidden)
    unmeasurable = int(np.maximum(table.rows["output_tokens"][hidden] - 1, 1).sum())
    if unmeasurable and not len(values):
        raise MetricsError("no answer shows the times between its tokens", code=f"itl{NOT_MEASURABLE}")
    good, total = int((values <= limit.limit + SLACK_S).sum()), len(values) + unmeasurable
    # Failed requests have no gaps; where nothing else came there is none at all, and the limit was not kept either.
    return LimitCount(limit.name, good, total or failed, limit.share), unmeasurable


def _values(rows: Rows, keep: Mask, quantity: str, measured: Measured, reference: Reference | None) -> Floats:
    """What each row has to show for a limit on `quantity`, as the judge takes it."""
    if quantity == "queue":
        queue_s = np.where(no_token(rows), np.inf, rows["queue_s"])
        return np.where(measured.failed, np.inf, np.where(measured.interrupted, np.nan, queue_s))
    if quantity not in SLOWDOWNS:
        return measured.values[quantity]
    if reference is None:
        raise MetricsError("slowdowns need the times of the same requests on an idle server", code="no_reference")
    ttft, tpot = reference.ttft_s[keep], reference.tpot_s[keep]
    later = np.maximum(np.where(measured.interrupted, rows["max_tokens"], rows["output_tokens"]) - 1, 0)
    whole = ttft + np.where(later > 0, tpot * later, 0.0)
    alone = {"ttft_slowdown": ttft, "tpot_slowdown": tpot, "e2e_slowdown": whole}[quantity]
    shown = measured.values[NUMERATORS[quantity]]
    # What needs no reference stays as it is: a failed request, and a limit that does not apply.
    return np.where(np.isfinite(shown), shown / np.where(alone > 0, alone, np.nan), shown)


def _read_limit(part: str, text: str) -> Limit:
    match = _LIMIT.fullmatch(part)
    known = (*QUANTITIES, *SLOWDOWNS)
    if match is None or match[1] not in known or not 0 < float(match[2]) < 100 or not float(match[3]) > 0:
        raise MetricsError(
            f"{part.strip()!r} in the SLO {text!r} is not a percentile limit",
            code="bad_slo",
            hint=f"as in ttft.p90=1s,itl.p99=60ms or ttft_slowdown.p90=3x; known are {', '.join(known)}",
        )
    if (match[4] == "x") != (match[1] in SLOWDOWNS):
        raise MetricsError(
            f"{part.strip()!r} in the SLO {text!r} has the wrong unit",
            code="bad_slo",
            hint="slowdowns are written 3x, times with ms, s or m",
        )
    return Limit(match[1], float(match[3]) * _UNITS[match[4]], float(match[2]) / 100)

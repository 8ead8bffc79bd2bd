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
from metrics.latency import Mask, counted, e2e_s, is_ok, itl_s, select, tpot_s, ttft_s
from metrics.records import RecordTable, Rows
from metrics.slo import FAILURES, SLACK_S, SLO, met_limit, not_measurable

Floats = NDArray[np.float64]

JOINT = "all limits"
QUANTITIES = ("ttft", "tpot", "e2e", "itl", "queue")  # in seconds
SLOWDOWNS = ("ttft_slowdown", "tpot_slowdown", "e2e_slowdown")  # times the same request alone
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
    """A run against an objective: the counts per objective, the worst of them, and what was missed how often."""

    limits: list[LimitCount]
    misses: dict[str, int]

    @property
    def worst(self) -> LimitCount:
        """The objective that is farthest from its share, in units of the misses it allows."""
        return max(self.limits, key=lambda c: (c.total - c.good) / max((1 - c.share) * c.total, 1e-9))

    @property
    def met(self) -> bool:
        """Whether every objective is."""
        return all(limit.met for limit in self.limits)


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
    limits = [_count(table, rows, keep, limit, reference) for limit in objective.limits]
    misses = {limit.name: limit.total - limit.good for limit in limits}
    return Judged(limits, misses | {FAILURES: int((~is_ok(rows)).sum())})


def _joint(rows: Rows, slo: SLO) -> Judged:
    if not_measurable(rows, slo).any():
        raise MetricsError("the answers came in one piece: TTFT cannot be measured", code="ttft_not_measurable")
    ok = is_ok(rows)
    met = {quantity: met_limit(rows, slo, quantity) for quantity in slo.limits}
    good = int(np.logical_and.reduce(list(met.values())).sum())
    misses = {FAILURES: int((~ok).sum())} | {quantity: int((ok & ~mask).sum()) for quantity, mask in met.items()}
    return Judged([LimitCount(JOINT, good, len(rows), slo.share)], misses)


def _count(table: RecordTable, rows: Rows, keep: Mask, limit: Limit, reference: Reference | None) -> LimitCount:
    if limit.quantity == "itl":
        if table.events is None:
            raise MetricsError("token gaps were not kept, so no limit on them can be judged", code="no_token_times")
        values = itl_s(table.events, keep & is_ok(table.rows))
        return LimitCount(limit.name, int((values <= limit.limit + SLACK_S).sum()), len(values), limit.share)
    values = _values(rows, keep, limit.quantity, reference)
    slack = 1e-9 if limit.quantity in SLOWDOWNS else SLACK_S
    within = values <= limit.limit + slack
    if limit.quantity.startswith("tpot"):
        within |= np.isnan(values) & is_ok(rows) & ~np.isnan(rows["first_token_s"])  # one token: nothing to miss
    return LimitCount(limit.name, int(within.sum()), len(rows), limit.share)


def _values(rows: Rows, keep: Mask, quantity: str, reference: Reference | None) -> Floats:
    """One value per row, NaN for a failed request."""
    if quantity == "queue":
        if len(rows) and np.isnan(rows["queue_s"]).all():
            raise MetricsError("the server does not tell how long requests waited", code="queue_not_measurable")
        return np.where(is_ok(rows), rows["queue_s"], np.nan)
    if quantity in QUANTITIES:
        return {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}[quantity](rows)
    if reference is None:
        raise MetricsError("slowdowns need the times of the same requests on an idle server", code="no_reference")
    ttft, tpot = reference.ttft_s[keep], reference.tpot_s[keep]
    if quantity == "ttft_slowdown":
        return np.asarray(ttft_s(rows) / ttft)
    if quantity == "tpot_slowdown":
        return np.asarray(tpot_s(rows) / tpot)
    return np.asarray(e2e_s(rows) / (ttft + np.nan_to_num(tpot) * np.maximum(rows["output_tokens"] - 1, 0)))


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

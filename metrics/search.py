"""What a search for goodput has to show: its runs, the estimate, and the rows of its report (`goodput.search/1`)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np

from metrics.goodput import GoodputEstimate, LimitCount, SweepGoodput, pool
from metrics.slo import FAILURES

Purpose = Literal["bracket", "fit"]
Mode = Literal["search", "rates", "concurrency", "slo-scale", "saturation"]


class Counted(msgspec.Struct, frozen=True):
    """What one run at a rate showed: good requests of those counted.

    `good` of an aborted run is the most it could still have become. `requests` were offered in `seconds` on the
    target's clock, the warm-up included.
    """

    good: int
    total: int
    requests: int = 0
    seconds: float = 0.0
    aborted: bool = False
    median_e2e_s: float = 0.0
    misses: dict[str, int] = {}
    limits: list[LimitCount] = []
    phases_p90_s: dict[str, float] = {}  # queue, prefill, transfer: where the server tells
    unsound: list[str] = []  # validity findings that make the run worthless
    folder: str = ""
    output_tokens_per_s: float = 0.0
    user_tokens_per_s: float = 0.0  # 1 / the median TPOT: what one user sees
    scaled_good: list[int] = []  # good with all limits scaled by each of metrics.sweep.SCALES
    extrapolated: float = 0.0  # share of simulated time outside the range the performance model was fitted on


class Attempt(Counted, frozen=True, kw_only=True):
    """One run of a search; bracketing runs say where to look, only the others are fitted."""

    rate_per_s: float
    purpose: Purpose

    def counts(self, share: float) -> list[LimitCount]:
        """Its objectives; good of total at `share` where there is only the one."""
        return self.limits or [LimitCount("", self.good, self.total, share)]


class Found(msgspec.Struct, frozen=True):
    """The estimate and every run behind it."""

    goodput: GoodputEstimate
    attempts: list[Attempt]
    stopped: str = ""  # `budget` when that ended the search before it was done
    binding: str | None = None  # the objective that most requests missed; None when nothing was missed

    @property
    def requests(self) -> int:
        """Offered in all."""
        return sum(attempt.requests for attempt in self.attempts)

    @property
    def seconds(self) -> float:
        """Of load, on the target's clock."""
        return sum(attempt.seconds for attempt in self.attempts)


class Saturation(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment delivers when there is always more to do, without any objective."""

    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float  # prompts included
    output_tokens_per_s_per_gpu: float | None


class SloScale(msgspec.Struct, frozen=True, kw_only=True):
    """The least factor on all limits at which the target share is reached at a rate, with its 95 % interval.

    `scale` is None when no factor helps, because too many requests failed; 0.5 says that targets twice as tight hold.
    """

    rate_per_s: float
    scale: float | None
    low: float | None
    high: float | None
    runs: int


class SearchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment, or one value of a swept flag."""

    label: str
    deployment: str
    gpus: int | None
    value: str = ""
    goodput: GoodputEstimate | None = None
    goodput_per_gpu: GoodputEstimate | None = None
    sweep: SweepGoodput | None = None
    attempts: list[Attempt] = []
    stopped: str = ""
    binding: str | None = None
    marginals: dict[str, float] = {}  # share of requests within each limit, over the runs that count
    limit_rates: dict[str, float] = {}  # of a family: the rate each limit alone would allow
    saturation: Saturation | None = None
    slo_scale: SloScale | None = None
    unsound: list[str] = []
    best: bool = False


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a search found."""

    schema: str = "goodput.search/1"
    mode: Mode
    clock: Literal["virtual", "live"]
    trace: str
    slo: str
    seed: int
    share: float | None
    command: list[str]
    swept: str = ""
    state: Literal["running", "complete", "partial"] = "running"
    rows: list[SearchRow] = []
    sentence: str = ""
    warnings: list[str] = []


def row_of(label: str, deployment: str, gpus: int | None, found: Found, value: str = "") -> SearchRow:
    """The row of a finished search."""
    from metrics.goodput import rates_of_limits

    counting = [a for a in found.attempts if a.purpose == "fit"] or [a for a in found.attempts if not a.aborted]
    family = [(a.rate_per_s, a.limits) for a in counting if len(a.limits) > 1]
    return SearchRow(
        label=label,
        deployment=deployment,
        gpus=gpus,
        value=value,
        goodput=found.goodput,
        goodput_per_gpu=found.goodput.per_gpu(gpus) if gpus else None,
        attempts=found.attempts,
        stopped=found.stopped,
        binding=found.binding,
        marginals=marginals(counting),
        limit_rates=rates_of_limits(family) if family else {},
        unsound=sorted({code for a in counting for code in a.unsound}),
    )


WORTH_SAYING: Final = 0.0005  # less would be printed as 0.0 %


def extrapolation(rows: list[SearchRow]) -> list[str]:
    """A sentence for each row whose simulations left the calibrated range, with the share of their time outside."""
    shares = {(row.label, row.value): _outside(row.attempts) for row in rows}
    return [
        f"{label if label.endswith(value) else f'{label} {value}'}: {share * 100:.1f} % of the simulated time lay "
        "outside the range the performance model was fitted on"
        for (label, value), share in shares.items()
        if share >= WORTH_SAYING
    ]


def _outside(attempts: list[Attempt]) -> float:
    """Of the runs that the estimate rests on, weighted by their length."""
    counting = [a for a in attempts if a.purpose == "fit"] or attempts
    seconds = sum(a.seconds for a in counting)
    return sum(a.extrapolated * a.seconds for a in counting) / seconds if seconds else 0.0


def marginals(attempts: list[Attempt]) -> dict[str, float]:
    """The share that met each objective, over several runs."""
    total = sum(a.total for a in attempts)
    if not total:
        return {}
    if all(len(a.limits) > 1 for a in attempts):
        return {c.name: c.good / c.total for c in pool([a.limits for a in attempts]) if c.total}
    missed = {name: sum(a.misses.get(name, 0) for a in attempts) for a in attempts for name in a.misses}
    failed = missed.get(FAILURES, 0)  # what failed met no limit
    return {name: 1 - (missed[name] + (failed if name != FAILURES else 0)) / total for name in missed}


def binding(attempts: list[Attempt]) -> str | None:
    """What most requests missed, or of a family the limit that allows the least."""
    if attempts and all(len(a.limits) > 1 for a in attempts):
        together = [c for c in pool([a.limits for a in attempts]) if c.total]
        by_limit = {c.name: (1 - c.good / c.total) / (1 - c.share) for c in together}
        worst = max(by_limit, key=lambda name: by_limit[name], default=None)
        return worst if worst is not None and by_limit[worst] > 0 else None
    missed = {name: sum(a.misses.get(name, 0) for a in attempts) for a in attempts for name in a.misses}
    worst = max(missed, key=lambda name: missed[name], default=None)
    return worst if worst is not None and missed[worst] else None


def mark_best(rows: list[SearchRow]) -> tuple[list[SearchRow], str]:
    """The rows with the best one marked, and what a sweep of a flag says: is there a best, and do both ends lose?"""
    known = [row for row in rows if row.goodput is not None]
    if len(known) < 2:
        return rows, ""
    best = max(known, key=lambda row: row.goodput.rate if row.goodput else 0.0)
    marked = [msgspec.structs.replace(row, best=row is best) for row in rows]
    losing = [row.value for row in (rows[0], rows[-1]) if row is not best and _apart(row, best)]
    level = [row.value for row in known if row is not best and not _apart(row, best)]
    said = f"{best.value} is the best value"
    if level:
        said = f"{best.value} has the highest estimate, but cannot be told from {' and '.join(level)}"
    if len(losing) == 2:
        said += f"; both ends lose ({losing[0]} and {losing[1]})"
    elif losing:
        said += f"; of the ends only {losing[0]} loses"
    return marked, f"{said}."


def _apart(low: SearchRow, best: SearchRow) -> bool:
    """Whether two intervals do not overlap."""
    if low.goodput is None or best.goodput is None:
        return False
    return low.goodput.most < best.goodput.least


def scale_of(rate_per_s: float, needed: list[float | None]) -> SloScale:
    """The factor from one value per run: the geometric mean, with Student's t over runs."""
    from scipy.stats import t

    known = np.log([scale for scale in needed if scale is not None])
    runs = len(needed)
    if len(known) < runs or not runs:
        return SloScale(rate_per_s=rate_per_s, scale=None, low=None, high=None, runs=runs)
    mean = float(known.mean())
    if runs < 2:
        return SloScale(rate_per_s=rate_per_s, scale=float(np.exp(mean)), low=None, high=None, runs=runs)
    reach = float(t.ppf(0.975, runs - 1) * known.std(ddof=1) / np.sqrt(runs))
    low, high = float(np.exp(mean - reach)), float(np.exp(mean + reach))
    return SloScale(rate_per_s=rate_per_s, scale=float(np.exp(mean)), low=low, high=high, runs=runs)

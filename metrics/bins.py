"""All aggregation behind the figures of a report: a run in, a few hundred numbers out, whatever its size.

Latencies are those of requests that ended well after warm-up, seconds throughout. The density lattice is
logarithmic and anchored at the targets, so a cell lies on one side of each target and the cells of all runs
judged by one SLO fall on the same lattice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.certainty import Certainty, certainty
from metrics.heat import Heat, heat
from metrics.judge import SLACK_S, Judgement, Verdict, Verdicts, judge_rows, measured_s, no_token
from metrics.latency import counted, e2e_s, is_ok, select, tpot_s, ttft_s
from metrics.lengths import LengthGrid, length_grid
from metrics.phases import Phases, phases
from metrics.records import RecordTable, Rows
from metrics.slo import SLO, unknown_because
from metrics.stats import sorted_quantiles
from metrics.tightness import Tightness, tightness
from metrics.tokengaps import Interference, WorstGap, event_blocks, gap_quantiles_s, interference, worst_gap

if TYPE_CHECKING:
    from metrics.rundir import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TTFT_CELLS_PER_DECADE, TPOT_CELLS_PER_DECADE = 16, 32  # halved together until the plane has few enough cells
MAX_CELLS = 400
SMALLEST_S = 1e-5  # a latency of zero (a simulated run can have one) is drawn in the lowest cell
SHARES = sorted({*(i / 50 for i in range(51)), 0.05, 0.25, 0.75, 0.95, 0.99, 0.995, 0.999})
TIMELINE_BINS = 120  # at most
NICE_WIDTHS_S = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0]


class Targets(msgspec.Struct, frozen=True):
    """The limits figures draw, seconds; None where the SLO sets none. `share` is the attainment to reach."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    share: float | None = None


class Quadrants(msgspec.Struct, frozen=True):
    """Planned requests after warm-up by what they missed; the counts sum to `total`, which leaves out the undecided.

    `late_end` met TTFT and TPOT but not the limit on the whole answer, when the SLO has one. An answer without a token
    counts as failed.
    """

    ok: int
    late_first_token: int
    slow_tokens: int
    both: int
    late_end: int
    failed: int
    total: int
    unmeasurable: int = 0  # missed nothing, and a limit could not be measured
    undecided: int = 0


class Density(msgspec.Struct, frozen=True):
    """Requests in cells of TTFT x TPOT; a cell begins at anchor * 10 ** (index / per_decade) on each axis."""

    ttft_per_decade: int
    tpot_per_decade: int
    ttft_anchor_s: float
    tpot_anchor_s: float
    ttft_cell: list[int]
    tpot_cell: list[int]
    count: list[int]
    without_tpot: int  # ended well, with a single token or all of them at once: no place in the plane


class Curve(msgspec.Struct, frozen=True):
    """Quantiles of one latency at `SHARES`, in seconds, and how many values there were."""

    n: int
    quantile_s: list[float]
    within_target: float | None = None  # share of the values at or below the target


class Curves(msgspec.Struct, frozen=True):
    """Distribution of each latency; None where nothing was measured."""

    ttft_s: Curve | None
    tpot_s: Curve | None
    itl_s: Curve | None
    e2e_s: Curve | None


class Timeline(msgspec.Struct, frozen=True):
    """The run in bins of `width_s`, drain included; requests are counted where they were due.

    `in_flight` is the mean over the bin of requests sent and not ended. TTFT percentiles are None in a bin
    without a request that ended well; `output_tokens_per_s` is None when token times were not kept.
    """

    width_s: float
    warmup_until_s: float
    start_s: list[float]
    arrivals: list[int]
    in_flight: list[float]
    failed: list[int]
    ttft_p50_s: list[float | None]
    ttft_p90_s: list[float | None]
    output_tokens_per_s: list[float] | None


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the figures of one run draw."""

    targets: Targets
    quadrants: Quadrants | None
    density: Density | None
    curves: Curves
    timeline: Timeline | None
    interference: Interference | None
    worst_gap: WorstGap | None
    phases: Phases | None = None
    tightness: Tightness | None = None
    lengths: LengthGrid | None = None
    heat: Heat | None = None  # of a long run
    certainty: Certainty | None = None


def bins(run: Run, slo: SLO | None) -> Bins:
    """Aggregate a run for its figures; `slo` sets the targets and the quadrants (None: neither)."""
    apart = run.info.arrangement == "disaggregated"
    return table_bins(run.table, slo, run.info.stopped_at_s, disaggregated=apart)


def table_bins(
    table: RecordTable, slo: SLO | None, stopped_at_s: float | None = None, *, disaggregated: bool = False
) -> Bins:
    """The same from a table in memory."""
    keep = counted(table.rows, stopped_at_s)
    ended_well = keep & is_ok(table.rows)
    mine, answered = select(table.rows, keep), select(table.rows, ended_well)
    held = None if slo is None else judge_rows(mine, slo.limits)
    judged = None if held is None or unknown_because(mine, held) is not None else held
    timeline = _timeline(table)
    targets = Targets() if slo is None else Targets(slo.ttft_s, slo.tpot_s, slo.e2e_s, slo.share)
    return Bins(
        targets=targets,
        quadrants=None if judged is None else _quadrants(mine, judged),
        density=_density(answered, targets),
        curves=_curves(mine, held, gap_quantiles_s(table, ended_well, SHARES)),
        timeline=timeline,
        interference=interference(table, ended_well),
        worst_gap=worst_gap(table, ended_well),
        phases=phases(table, ended_well, disaggregated=disaggregated),
        tightness=None if judged is None or slo is None else tightness(judged, slo),
        lengths=None if judged is None else length_grid(mine, judged),
        heat=None if timeline is None else _heat(answered, timeline),
        certainty=None if judged is None else certainty(judged),
    )


def _heat(answered: Rows, timeline: Timeline) -> Heat | None:
    return heat(answered["scheduled_s"], ttft_s(answered), timeline.width_s, len(timeline.start_s))


def _quadrants(rows: Rows, judged: Judgement) -> Quadrants:
    failed = (judged.verdict == Verdict.FAILED) | (is_ok(rows) & no_token(rows))
    none = np.zeros(len(rows), dtype=bool)
    missed = {quantity: ~failed & (found == Verdict.MISSED) for quantity, found in judged.by_limit.items()}
    late, slow = missed.get("ttft", none), missed.get("tpot", none)
    late_end = missed.get("e2e", none) & ~late & ~slow
    return Quadrants(
        ok=judged.count(Verdict.GOOD),
        late_first_token=int((late & ~slow).sum()),
        slow_tokens=int((slow & ~late).sum()),
        both=int((late & slow).sum()),
        late_end=int(late_end.sum()),
        failed=int(failed.sum()),
        total=int(judged.decided.sum()),
        unmeasurable=judged.count(Verdict.UNMEASURABLE),
        undecided=judged.count(Verdict.UNDECIDED),
    )


def _density(rows: Rows, targets: Targets) -> Density | None:
    ttft, tpot = ttft_s(rows), measured_s(rows, "tpot")
    placed = np.isfinite(ttft) & np.isfinite(tpot)
    if not placed.any():
        return None
    across_at, up_at = _decades(ttft[placed], targets.ttft_s), _decades(tpot[placed], targets.tpot_s)
    for halvings in range(4):
        per_decade = TTFT_CELLS_PER_DECADE >> halvings, TPOT_CELLS_PER_DECADE >> halvings
        across, up, count = _occupied(_cell(across_at, per_decade[0]), _cell(up_at, per_decade[1]))
        if len(count) <= MAX_CELLS:
            break
    return Density(
        ttft_per_decade=per_decade[0],
        tpot_per_decade=per_decade[1],
        ttft_anchor_s=targets.ttft_s or 1.0,
        tpot_anchor_s=targets.tpot_s or 1.0,
        ttft_cell=across.tolist(),
        tpot_cell=up.tolist(),
        count=count.tolist(),
        without_tpot=int((np.isfinite(ttft) & ~np.isfinite(tpot)).sum()),
    )


def _decades(value_s: Floats, target_s: float | None) -> Floats:
    """Where each value lies, in decades from the anchor."""
    anchor = target_s or 1.0
    return np.log10(np.maximum(value_s - (SLACK_S if target_s else 0.0), SMALLEST_S) / anchor)


def _cell(decades: Floats, per_decade: int) -> Ints:
    """Index of the cell of each value: cell k is (anchor * 10**(k/d), anchor * 10**((k+1)/d)], so 'at the
    target' (slack included) is inside cell -1."""
    return np.asarray(np.ceil(decades * per_decade).astype(np.int64) - 1)


def _occupied(across: Ints, up: Ints) -> tuple[Ints, Ints, Ints]:
    """The cells that hold something, in order, and how much."""
    left, low = int(across.min()), int(up.min())
    height = int(up.max()) - low + 1
    place = (across - left) * height + (up - low)
    count = np.bincount(place)
    cells = np.flatnonzero(count)
    return cells // height + left, cells % height + low, count[cells]


def _curves(rows: Rows, held: Judgement | None, gaps: tuple[int, list[float]] | None) -> Curves:
    by_limit = {} if held is None else held.by_limit
    return Curves(
        ttft_s=_curve(ttft_s(rows), by_limit.get("ttft")),
        tpot_s=_curve(tpot_s(rows), by_limit.get("tpot")),
        itl_s=None if gaps is None else Curve(*gaps),
        e2e_s=_curve(e2e_s(rows), by_limit.get("e2e")),
    )


def _curve(value_s: Floats, verdicts: Verdicts | None) -> Curve | None:
    drawn = np.isfinite(value_s)
    if not drawn.any():
        return None
    within = None if verdicts is None else float((verdicts[drawn] == Verdict.GOOD).mean())
    return Curve(int(drawn.sum()), sorted_quantiles(np.sort(value_s[drawn]), SHARES), within)


def _timeline(table: RecordTable) -> Timeline | None:
    rows = table.rows
    due = rows["scheduled_s"]
    if not np.isfinite(due).any():
        return None
    ends = np.concatenate([due, rows["done_s"], rows["last_token_s"]])
    width = _nice_width(float(np.nanmax(ends)))
    count = int(np.nanmax(ends) / width) + 1
    edges = np.arange(count + 1, dtype=np.float64) * width
    # The nanosecond keeps 0.3 s in the bin that begins at 0.3 s, whatever 0.3 / 0.1 is in binary.
    which = np.clip((np.nan_to_num(due) + 1e-9) / width, 0, count - 1).astype(np.int64)
    ok = is_ok(rows)
    p50, p90 = _percentiles_by_bin(which[ok], ttft_s(select(rows, ok)), count)
    return Timeline(
        width_s=width,
        warmup_until_s=float(np.nanmax(due[rows["warmup"]])) if rows["warmup"].any() else 0.0,
        start_s=[round(float(edge), 6) for edge in edges[:-1]],
        arrivals=np.bincount(which, minlength=count).tolist(),
        in_flight=_mean_in_flight(rows["sent_s"], rows["done_s"], edges),
        failed=np.bincount(which[~ok], minlength=count).tolist(),
        ttft_p50_s=p50,
        ttft_p90_s=p90,
        output_tokens_per_s=_token_rate(table, count, width),
    )


def _nice_width(span_s: float) -> float:
    """The narrowest round width that needs at most `TIMELINE_BINS` bins; whole hours beyond the list."""
    for width in NICE_WIDTHS_S:
        if span_s <= width * TIMELINE_BINS:
            return width
    return 3600.0 * math.ceil(span_s / TIMELINE_BINS / 3600.0)


def _mean_in_flight(sent_s: Floats, done_s: Floats, edges: Floats) -> list[float]:
    """Time-weighted mean over each bin of requests sent and not ended; exact, from two sorted prefix sums."""
    done_s = np.where(np.isfinite(done_s), done_s, edges[-1])[np.isfinite(sent_s)]
    sent_s = sent_s[np.isfinite(sent_s)]
    area = _ramp_sum(sent_s, edges) - _ramp_sum(np.maximum(done_s, sent_s), edges)
    return [max(0.0, float(mean)) for mean in np.diff(area) / np.diff(edges)]


def _ramp_sum(start: Floats, at: Floats) -> Floats:
    """Sum over i of max(0, at - start_i)."""
    ordered = np.sort(start)
    before = np.searchsorted(ordered, at)
    return np.asarray(before * at - np.concatenate([[0.0], np.cumsum(ordered)])[before])


def _percentiles_by_bin(
    which: NDArray[np.int64], value_s: Floats, count: int
) -> tuple[list[float | None], list[float | None]]:
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(1, count))
    p50: list[float | None] = []
    p90: list[float | None] = []
    for group in np.split(value_s[order], edges):
        finite = np.sort(group[np.isfinite(group)])
        half, most = sorted_quantiles(finite, (0.5, 0.9)) if len(finite) else (None, None)
        p50.append(half)
        p90.append(most)
    return p50, p90


def _token_rate(table: RecordTable, count: int, width: float) -> list[float] | None:
    if table.events is None:
        return None
    total = np.zeros(count)
    for at_s, tokens in event_blocks(table):
        which = np.clip(at_s / width, 0, count - 1).astype(np.int64)
        total += np.bincount(which, weights=tokens, minlength=count)
    rate: list[float] = (total / width).tolist()
    return rate

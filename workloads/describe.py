"""`describe`: the figures that tell what kind of load a trace is (`goodput trace info`)."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.reading import Reading
from workloads.sharing import hit_ratio, token_hit_ratio
from workloads.trace import Trace

PERCENTILES = (0, 1, 25, 50, 75, 90, 99, 100)
WINDOWS_S = (1, 10, 60)


class TokenInfo(msgspec.Struct, frozen=True):
    """A token count's distribution; percentiles by linear interpolation, keyed `p0` ... `p100`."""

    total: int
    mean: float
    std: float
    percentiles: dict[str, float]


class TraceInfo(msgspec.Struct, frozen=True):
    """What `goodput trace info` prints. None where a figure needs more rows, or a span above zero.

    `idc` is variance / mean of the arrivals in windows of w seconds (1 for a Poisson process), `largest_window` the
    largest such count; both are keyed by w. `spearman` is the rank correlation of prompt and output tokens,
    `prefix_hit_ratio` the share of the named prompt blocks, `shared_prompt_share` that of all prompt tokens which an
    unlimited prefix cache would have.
    """

    name: str
    content_hash: str
    rows: int
    span_s: float
    mean_rate_per_s: float | None
    interarrival_cv: float | None
    idc: dict[str, float | None]
    largest_window: dict[str, int]
    empty_1s_windows_share: float | None
    longest_gap_s: float | None
    prompt_tokens: TokenInfo
    output_tokens: TokenInfo
    spearman: float | None
    prompts_below_512_share: float
    sessions: int | None
    prefix_hit_ratio: float | None
    shared_prompt_share: float | None
    rejected: dict[str, int]
    warnings: list[str]
    reading: Reading | None


def describe(trace: Trace) -> TraceInfo:
    """The figures of a trace with at least one row."""
    seconds = trace.arrival_ns / 1e9
    gaps = np.diff(seconds)
    windows = {w: _windows(trace.arrival_ns, w) for w in WINDOWS_S}
    return TraceInfo(
        name=trace.name,
        content_hash=trace.content_hash,
        rows=len(trace),
        span_s=trace.span_s,
        mean_rate_per_s=trace.mean_rate_per_s,
        interarrival_cv=gap_cv(trace.arrival_ns),
        idc={str(w): windows[w].dispersion for w in WINDOWS_S},
        # A trace shorter than the window lies inside it.
        largest_window={str(w): int(windows[w].busy.max()) if windows[w].total else len(trace) for w in WINDOWS_S},
        empty_1s_windows_share=1 - len(windows[1].busy) / windows[1].total if windows[1].total else None,
        longest_gap_s=float(gaps.max()) if len(gaps) else None,
        prompt_tokens=_tokens(trace.prompt_tokens),
        output_tokens=_tokens(trace.output_tokens),
        spearman=_spearman(trace.prompt_tokens, trace.output_tokens),
        prompts_below_512_share=float(np.mean(trace.prompt_tokens < 512)),
        sessions=None if trace.session is None else len(np.unique(trace.session[trace.session >= 0])),
        prefix_hit_ratio=hit_ratio(trace),
        shared_prompt_share=None if trace.prefix is None else token_hit_ratio(trace),
        rejected=dict(Counter(row.reason for row in trace.rejected)),
        warnings=list(trace.warnings),
        reading=trace.reading,
    )


def gap_cv(arrival_ns: NDArray[np.int64]) -> float | None:
    """Coefficient of variation of the gaps; None when all rows arrive at one instant."""
    gaps = np.diff(arrival_ns)
    return float(gaps.std() / gaps.mean()) if len(gaps) and arrival_ns[-1] > 0 else None


def dispersions(arrival_ns: NDArray[np.int64]) -> list[float | None]:
    """Variance / mean of the arrivals in windows of 1, 10 and 60 s."""
    return [_windows(arrival_ns, w).dispersion for w in WINDOWS_S]


class _Windows(NamedTuple):
    """Arrivals in those windows that have any, of so many: two rows centuries apart need no memory for what is between.

    They begin at the first arrival; the last one is left out, because the trace covers it only partly.
    """

    busy: NDArray[np.int64]
    total: int

    @property
    def dispersion(self) -> float | None:
        """Variance / mean over all windows."""
        if self.total < 2:
            return None
        mean = float(self.busy.sum()) / self.total
        squares = float(((self.busy - mean) ** 2).sum()) + (self.total - len(self.busy)) * mean**2
        return squares / self.total / mean


def _windows(arrival_ns: NDArray[np.int64], window_s: int) -> _Windows:
    window = arrival_ns // (window_s * 1_000_000_000)
    total = int(window[-1])
    inside = window[: np.searchsorted(window, total)]
    begins = np.flatnonzero(np.diff(inside, prepend=-1))
    return _Windows(np.diff(begins, append=len(inside)), total)


def _tokens(values: NDArray[np.int32]) -> TokenInfo:
    levels = np.percentile(values, PERCENTILES)
    return TokenInfo(
        total=int(values.sum(dtype=np.int64)),
        mean=float(values.mean()),
        std=float(values.std()),
        percentiles={f"p{p}": float(level) for p, level in zip(PERCENTILES, levels, strict=True)},
    )


def _spearman(a: NDArray[np.int32], b: NDArray[np.int32]) -> float | None:
    ranks = _ranks(a), _ranks(b)
    if len(a) < 2 or any(rank.std() == 0 for rank in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[np.int32]) -> NDArray[np.float64]:
    """Ranks from 1, equal values sharing their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts between edges, one edge more than counts."""

    edges: list[float]
    counts: list[int]


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """What a plot of a trace draws: arrivals over time (seconds), lengths in bins of equal ratio (tokens)."""

    arrivals: Histogram
    prompt_tokens: Histogram
    output_tokens: Histogram


_BIN_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
_TIME_BINS, _LENGTH_BINS = 240, 48


def curves(trace: Trace) -> Curves:
    """Arrivals in at most 240 bins of a round length, and both lengths in 48."""
    width_s = next((w for w in _BIN_S if trace.span_s < w * _TIME_BINS), _BIN_S[-1])
    counts = np.bincount((trace.arrival_ns // round(width_s * 1e9)).astype(np.int64))
    edges = (np.arange(len(counts) + 1) * width_s).tolist()
    return Curves(
        arrivals=Histogram(edges=edges, counts=counts.tolist()),
        prompt_tokens=_length_histogram(trace.prompt_tokens),
        output_tokens=_length_histogram(trace.output_tokens),
    )


def _length_histogram(values: NDArray[np.int32]) -> Histogram:
    low, high = float(values.min()), float(values.max()) + 1
    # Whole numbers: bins narrower than one would leave holes in the picture.
    edges = np.unique(np.ceil(np.geomspace(low, high, _LENGTH_BINS + 1)))
    counts, _ = np.histogram(values, bins=edges)
    return Histogram(edges=edges.tolist(), counts=counts.tolist())

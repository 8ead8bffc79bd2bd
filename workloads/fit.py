"""`fit`: the model of a trace, so that a workload can be shared without its data, and how good the model is.

Marginals are placed knots (quantiles.py). Outputs are drawn given the prompt where they depend on it more than chance
would show. Arrivals are a Poisson process with a rate profile, or gaps from a table whose order remembers, whichever
comes nearer in the gaps' distribution and in the dispersion of counts over 1, 10 and 60 s.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.describe import WINDOWS_S, dispersions, gap_cv
from workloads.errors import WorkloadError
from workloads.model import Distance, Gaps, Model, OutputGivenPrompt, Pair, Profile, Quality
from workloads.quantiles import Knots, distance, of_counts, of_gaps
from workloads.synth import generate
from workloads.trace import Trace

GENERATED_ROWS = 1_000_000
CONDITIONAL_BINS = 40

_TOLERANCE, _BAND_TOLERANCE = 0.002, 0.01
_MAX_BANDS, _BAND_ROWS = 48, 150
_PROFILE_BIN_S, _MAX_BINS = 300.0, 512
_MEMORIES, _OVERS = (0.1, 0.2, 0.3, 0.45, 0.6), (5.0, 20.0, 80.0, 300.0)
_SEARCH_ROWS, _SEARCH_SEEDS, _QUALITY_SEEDS = 20_000, 3, 7
_LEAST_ROWS = 100


def fit(trace: Trace, rng: np.random.Generator, *, source: str = "") -> Model:
    """The model of a trace with at least a hundred rows, its quality measured against generated rows."""
    if len(trace) < _LEAST_ROWS or trace.span_s == 0:
        raise WorkloadError(
            f"{trace.name} has {len(trace)} rows over {trace.span_s:g} s, too little to fit a model to.",
            code="too_few_rows",
            hint=f"Give a trace of at least {_LEAST_ROWS} rows that do not all arrive at once.",
        )
    lost = [name for name in ("session", "prefix", "slo_class") if getattr(trace, name) is not None]
    model = Model(
        name=trace.name.partition(".")[0] or "fitted",
        source=source or f"fitted to {len(trace)} rows",
        rows=len(trace),
        mean_rate_per_s=trace.mean_rate_per_s or 1.0,
        prompt_tokens=of_counts(trace.prompt_tokens, _TOLERANCE),
        output_tokens=of_counts(trace.output_tokens, _TOLERANCE),
        output_given_prompt=_joint(trace, rng),
        arrivals=_arrivals(trace),
        warnings=[f"not_modelled: {', '.join(lost)} of the trace are not part of the model"] if lost else [],
    )
    return _with_quality(model, trace, rng)


def conditional_distance(
    prompt: NDArray[np.int32], output: NDArray[np.int32], prompt_b: NDArray[np.int32], output_b: NDArray[np.int32]
) -> float:
    """Mean over prompt bins (40 with equal counts of a) of the distance between a's and b's outputs in the bin."""
    edges = np.unique(np.percentile(prompt, np.linspace(0, 100, CONDITIONAL_BINS + 1)[1:-1]))
    bins, bins_b = (np.searchsorted(edges, values, side="right") for values in (prompt, prompt_b))
    pairs = [(output[bins == i], output_b[bins_b == i]) for i in range(len(edges) + 1)]
    both = [(len(a), distance(a, b)) for a, b in pairs if len(a) and len(b)]
    return float(np.average([d for _, d in both], weights=[n for n, _ in both]))


def _joint(trace: Trace, rng: np.random.Generator) -> OutputGivenPrompt | None:
    """Tables by prompt, unless shuffled outputs depend on the prompt about as much as the real ones."""
    prompt, output = trace.prompt_tokens, trace.output_tokens
    real = conditional_distance(prompt, output, prompt, rng.permutation(output))
    shuffled = conditional_distance(prompt, rng.permutation(output), prompt, rng.permutation(output))
    if real < 1.5 * shuffled:
        return None
    bands = int(np.clip(len(trace) // _BAND_ROWS, 1, _MAX_BANDS))
    edges = np.unique(np.percentile(prompt, np.linspace(0, 100, bands + 1)[:-1], method="lower"))
    band = np.searchsorted(edges, prompt, side="right") - 1
    rows: list[Knots] = [of_counts(output[band == i], _BAND_TOLERANCE) for i in range(len(edges))]
    return OutputGivenPrompt(edges=[*map(float, edges), float(prompt.max()) + 1], rows=rows)


def _arrivals(trace: Trace) -> Profile | Gaps:
    gap_s = np.diff(trace.arrival_ns) / 1e9
    table = of_gaps(gap_s, _TOLERANCE)
    choices: list[Profile | Gaps] = [_profile(trace), Gaps(gap_s=table)]
    choices += [Gaps(gap_s=table, memory=memory, over=over) for memory in _MEMORIES for over in _OVERS]
    return min(choices, key=lambda process: _misfit(process, trace, gap_s))


def _profile(trace: Trace) -> Profile:
    bins = int(np.clip(np.ceil(trace.span_s / _PROFILE_BIN_S), 1, _MAX_BINS))
    counts, _ = np.histogram(trace.arrival_ns / 1e9, bins=bins, range=(0.0, trace.span_s))
    bin_s = trace.span_s / bins
    return Profile(bin_s=float(f"{bin_s:.7g}"), rates_per_s=[float(f"{count / bin_s:.5g}") for count in counts])


def _misfit(process: Profile | Gaps, trace: Trace, gap_s: NDArray[np.float64]) -> float:
    """Distance of the gaps and, weighed less, of the dispersion of counts; over a few seeds."""
    found, real = [], dispersions(trace.arrival_ns)
    rows = min(len(trace), _SEARCH_ROWS)
    for seed in range(_SEARCH_SEEDS):
        drawn = _drawn(process, trace, rows, np.random.default_rng(seed))
        model = dispersions(drawn.arrival_ns)
        ratios = [np.log(b / a) for a, b in zip(real, model, strict=True) if a and b]
        found.append((distance(gap_s[:rows], np.diff(drawn.arrival_ns) / 1e9), np.array(ratios)))
    mean_log = np.mean([ratios for _, ratios in found], axis=0) if len({len(r) for _, r in found}) == 1 else np.ones(3)
    return float(np.mean([d for d, _ in found]) + 0.2 * np.abs(mean_log).sum())


def _drawn(process: Profile | Gaps, trace: Trace, rows: int, rng: np.random.Generator) -> Trace:
    one: Knots = [(0.0, 1.0), (1.0, 1.0)]
    rate = trace.mean_rate_per_s or 1.0
    bare = Model(
        name="", source="", rows=rows, mean_rate_per_s=rate, prompt_tokens=one, output_tokens=one, arrivals=process
    )
    return generate(bare, rng=rng)


def _with_quality(model: Model, trace: Trace, rng: np.random.Generator) -> Model:
    import msgspec

    large = generate(model, requests=GENERATED_ROWS, rng=rng)
    again = [generate(model, rng=rng) for _ in range(_QUALITY_SEEDS)]
    half = rng.permutation(len(trace))
    a, b = half[: len(half) // 2], half[len(half) // 2 :]
    gap_s, drawn_s = (np.diff(some.arrival_ns) / 1e9 for some in (trace, again[0]))
    shuffled = rng.permutation(gap_s)

    def of(name: str) -> Distance:
        data = getattr(trace, name)
        return Distance(fitted=distance(data, getattr(large, name)), floor=distance(data[a], data[b]))

    prompt, output = trace.prompt_tokens, trace.output_tokens
    spread = [dispersions(some.arrival_ns) for some in again]
    quality = Quality(
        generated_rows=len(large),
        prompt_tokens=of("prompt_tokens"),
        output_tokens=of("output_tokens"),
        output_given_prompt=Distance(
            fitted=conditional_distance(prompt, output, large.prompt_tokens, large.output_tokens),
            floor=conditional_distance(prompt[a], output[a], prompt[b], output[b]),
        ),
        gap_s=Distance(fitted=distance(gap_s, drawn_s), floor=distance(shuffled[::2], shuffled[1::2])),
        gap_cv=Pair(data=gap_cv(trace.arrival_ns), model=_median([gap_cv(some.arrival_ns) for some in again])),
        idc={
            str(w): Pair(data=real, model=_median([found[i] for found in spread]))
            for i, (w, real) in enumerate(zip(WINDOWS_S, dispersions(trace.arrival_ns), strict=True))
        },
    )
    return msgspec.structs.replace(model, quality=quality)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None

"""The built-in workloads look like the Azure traces they were fitted to (figures: docs/traces.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from workloads.describe import describe
from workloads.errors import WorkloadError
from workloads.fit import conditional_distance
from workloads.formats import read_trace
from workloads.synth import BUILTIN, generate
from workloads.trace import Trace

REAL = Path(__file__).parents[3] / "shared" / "traces"
LARGE = 100_000


def large(name: str) -> Trace:
    return generate(name, requests=LARGE, rng=np.random.default_rng(7))


# Published percentiles of the real traces: {percentile: tokens}.
MARGINALS = {
    ("azure-code", "prompt_tokens"): {25: 578, 50: 1469, 75: 2744.5, 90: 5187.6, 99: 7436, 100: 7437},
    ("azure-code", "output_tokens"): {25: 9, 50: 13, 75: 24, 90: 55, 99: 251.5},
    ("azure-conv", "prompt_tokens"): {25: 396, 50: 1020, 75: 1189, 90: 2734.5, 99: 4142},
    ("azure-conv", "output_tokens"): {25: 85, 50: 129, 75: 395, 90: 424, 99: 601},
}
MEANS = {
    ("azure-code", "prompt_tokens"): 2047.85,
    ("azure-code", "output_tokens"): 27.88,
    ("azure-conv", "prompt_tokens"): 1154.70,
    ("azure-conv", "output_tokens"): 211.13,
}


@pytest.mark.parametrize(("name", "column"), MARGINALS)
def test_marginals(name: str, column: str) -> None:
    """Quantiles lie where the real ones do, in probability (2 %) or in tokens (8 %); means within 4 %."""
    values = np.sort(getattr(large(name), column))
    for percentile, expected in MARGINALS[name, column].items():
        low, high = (np.searchsorted(values, expected * f) / len(values) for f in (0.92, 1.08))
        assert low - 0.02 <= percentile / 100 <= high + 0.02
    assert MEANS[name, column] == pytest.approx(values.mean(), rel=0.04)


def test_output_depends_on_prompt() -> None:
    """Median output by prompt decile of the real conversation trace: not monotone, no correlation shows it."""
    trace = large("azure-conv")
    order = np.argsort(trace.prompt_tokens, kind="stable")
    medians = [float(np.median(part)) for part in np.array_split(trace.output_tokens[order], 10)]
    assert [162, 76, 95, 99, 395, 406, 407, 396, 98, 58] == pytest.approx(medians, rel=0.15)


def test_arrivals_keep_their_character() -> None:
    """Coding arrivals are wildly bursty (real CV 13.2, IDC 13/72/164), conversation nearly Poisson (1.09)."""
    code, conv = describe(large("azure-code")), describe(generate("azure-conv", rng=np.random.default_rng(7)))
    assert code.interarrival_cv == pytest.approx(13.2, rel=0.15)
    assert [8 < (code.idc["1"] or 0) < 14, 40 < (code.idc["10"] or 0) < 80, 115 < (code.idc["60"] or 0) < 213] == [
        True
    ] * 3
    assert conv.interarrival_cv == pytest.approx(1.05, abs=0.06)
    assert 8 < (conv.idc["60"] or 0) < 22


@pytest.mark.parametrize("name", BUILTIN)
def test_length_and_rate(name: str) -> None:
    """The rate is exact, the length what was asked; by default both are the original's."""
    original = {"azure-conv": (19366, 5.5301364), "azure-code": (8819, 2.5663951)}[name]
    trace = generate(name, rng=np.random.default_rng(1))
    assert original[0] == len(trace)
    assert original[1] == pytest.approx(trace.mean_rate_per_s)
    timed = generate(name, duration_s=60, rate_per_s=4.0, rng=np.random.default_rng(1))
    assert len(timed) == 240
    assert timed.mean_rate_per_s == pytest.approx(4.0)
    assert len(generate(name, duration_s=60, requests=7, rate_per_s=4.0, rng=np.random.default_rng(1))) == 7
    assert len(generate(name, requests=1, rng=np.random.default_rng(1))) == 1


@pytest.mark.parametrize("name", BUILTIN)
def test_same_seed_same_trace(name: str) -> None:
    """The generator decides everything."""
    a, b, c = (generate(name, requests=100, rng=np.random.default_rng(seed)).content_hash for seed in (1, 1, 2))
    assert a == b != c


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"workload": "azure"}, "unknown_workload"),
        ({"requests": 0}, "empty_trace"),
        ({"duration_s": 0.0}, "empty_trace"),
        ({"rate_per_s": 0.0}, "rate"),
        ({"rate_per_s": float("nan")}, "rate"),
    ],
)
def test_bad_wishes(options: dict[str, float], code: str) -> None:
    """What cannot be generated is refused in words."""
    with pytest.raises(WorkloadError) as caught:
        generate(**{"workload": "azure-conv", "rng": np.random.default_rng(1)} | options)  # type: ignore[arg-type]
    assert code == caught.value.code


@pytest.mark.skipif(not REAL.is_dir(), reason="the Azure traces are not beside the project")
@pytest.mark.parametrize("name", BUILTIN)
def test_distance_to_the_real_trace(name: str) -> None:
    """Promises of docs/traces.md: lengths within 0.012 of a million generated rows, outputs given prompts 0.11."""
    real = read_trace(REAL / f"AzureLLMInferenceTrace_{name.removeprefix('azure-')}.csv")
    drawn = generate(name, requests=1_000_000, rng=np.random.default_rng(7))
    for column in ("prompt_tokens", "output_tokens"):
        assert stats.ks_2samp(getattr(real, column), getattr(drawn, column)).statistic <= 0.012
    lengths = (real.prompt_tokens, real.output_tokens, drawn.prompt_tokens, drawn.output_tokens)
    assert conditional_distance(*lengths) <= 0.11
    gaps = [np.diff(trace.arrival_ns) for trace in (real, generate(name, rng=np.random.default_rng(7)))]
    assert stats.ks_2samp(*gaps).statistic <= 0.03


@pytest.mark.parametrize(("name", "real", "cv"), [("azure-conv", 16.13, 1.094), ("azure-code", 163.96, 13.15)])
def test_arrivals_like_the_real_ones(name: str, real: float, cv: float) -> None:
    """Variance / mean of counts in 60 s within 30 % (median of hours), CV of the gaps within 10 %."""
    hours = [describe(generate(name, rng=np.random.default_rng(seed))) for seed in range(9)]
    assert real == pytest.approx(float(np.median([hour.idc["60"] or 0 for hour in hours])), rel=0.3)
    assert cv == pytest.approx(float(np.median([hour.interarrival_cv or 0 for hour in hours])), rel=0.1)


def test_the_scale_of_coding_gaps_hardly_depends_on_the_seed() -> None:
    """Half of the gaps lie below 64 ms whatever the seed, though a few long ones decide the rate."""
    medians = [
        np.median(np.diff(generate("azure-code", rng=np.random.default_rng(s)).arrival_ns)) / 1e9 for s in range(8)
    ]
    assert [0.0638] * 8 == pytest.approx(medians, rel=0.04)

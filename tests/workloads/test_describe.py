"""`describe`: the figures of a trace, by hand, by scipy, and against the published table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from tests.strategies import traces
from workloads.describe import TraceInfo, describe
from workloads.formats import read_trace
from workloads.trace import Rejected, Trace

REAL = Path(__file__).parents[3] / "shared" / "traces"


def test_by_hand() -> None:
    """Arrivals at 0, 0.5, 2 and 4 s: gaps 0.5, 1.5, 2; whole seconds hold 2, 0, 1, 0 requests."""
    trace = Trace(
        "t",
        np.array([0, 0.5, 2, 4]) * 1e9,
        np.array([100, 511, 512, 600]),
        np.array([4, 3, 2, 1]),
        session=np.array([1, -1, 1, 2]),
        rejected=(Rejected(3, "number"), Rejected(9, "number"), Rejected(4, "timestamp")),
        warnings=("unsorted: sorted",),
    )
    info = describe(trace)
    assert (4, 4.0, 0.75, 2.0) == (info.rows, info.span_s, info.mean_rate_per_s, info.longest_gap_s)
    assert np.std([0.5, 1.5, 2]) / (4 / 3) == pytest.approx(info.interarrival_cv)
    assert {"1": pytest.approx(0.6875 / 0.75), "10": None, "60": None} == info.idc
    assert {"1": 2, "10": 4, "60": 4} == info.largest_window
    assert (0.5, 0.5, -1.0, 2) == (
        info.empty_1s_windows_share,
        info.prompts_below_512_share,
        pytest.approx(info.spearman),
        info.sessions,
    )
    assert (1723, 511.5) == (info.prompt_tokens.total, info.prompt_tokens.percentiles["p50"])
    assert ({"number": 2, "timestamp": 1}, ["unsorted: sorted"]) == (info.rejected, info.warnings)


@given(traces())
def test_any_trace_can_be_described(trace: Trace) -> None:
    """No NaN, no division by zero, strict JSON; ranks agree with scipy where it defines them."""
    info = describe(trace)
    assert info == msgspec.json.decode(msgspec.json.encode(info), type=TraceInfo)
    assert b"NaN" not in msgspec.json.encode(info)
    if info.spearman is not None:
        assert stats.spearmanr(trace.prompt_tokens, trace.output_tokens).statistic == pytest.approx(info.spearman)


# The published description of the two Azure traces (2023).
PUBLISHED = {
    "code": {
        "rows": 8819,
        "span_s": 3435.948,
        "mean_rate_per_s": 2.566,
        "interarrival_cv": 13.15,
        "idc": {"1": 13.2, "10": 71.6, "60": 164},
        "largest_window": {"1": 67, "60": 632},
        "empty_1s_windows_share": 0.73,
        "longest_gap_s": 217.2,
        "prompts_below_512_share": 0.233,
        "spearman": -0.021,
    },
    "conv": {
        "rows": 19366,
        "span_s": 3501.722,
        "mean_rate_per_s": 5.530,
        "interarrival_cv": 1.094,
        "idc": {"1": 1.39, "10": 3.9, "60": 16},
        "largest_window": {"1": 16, "60": 507},
        "empty_1s_windows_share": 0.011,
        "longest_gap_s": 4.31,
        "prompts_below_512_share": 0.395,
        "spearman": 0.073,
    },
}
PUBLISHED_TOKENS = {
    ("code", "prompt_tokens"): (18_059_974, 2047.85, 1973.77, [3, 17, 578, 1469, 2744.5, 5187.6, 7436, 7437]),
    ("code", "output_tokens"): (245_896, 27.88, 59.86, [6, 6, 9, 13, 24, 55, 251.5, 1899]),
    ("conv", "prompt_tokens"): (22_361_870, 1154.70, 1108.79, [2, 29, 396, 1020, 1189, 2734.5, 4142, 14050]),
    ("conv", "output_tokens"): (4_088_665, 211.13, 162.87, [7, 16, 85, 129, 395, 424, 601, 1000]),
}


@pytest.mark.skipif(not REAL.is_dir(), reason="the Azure traces are not beside the project")
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_real_traces(name: str) -> None:
    """Every published figure, to the digits printed; no row rejected, nothing to warn of."""
    trace = read_trace(REAL / f"AzureLLMInferenceTrace_{name}.csv")
    info = describe(trace)
    assert ({}, []) == (info.rejected, info.warnings)
    for key, expected in PUBLISHED[name].items():
        got = getattr(info, key)
        pairs = [(expected, got)] if not isinstance(expected, dict) else [(v, got[k]) for k, v in expected.items()]
        for want, have in pairs:
            assert want == pytest.approx(have, rel=0.02 if key in {"idc", "empty_1s_windows_share"} else 5e-3, abs=5e-4)
    for (which, column), (total, mean, std, percentiles) in PUBLISHED_TOKENS.items():
        if which == name:
            tokens = getattr(info, column)
            assert (total, percentiles) == (tokens.total, pytest.approx(list(tokens.percentiles.values()), abs=0.05))
            assert (mean, std) == (pytest.approx(tokens.mean, abs=0.005), pytest.approx(tokens.std, abs=0.005))


@pytest.mark.skipif(not REAL.is_dir(), reason="the Azure traces are not beside the project")
def test_the_real_traces_overlap() -> None:
    """Absolute times say that code begins 77.299 s after conv; the smallest gap of conv is 2 us."""
    code, conv = (read_trace(REAL / f"AzureLLMInferenceTrace_{name}.csv") for name in ("code", "conv"))
    assert code.origin_ns is not None
    assert conv.origin_ns is not None
    assert (code.origin_ns - conv.origin_ns) / 1e9 == pytest.approx(77.299, abs=5e-4)
    assert (6_000, 2_000) == (np.diff(code.arrival_ns).min(), np.diff(conv.arrival_ns).min())

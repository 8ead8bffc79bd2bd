"""The simulator against formulas of queueing theory (DistServe, OSDI 2024, section 3.1)."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from tests.backends.test_quick import schedule

PROMPT = 500
ONE_PROMPT = f"model=llama2-70b,hardware=h100,max_num_batched_tokens={PROMPT}"  # an iteration holds one prompt


def mean_ttft_s(text: str, rate_per_s: float) -> float:
    """Of 30,000 Poisson arrivals that want one token, the first tenth left out."""
    gaps = np.random.default_rng(3).exponential(1 / rate_per_s, 30_000)
    rows = simulate(Deployment.parse(text), schedule([(float(gap), PROMPT, 1) for gap in gaps]), events=False).rows
    return float((rows["first_token_s"] - rows["scheduled_s"])[3000:].mean())


def prefill_s(tp: int) -> float:
    return load_perf_model("llama2-70b", "h100", tp).prefill_s(PROMPT, PROMPT**2)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("tp", [2, 8])
def test_one_instance_is_an_m_d_1_queue(tp: int, load: float) -> None:
    """Mean TTFT is D + R D^2 / (2 (1 - R D)); with tensor parallelism D/K for D."""
    d = prefill_s(tp)
    rate = load / d
    expected = d + rate * d**2 / (2 * (1 - rate * d))
    assert expected == pytest.approx(mean_ttft_s(f"emulated:colocated,{ONE_PROMPT},tp={tp}", rate), rel=0.05)


@pytest.mark.parametrize("load", [0.6, 1.2, 1.6])
def test_a_two_stage_pipeline_serves_twice_the_rate(load: float) -> None:
    """Mean TTFT is D + R D^2 / (4 (2 - R D))."""
    d = prefill_s(8)
    rate = load / d
    expected = d + rate * d**2 / (4 * (2 - rate * d))
    assert expected == pytest.approx(mean_ttft_s(f"emulated:colocated,{ONE_PROMPT},tp=8,pp=2", rate), rel=0.05)

"""A model from a server's metrics page."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.model import Profile
from workloads.prometheus import model_of
from workloads.synth import generate

PAGE = """\
# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="1.0"} 0.0
vllm:request_prompt_tokens_bucket{engine="0",le="100.0"} 40.0
vllm:request_prompt_tokens_bucket{engine="0",le="1000.0"} 100.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf"} 100.0
vllm:request_prompt_tokens_bucket{engine="1",le="1.0"} 0.0
vllm:request_prompt_tokens_bucket{engine="1",le="100.0"} 60.0
vllm:request_prompt_tokens_bucket{engine="1",le="1000.0"} 60.0
vllm:request_prompt_tokens_bucket{engine="1",le="+Inf"} 100.0
vllm:request_prompt_tokens_sum{engine="0"} 30000.0
vllm:request_prompt_tokens_count{engine="0"} 100.0
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{engine="0",le="10.0"} 200.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf"} 200.0
vllm:request_generation_tokens_sum{engine="0"} 1000.0
vllm:request_generation_tokens_count{engine="0"} 200.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e9
"""


def test_lengths_and_rate() -> None:
    """Series are added up: half to 100, 30 % to 1000, the rest beyond; 200 requests in 100 s are 2 a second."""
    found = model_of(PAGE, name="metrics.txt", at_s=1.7e9 + 100)
    assert (200, 2.0) == (found.rows, pytest.approx(found.mean_rate_per_s))
    assert isinstance(found.arrivals, Profile)
    drawn = generate(found, requests=20_000, rng=np.random.default_rng(1))
    assert 0.5 == pytest.approx(float((drawn.prompt_tokens <= 100).mean()), abs=0.02)
    assert 0.8 == pytest.approx(float((drawn.prompt_tokens <= 1000).mean()), abs=0.02)
    assert (2, 2001) >= (int(drawn.prompt_tokens.min()), int(drawn.prompt_tokens.max()))
    assert drawn.output_tokens.max() <= 10
    assert "300 prompt" in found.warnings[0]


def test_a_given_rate() -> None:
    """For a page without a start time."""
    page = PAGE.replace("process_start_time_seconds 1.7e9", "x 1")
    assert 7.0 == model_of(page, name="m", at_s=0.0, rate_per_s=7.0).mean_rate_per_s
    with pytest.raises(WorkloadError, match="--rate"):
        model_of(page, name="m", at_s=0.0)


@pytest.mark.parametrize(
    "page",
    [
        "",
        "up 1\n",
        "{not metrics",
        PAGE.replace("100.0\n", "0.0\n").replace("60.0\n", "0.0\n").replace("40.0\n", "0.0\n"),
    ],
)
def test_pages_that_tell_nothing(page: str) -> None:
    """No histograms, no requests yet, no metrics page at all."""
    with pytest.raises(WorkloadError) as caught:
        model_of(page, name="m", at_s=1.8e9)
    assert "metrics_page" == caught.value.code

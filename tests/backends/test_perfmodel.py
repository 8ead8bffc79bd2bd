from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.backends.perfmodel import MODELS, PerfModel, load_model, load_perf_model
from loadtest.errors import UsageError

LLAMA = load_perf_model("llama2-70b", "h100", 8)
PROFILES = [PerfModel(load_model(name), profile) for name in MODELS for profile in load_model(name).profiles]


@pytest.mark.parametrize(
    ("gpu", "median_ms", "tolerance"), [("a100", 207, 0.05), ("h100", 104, 0.03)], ids=["a100", "h100"]
)
def test_prefill_of_the_median_coding_prompt_is_near_the_measured_one(
    gpu: str, median_ms: float, tolerance: float
) -> None:
    """1,469 tokens took 207 and 104 ms on the measured machines (interpolated)."""
    prefill_s = load_perf_model("llama2-70b", gpu, 8).prefill_s(1469, 1469**2)
    assert median_ms * 1e-3 == pytest.approx(prefill_s, rel=tolerance)


@pytest.mark.parametrize(("batch", "tokens_per_s"), [(1, 34), (64, 1276)])
def test_decode_rate_is_near_the_measured_one(batch: int, tokens_per_s: float) -> None:
    """Llama2-70B on 8 H100 decoded 34 tokens/s alone and 1,276 in a batch of 64, prompts of 512."""
    assert tokens_per_s == pytest.approx(batch / LLAMA.decode_s(batch, batch * 576), rel=0.03)


def test_prefill_rate_peaks_at_the_knee() -> None:
    """Prefill throughput peaks at 2,048 tokens and is 29-35 % lower at 8,192 (measured on both GPUs)."""
    rate = {n: n / LLAMA.prefill_s(n, n * n) for n in (256, 512, 1024, 2048, 4096, 8192)}
    assert 2048 == max(rate, key=lambda n: rate[n])
    assert 14_971 == pytest.approx(rate[2048], rel=0.05)
    assert 0.29 < 1 - rate[8192] / rate[2048] < 0.42


def test_decode_by_hand() -> None:
    """29.43 + 0.2822 x 40 + 0.0581 x 8 + 1.881e-5 x 20,000 + 2.07e-4 x 500 = 41.6625 ms."""
    assert 0.0416625 == pytest.approx(LLAMA.decode_s(40, 20_000), abs=1e-8)


def test_mixed_by_hand() -> None:
    """504 tokens of a prompt after 1,008, beside 8 decodes with 4,000 tokens of context: 56.42 ms."""
    arithmetic_ms = 0.06658 * 512 + 1.53e-6 * 504 * (2 * 1008 + 504)
    expected_ms = (53.82**4 + arithmetic_ms**4) ** 0.25 + 1.881e-5 * 4000
    assert 56.42 == pytest.approx(expected_ms, abs=0.01)
    assert expected_ms * 1e-3 == pytest.approx(LLAMA.mixed_s(504, 504 * 2520, 8, 4000))


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "tokens"),
    [("bloom-176b", "a100", 8, 66_260), ("llama2-70b", "h100", 8, 1_466_416), ("llama2-70b", "a100", 2, 50_838)],
)
def test_kv_room_is_what_memory_leaves_beside_the_weights(model: str, gpu: str, tp: int, tokens: int) -> None:
    """90 % of tp x 80 GiB, minus 2 bytes a parameter, over the KV bytes of a token."""
    assert tokens == load_perf_model(model, gpu, tp).kv_tokens(0.9)


def test_weights_that_do_not_fit_leave_no_room() -> None:
    """Never a negative number of tokens."""
    assert 0 == load_perf_model("llama2-70b", "h100", 2).kv_tokens(0.5)


@given(st.sampled_from(PROFILES), st.integers(1, 8192), st.integers(1, 8192), st.integers(1, 256), st.integers(1, 4000))
def test_more_work_never_takes_less_time(perf: PerfModel, n: int, more: int, batch: int, context: int) -> None:
    """Prefill grows with tokens, decode with batch, mixed with both; a mixed iteration is no quicker than its parts."""
    whole = perf.prefill_s(n, n * n)
    assert whole <= perf.prefill_s(n + more, (n + more) ** 2)
    assert perf.decode_s(batch, batch * context) <= perf.decode_s(batch + 1, (batch + 1) * context)
    mixed = perf.mixed_s(n, n * n, batch, batch * context)
    assert whole <= mixed <= perf.mixed_s(n + more, (n + more) ** 2, batch, batch * context)


@given(st.integers(1, 16), st.integers(1, 500))
def test_chunks_attend_to_as_much_as_the_whole_prompt(pieces: int, size: int) -> None:
    """The sum of c (2 done + c) over the pieces of a prompt is its length squared."""
    assert (pieces * size) ** 2 == sum(size * (2 * piece * size + size) for piece in range(pieces))


def test_the_demo_model_is_the_unified_roofline_of_an_8b_model() -> None:
    """Its coefficients stay within 13 % of the roofline they were fitted to, prefill and decode."""
    layers, hidden, parameters, kv_bytes = 32, 4096, 8.03e9, 131_072
    flops, bandwidth, tp = 989e12, 3.35e12, 1

    def roofline_s(n: int, pairs: float, batch: int, context: int) -> float:
        overhead = layers * (118e-6 + 59e-6 * log2(tp)) + 0.26e-3 * batch
        compute = 2 * parameters * n / (flops * 0.73) * (1 + 0.51 * max(0, n - 2048) / n)
        attention = 4 * hidden * layers * pairs / (flops * 0.5)
        memory = (2 * parameters + kv_bytes * context) / (bandwidth * 0.885)
        return float(overhead + ((compute + attention) ** 4 + memory**4) ** 0.25)

    perf = load_perf_model("demo-8b", "h100", 1)
    for n in (128, 512, 1024, 2048, 4096, 8192):
        assert roofline_s(n, n * n / 2, 1, 0) == pytest.approx(perf.prefill_s(n, n * n), rel=0.09)
    for batch in (1, 8, 32, 64):
        for context in (250, 1000, 4000):
            assert roofline_s(batch, 0, batch, batch * context) == pytest.approx(
                perf.decode_s(batch, batch * context), rel=0.13
            )


def test_every_profile_says_where_it_comes_from_and_how_wrong_it_is() -> None:
    """A source for each model, an error for each fit of ours (DistServe does not publish those of its own)."""
    for perf in PROFILES:
        assert len(perf.model.source) > 50
        assert perf.model.model.startswith("opt-") or 0 < perf.profile.prefill.error_percent < 15
        assert perf.model.model.startswith("opt-") or 0 < perf.profile.decode.error_percent < 5


def test_distserves_coefficients_are_used_as_they_are() -> None:
    """A plain sum for prefill; for decode another line from batch 95 on."""
    perf = load_perf_model("opt-13b-vllm", "a100", 1)
    assert 22.0522 + 0.140509 * 1000 + 8.07658e-6 * 1000**2 == pytest.approx(
        1e3 * perf.prefill_s(1000, 1000**2), rel=1e-5
    )
    assert 23.4750 + 5.92934e-4 * 9000 + 0.0607269 * 90 == pytest.approx(1e3 * perf.decode_s(90, 9000), rel=1e-5)
    assert 20.2064 + 4.90773e-4 * 9600 + 0.120003 * 96 == pytest.approx(1e3 * perf.decode_s(96, 9600), rel=1e-5)
    assert 1e-3 * 5.92934e-4 * 90 == pytest.approx(perf.decode_growth_s(90), rel=1e-5)
    assert 0.0 == load_perf_model("opt-66b-vllm", "a100", 2).profile.prefill.per_attended_ms  # published below 0


def test_an_unknown_model_names_the_nearest() -> None:
    """A misspelt model is a usage error with a suggestion."""
    with pytest.raises(UsageError, match=r"no emulated model 'lama2-70b'; did you mean 'llama2-70b'\?"):
        load_perf_model("lama2-70b", "h100", 8)


def test_a_degree_that_no_roofline_has_lists_the_measured_ones() -> None:
    """Tensor parallelism is a power of two unless it was measured."""
    with pytest.raises(UsageError, match="bloom-176b was not measured with hardware=h100,tp=3") as caught:
        load_perf_model("bloom-176b", "h100", 3)
    assert "hardware=h100,tp=8" in caught.value.hint


def test_an_unmeasured_machine_is_marked() -> None:
    """The roofline answers, and nothing of it counts as calibrated."""
    perf = load_perf_model("bloom-176b", "h100", 4)
    assert not perf.profile.measured
    assert (0, 0) == (perf.calibrated_batch, perf.calibrated_context)


@pytest.mark.parametrize(
    "perf", PROFILES, ids=lambda perf: f"{perf.model.model}-{perf.profile.hardware}-{perf.profile.tp}"
)
def test_decode_grows_by_the_same_step(perf: PerfModel) -> None:
    """With the batch fixed, an iteration takes `decode_growth_s` more than the one before: the base of compression."""
    for batch in (1, 33, 64, 120):
        step = perf.decode_s(batch, 700 * batch + batch) - perf.decode_s(batch, 700 * batch)
        assert perf.decode_growth_s(batch) == pytest.approx(step, abs=1e-12)

"""Fits of made points: the form that made them is found, and its coefficients."""

from __future__ import annotations

import pytest

from loadtest.backends.fitting import DecodePoint, PrefillPoint, fit_decode, fit_prefill

PROMPTS = (32, 64, 128, 256, 512, 1024, 2048)


def test_a_fixed_cost_that_adds_up_is_told_from_one_that_binds() -> None:
    """20 ms + 0.5 ms a token + 1e-4 ms a pair; without leave to add up, the 4-norm errs by more than a tenth."""
    points = [PrefillPoint(n, n * n, 20 + 0.5 * n + 1e-4 * n * n) for n in PROMPTS]
    found = fit_prefill(points, plain_sum=True)
    assert 1 == found.norm
    assert (20, 0.5, 1e-4) == pytest.approx((found.base_ms, found.per_token_ms, found.per_attended_ms))
    assert fit_prefill(points).error_percent > 10 > found.error_percent


def test_a_fixed_cost_that_binds_stays_in_the_norm() -> None:
    """max-like: the sum would be a worse form, and is not taken."""
    points = [PrefillPoint(n, n * n, ((20**4 + (0.1 * n) ** 4) ** 0.25)) for n in PROMPTS]
    found = fit_prefill(points, plain_sum=True)
    assert (4, 20, 0.1) == pytest.approx((found.norm, found.base_ms, found.per_token_ms), rel=1e-3)


def test_a_request_alone_may_have_a_fixed_cost_of_its_own() -> None:
    """12 ms alone, 20 ms together, 1 ms a request and 0.003 ms a token of context."""
    cells = [(1, 64), (1, 512), (1, 2048), *((batch, 512) for batch in (2, 4, 8, 16, 32))]
    points = [DecodePoint(b, b * c, (12 if b == 1 else 20) + b + 0.003 * b * c) for b, c in cells]
    found = fit_decode(points, None, alone_apart=True)
    assert found.larger is not None
    assert (2, 12, 20) == pytest.approx((found.from_batch, found.base_ms, found.larger.base_ms))
    assert (1, 0.003) == pytest.approx((found.larger.per_request_ms, found.per_context_token_ms))
    assert fit_decode(points, None).larger is None


def test_no_freedom_is_taken_that_is_not_needed() -> None:
    """Where one fixed cost explains everything there is one."""
    cells = [(1, 64), (1, 512), (1, 2048), *((batch, 512) for batch in (2, 4, 8, 16, 32))]
    points = [DecodePoint(b, b * c, 20 + b + 0.003 * b * c) for b, c in cells]
    assert fit_decode(points, None, alone_apart=True).larger is None


def test_nothing_is_said_of_prompts_that_were_not_measured() -> None:
    """Without a prompt above 2,048 tokens their extra cost is 0, whatever noise the others have."""
    wobble = (1.1, 0.9, 1.05, 1.0, 0.93, 1.08, 0.97)
    points = [
        PrefillPoint(n, n * n, w * (30**4 + (0.35 * n) ** 4) ** 0.25) for n, w in zip(PROMPTS, wobble, strict=True)
    ]
    assert 0 == fit_prefill(points).per_token_over_2048_ms

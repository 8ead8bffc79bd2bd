"""Fits of the shipped forms (perfmodel.py) to measured iterations.

Relative least squares with coefficients that are not negative. The error of a fit is what it says of points it has not
seen: each is left out once, and the mean absolute relative error is taken over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.backends.perfmodel import KNEE_BATCH, KNEE_TOKENS, DecodeFit, PrefillFit

Column = NDArray[np.float64]
Predict = Callable[[Column], Column]  # terms of points -> milliseconds


class PrefillPoint(NamedTuple):
    """An iteration of prompts: tokens, the sum of c (2 done + c) over its pieces, milliseconds."""

    tokens: int
    attended: int
    ms: float


class DecodePoint(NamedTuple):
    """An iteration of decodes: requests, the sum of their contexts, milliseconds."""

    batch: int
    context: float
    ms: float


def fit_prefill(points: Sequence[PrefillPoint]) -> PrefillFit:
    """The 4-norm form: at few tokens the fixed cost binds, at many the arithmetic."""
    n, attended, ms = np.array(points, dtype=np.float64).T
    terms = np.stack([np.ones_like(n), n, np.maximum(0, n - KNEE_TOKENS), attended], axis=1)
    base, token, over, pair = map(float, _fit_norm4(terms, ms))
    return PrefillFit(base, token, over, pair, _error_percent(lambda t, y: _norm4(_fit_norm4(t, y)), terms, ms))


def fit_decode(points: Sequence[DecodePoint], per_context_token_ms: float | None) -> DecodeFit:
    """The linear form with cK pinned to physics, because batch and context move together in most tables.

    Without (None: hardware or model are not known) all of the cost of context is taken to be cK.
    """
    batch, context, ms = np.array(points, dtype=np.float64).T
    known = per_context_token_ms is not None
    per_token = context / batch if known else context
    pinned = (per_context_token_ms or 0.0) * context
    terms = np.stack([np.ones_like(batch), batch, np.maximum(0, batch - KNEE_BATCH), per_token, pinned], axis=1)
    base, request, over, slope = map(float, _fit_linear(terms, ms))

    def fit(t: Column, y: Column) -> Predict:
        found = _fit_linear(t, y)
        return lambda unseen: np.asarray(unseen[:, :4] @ found + unseen[:, 4])

    error = _error_percent(fit, terms, ms)
    if per_context_token_ms is None:
        return DecodeFit(base, request, over, 0.0, slope, error)
    return DecodeFit(base, request, over, slope, per_context_token_ms, error)


def _fit_linear(terms: Column, ms: Column) -> Column:
    from scipy.optimize import nnls

    return np.asarray(nnls(terms[:, :4] / ms[:, None], 1 - terms[:, 4] / ms)[0])


def _norm4(found: Column) -> Predict:
    return lambda terms: np.asarray((found[0] ** 4 + (terms[:, 1:] @ found[1:]) ** 4) ** 0.25)


def _fit_norm4(terms: Column, ms: Column) -> Column:
    """From the plain sum's coefficients, and from the smallest time as the fixed cost: the better of the two."""
    from scipy.optimize import least_squares, nnls

    linear = nnls(terms / ms[:, None], np.ones_like(ms))[0]
    scale = np.median(ms) / np.maximum(terms.max(axis=0), 1)
    starts = (linear, np.array([ms.min(), *linear[1:]]))

    def residual(found: Column) -> Column:
        return np.asarray(_norm4(found)(terms) / ms - 1)

    solved: list[Any] = [
        least_squares(residual, np.maximum(start, 1e-9 * scale), bounds=(0, np.inf), x_scale=scale) for start in starts
    ]
    best = min(solved, key=lambda solution: float(solution.cost))
    return np.where(best.x < 1e-6 * scale, 0.0, best.x)


def _error_percent(fit: Callable[[Column, Column], Predict], terms: Column, ms: Column) -> float:
    """Leave-one-out mean absolute relative error."""
    errors = []
    for left_out in range(len(ms)):
        seen = np.arange(len(ms)) != left_out
        predicted = fit(terms[seen], ms[seen])(terms[~seen])
        errors.append(abs(float(predicted[0]) / ms[left_out] - 1))
    return 100 * float(np.mean(errors))

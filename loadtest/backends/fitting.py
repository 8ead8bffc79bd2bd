"""Fits of the shipped forms (perfmodel.py) to measured iterations.

Relative least squares with coefficients that are not negative. The error of a fit is what it says of points it has not
seen: each is left out once, and the mean absolute relative error is taken over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.backends.perfmodel import KNEE_BATCH, KNEE_TOKENS, DecodeFit, PrefillFit

Column = NDArray[np.float64]
Predict = Callable[[Column], Column]  # terms of points -> milliseconds
CLEARLY = 0.8  # a form with more freedom is taken when its left-out error is below this share of the other's


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


def fit_prefill(points: Sequence[PrefillPoint], *, plain_sum: bool = False) -> PrefillFit:
    """The 4-norm form: at few tokens the fixed cost binds, at many the arithmetic.

    With `plain_sum` the two may add up instead, as where nothing overlaps them, if that errs clearly less.
    """
    n, attended, ms = np.array(points, dtype=np.float64).T
    terms = np.stack([np.ones_like(n), n, np.maximum(0, n - KNEE_TOKENS), attended], axis=1)
    error = _error_percent(lambda t, y: _norm4(_fit_norm4(t, y)), terms, ms)
    if plain_sum:
        sum_error = _error_percent(lambda t, y: _summed(_fit_sum(t, y)), terms, ms)
        if sum_error < CLEARLY * error:
            return _prefill(_fit_sum(terms, ms), sum_error, norm=1)
    return _prefill(_fit_norm4(terms, ms), error, norm=4)


def _prefill(found: Column, error_percent: float, norm: int) -> PrefillFit:
    base, token, over, pair = map(float, found)
    return PrefillFit(base, token, over, pair, error_percent, norm)


def fit_decode(
    points: Sequence[DecodePoint], per_context_token_ms: float | None, *, alone_apart: bool = False
) -> DecodeFit:
    """The linear form with cK pinned to physics, because batch and context move together in most tables.

    Without (None: hardware or model are not known) all of the cost of context is taken to be cK. With `alone_apart` a
    batch of one may have a fixed cost of its own (its products need but a vector), if that errs clearly less.
    """
    plain = _fit_decode(points, per_context_token_ms, apart=False)
    if not alone_apart or len({point.batch > 1 for point in points}) < 2:
        return plain
    apart = _fit_decode(points, per_context_token_ms, apart=True)
    return apart if apart.error_percent < CLEARLY * plain.error_percent else plain


def _fit_decode(points: Sequence[DecodePoint], per_context_token_ms: float | None, *, apart: bool) -> DecodeFit:
    batch, context, ms = np.array(points, dtype=np.float64).T
    per_token = context if per_context_token_ms is None else context / batch
    pinned = (per_context_token_ms or 0.0) * context
    columns = [np.ones_like(batch), batch, np.maximum(0, batch - KNEE_BATCH), per_token]
    columns += [(batch > 1).astype(np.float64)] * apart
    terms = np.stack([*columns, pinned], axis=1)

    def fit(t: Column, y: Column) -> Predict:
        found = _fit_linear(t, y)
        return lambda unseen: np.asarray(unseen[:, :-1] @ found + unseen[:, -1])

    base, request, over, slope, *more = map(float, _fit_linear(terms, ms))
    cx, ck = (0.0, slope) if per_context_token_ms is None else (slope, per_context_token_ms)
    found = DecodeFit(base, request, over, cx, ck, _error_percent(fit, terms, ms))
    if not more:
        return found
    together = msgspec.structs.replace(found, base_ms=base + more[0])
    return msgspec.structs.replace(found, from_batch=2, larger=together)


def _fit_linear(terms: Column, ms: Column) -> Column:
    from scipy.optimize import nnls

    return np.asarray(nnls(terms[:, :-1] / ms[:, None], 1 - terms[:, -1] / ms)[0])


def _fit_sum(terms: Column, ms: Column) -> Column:
    from scipy.optimize import nnls

    return np.asarray(nnls(terms / ms[:, None], np.ones_like(ms))[0])


def _summed(found: Column) -> Predict:
    return lambda terms: np.asarray(terms @ found)


def _norm4(found: Column) -> Predict:
    return lambda terms: np.asarray((found[0] ** 4 + (terms[:, 1:] @ found[1:]) ** 4) ** 0.25)


def _fit_norm4(terms: Column, ms: Column) -> Column:
    """From the plain sum's coefficients, and from the smallest time as the fixed cost: the better of the two."""
    from scipy.optimize import least_squares

    told = terms.any(axis=0)  # of a coefficient that no point tells anything about a solver may say anything
    if not told.all():
        found = np.zeros(terms.shape[1])
        found[told] = _fit_norm4(terms[:, told], ms)
        return found
    linear = _fit_sum(terms, ms)
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

"""How long requests take alone: from the performance model, or measured on an idle server.

Slowdowns are relative to it (Splitwise), and a user without an SLO is offered multiples of it (Sarathi-Serve: strict
is 5 times, relaxed 25 times the unloaded step).
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.backends.perfmodel import load_model
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from metrics.latency import is_ok, tpot_s, ttft_s
from metrics.objective import Reference
from metrics.records import RecordTable, Rows
from metrics.slo import SLO

Floats = NDArray[np.float64]

STRICT: Final = 5.0
RELAXED: Final = 25.0
_KNOTS: Final = (*range(1, 8193, 128), *range(8193, 65537, 2048))
REFERENCE_HARDWARE: Final = "a100"  # Splitwise's reference machine


class Unloaded(msgspec.Struct, frozen=True):
    """Times on an idle machine, in seconds: TTFT at some prompt lengths, the token time linear in the context."""

    prompt_tokens: list[int]
    at_prompt_s: list[float]
    tpot: tuple[float, float]
    measured: bool

    def ttft_s(self, prompt_tokens: NDArray[np.int32] | Floats) -> Floats:
        """Of prompts of that many tokens."""
        return np.asarray(np.interp(prompt_tokens, self.prompt_tokens, self.at_prompt_s))

    def tpot_s(self, context_tokens: NDArray[np.int32] | Floats) -> Floats:
        """With that much context, on average over an answer."""
        return np.asarray(self.tpot[0] + self.tpot[1] * np.asarray(context_tokens, dtype=float))

    def reference(self, rows: Rows) -> Reference:
        """Each row's own times."""
        tokens = rows["max_tokens"]
        step = self.tpot_s(rows["prompt_tokens"] + tokens / 2)
        return Reference(self.ttft_s(rows["prompt_tokens"]), np.where(tokens > 1, step, np.nan))


class Suggestion(msgspec.Struct, frozen=True):
    """Targets for somebody who has none, as multiples of the times on an idle server."""

    strict: str
    relaxed: str
    ttft_s: float  # of the median prompt, unloaded
    tpot_s: float  # the unloaded step
    measured: bool


def suggest(unloaded: Unloaded, prompt_tokens: NDArray[np.int32], output_tokens: NDArray[np.int32]) -> Suggestion:
    """5 and 25 times the unloaded times of a workload's median request, rounded to two digits."""
    prompt, output = float(np.median(prompt_tokens)), float(np.median(output_tokens))
    ttft, tpot = float(unloaded.ttft_s(np.array(prompt))), float(unloaded.tpot_s(np.array(prompt + output / 2)))
    strict, relaxed = (str(SLO(_round(factor * ttft), _round(factor * tpot))) for factor in (STRICT, RELAXED))
    return Suggestion(strict, relaxed, ttft, tpot, unloaded.measured)


def model_unloaded(deployment: Deployment) -> Unloaded:
    """The deployment's own first pool, from its performance model."""
    pools = resolve(deployment).pools
    prefill, decode = pools[0].perf, pools[-1].perf
    base = decode.decode_s(1, 0)
    growth = (decode.decode_s(1, 1000) - base) / 1000
    seconds = [prefill.prefill_s(tokens, tokens * tokens) for tokens in _KNOTS]
    return Unloaded(list(_KNOTS), seconds, (base, growth), measured=False)


def alone_s(unloaded: Unloaded, prompt_tokens: NDArray[np.int32], output_tokens: NDArray[np.int32]) -> float:
    """How long the median request of a workload takes on the idle server."""
    prompt, output = (np.array([np.median(tokens)]) for tokens in (prompt_tokens, output_tokens))
    return float((unloaded.ttft_s(prompt) + unloaded.tpot_s(prompt + output / 2) * output)[0])


def measured_unloaded(table: RecordTable) -> Unloaded:
    """From requests that were served one at a time; failed ones are left out."""
    rows = table.rows[is_ok(table.rows)]
    prompt, step = rows["prompt_tokens"].astype(float), tpot_s(rows)
    known = np.isfinite(step)
    context = (prompt + rows["output_tokens"] / 2)[known]
    slope, base = np.polyfit(context, step[known], 1) if known.sum() > 2 else (0.0, 0.0)
    if slope <= 0:
        slope, base = 0.0, float(np.median(step[known])) if known.any() else 0.0
    seconds = _fitted_ttft(prompt, ttft_s(rows), np.array(_KNOTS, dtype=float))
    return Unloaded(list(_KNOTS), seconds.tolist(), (float(base), float(slope)), measured=True)


def _fitted_ttft(prompt: Floats, seconds: Floats, at: Floats) -> Floats:
    """A parabola with non-negative coefficients and the least relative error, at other prompt lengths."""
    from scipy.optimize import nnls

    columns, wanted = (np.stack([np.ones_like(n), n, n * n], axis=1) for n in (prompt, at))
    found, _ = nnls(columns / seconds[:, None], np.ones_like(seconds))
    return np.asarray(wanted @ found)


def reference_deployment(deployment: Deployment) -> Deployment:
    """The model alone on its default machine of A100s, as in Splitwise; its own hardware where that is unknown."""
    name, own = str(deployment["model"]), deployment.pools[0].hardware
    measured = {profile.hardware for profile in load_model(name).profiles}
    hardware = REFERENCE_HARDWARE if REFERENCE_HARDWARE in measured else own
    return Deployment.parse(f"emulated:colocated,model={name},hardware={hardware}")


def _round(seconds: float) -> float:
    return float(f"{seconds:.2g}")

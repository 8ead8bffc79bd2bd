"""A model from a server's metrics page, for those who have nothing else: length histograms and a request count.

Within a bucket the logarithm of the length is taken as evenly spread; arrivals become a Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from workloads.errors import WorkloadError
from workloads.model import Knots, Model, Profile

# Histograms of prompt and output tokens, by server.
PAIRS = (
    ("vllm:request_prompt_tokens", "vllm:request_generation_tokens"),
    ("sglang:prompt_tokens_histogram", "sglang:generation_tokens_histogram"),
    ("tgi_request_input_length", "tgi_request_generated_tokens"),
    ("llm_request_prompt_tokens", "llm_request_generation_tokens"),
)
START = "process_start_time_seconds"
_BEYOND = 2.0  # the last bucket has no end: twice its beginning


def model_of(page: str, *, name: str, at_s: float, rate_per_s: float | None = None) -> Model:
    """The model of a page read at `at_s` (seconds since 1970); the rate is that since the server's start.

    Raises WorkloadError `metrics_page` when the page has no such histograms or counts no request.
    """
    samples = _samples(page)
    pair = next((pair for pair in PAIRS if all(f"{family}_bucket" in samples for family in pair)), None)
    if pair is None:
        raise _bad(name, f"it has no histograms of prompt and output tokens ({' or '.join(p for p, _ in PAIRS)})")
    (prompt, count), (output, _) = (_histogram(name, family, samples[f"{family}_bucket"]) for family in pair)
    started_s = [value for _, value in samples.get(START, [])]
    if rate_per_s is None:
        if not started_s or at_s <= max(started_s):
            raise _bad(name, "it does not say since when it counts, so the rate has to be given (--rate)")
        rate_per_s = count / (at_s - min(started_s))
    means = [_mean(samples, family) for family in pair]
    return Model(
        name=name.partition(".")[0] or "metrics",
        source=f"histograms of {count:.0f} requests on a metrics page",
        rows=max(1, int(count)),
        mean_rate_per_s=rate_per_s,
        prompt_tokens=prompt,
        output_tokens=output,
        arrivals=Profile(bin_s=3600.0, rates_per_s=[rate_per_s]),
        warnings=[
            "from_histograms: lengths are even in the logarithm within each bucket, outputs do not depend on prompts, "
            f"arrivals are Poisson; the page's own means are {means[0]:.6g} prompt and {means[1]:.6g} output tokens"
        ],
    )


def _samples(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and value of every sample, by name."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    try:
        families: Iterable[Any] = text_string_to_metric_families(page)
        for family in families:
            for sample in family.samples:
                found.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, KeyError, IndexError) as error:
        raise _bad("the page", f"it is no metrics page ({error})") from error
    return found


def _histogram(name: str, family: str, buckets: list[tuple[dict[str, str], float]]) -> tuple[Knots, float]:
    """Knots and number of observations; series with other labels (models, engines) are added up."""
    upto: dict[float, float] = {}
    for labels, value in buckets:
        end = float(labels.get("le", "nan").replace("+Inf", "inf"))
        upto[end] = upto.get(end, 0.0) + value
    total = upto.get(math.inf, 0.0)
    if not total > 0 or math.isnan(sum(upto.values())):
        raise _bad(name, f"{family} has counted no request yet")
    knots: Knots = []
    before, q = 0.5, 0.0
    for end in sorted(upto):
        share = min(upto[end] / total, 1.0)
        high = end + 0.5 if math.isfinite(end) else max(before * _BEYOND, 1.0)
        if share > q and high > 0:
            knots = knots or [(0.0, max(before, 0.5))]
            if knots[-1][1] < before:
                knots.append((q, before))
            knots.append((share, max(high, knots[-1][1])))
        before, q = max(high, 0.5), max(share, q)
    knots[-1] = (1.0, knots[-1][1])
    return knots, total


def _mean(samples: dict[str, list[tuple[dict[str, str], float]]], family: str) -> float:
    total, count = (sum(value for _, value in samples.get(f"{family}_{part}", [])) for part in ("sum", "count"))
    return total / count if count else math.nan


def _bad(name: str, what: str) -> WorkloadError:
    return WorkloadError(
        f"No workload can be made of {name}: {what}.", code="metrics_page", hint="Save the server's /metrics page."
    )

"""Counters and histograms of a server, under vLLM's Prometheus names.

Observing is an append; values are sorted into buckets when the page is read or 64k of them have gathered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from loadtest.backends.server.engine import Served, Spans, TextEngine

# The bounds vLLM 0.32 uses, so that dashboards and scrapers written for it work here.
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_GAP_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_PHASE_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_COUNT = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))[:16]
_LATENESS_S = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
_GATHER = 1 << 16
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts of observations at or below each bound."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self.text = text
        self._bounds = bounds
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._gathered: list[float] = []

    def observe(self, value: float) -> None:
        """Add one observation."""
        self._gathered.append(value)
        if len(self._gathered) >= _GATHER:
            self._fold()

    def family(self, labels: dict[str, str], beside: HistogramMetricFamily | None = None) -> HistogramMetricFamily:
        """Prometheus' cumulative form; in the same family as another histogram with other labels if there is one."""
        self._fold()
        family = beside or HistogramMetricFamily(self.name, self.text, labels=list(labels))
        bounds = [*map(str, self._bounds), "+Inf"]
        buckets = [(bound, float(count)) for bound, count in zip(bounds, self._counts.cumsum(), strict=True)]
        family.add_metric(list(labels.values()), buckets, self._sum)
        return family

    def _fold(self) -> None:
        values = np.array(self._gathered, np.float64)
        self._gathered.clear()
        places = np.searchsorted(self._bounds, values)
        self._counts += np.bincount(places, minlength=len(self._counts))
        self._sum += float(values.sum())


class Meters:
    """Everything the streams observe."""

    def __init__(self) -> None:
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "Time to first token.", _TTFT_S)
        self.gap = Histogram("vllm:inter_token_latency_seconds", "Time between tokens.", _GAP_S)
        self.tpot = Histogram("vllm:request_time_per_output_token_seconds", "Mean time per output token.", _GAP_S)
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "Time from arrival to last token.", _PHASE_S)
        self.inference = Histogram("vllm:request_inference_time_seconds", "Time spent in prefill and decode.", _PHASE_S)
        self.queue = Histogram("vllm:request_queue_time_seconds", "Time spent waiting.", _PHASE_S)
        self.prefill = Histogram("vllm:request_prefill_time_seconds", "Time spent in prefill.", _PHASE_S)
        self.decode = Histogram("vllm:request_decode_time_seconds", "Time spent in decode.", _PHASE_S)
        self.transfer = Histogram("vllm:nixl_xfer_time_seconds", "Time a KV transfer took.", _GAP_S)
        self.prompt = Histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", _COUNT)
        self.output = Histogram("vllm:request_generation_tokens", "Generated tokens per request.", _COUNT)
        self.lateness = Histogram(
            "goodput_emission_lateness_seconds", "Hand-over of a token to the socket, after its due time.", _LATENESS_S
        )
        self.finished: Counter[str] = Counter(length=0, stop=0)
        self.aborted = 0
        self.rejected = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0

    def spans(self, spans: Spans) -> None:
        """Where a finished request spent its time; without a hand-over there is no transfer to count."""
        phases = zip(
            (self.queue, self.prefill, self.decode), (spans.queue_s, spans.prefill_s, spans.decode_s), strict=True
        )
        for histogram, span_s in phases:
            if not math.isnan(span_s):
                histogram.observe(span_s)
        if computed := [span_s for span_s in spans[1:] if not math.isnan(span_s)]:
            self.inference.observe(sum(computed))
        if spans.transfer_s > 0:
            self.transfer.observe(spans.transfer_s)

    def histograms(self) -> list[Histogram]:
        return [value for value in vars(self).values() if isinstance(value, Histogram)]


class StepMeters:
    """Iterations of an engine that computes: their tokens, and how long each kind takes."""

    def __init__(self) -> None:
        self._tokens = Histogram("vllm:iteration_tokens_total", "Tokens per engine iteration.", _COUNT)
        self._seconds = {
            kind: Histogram("ref:step_seconds", "Duration of an iteration.", _GAP_S)
            for kind in ("prefill", "decode", "mixed")
        }

    def observe(self, seconds: float, prompt_tokens: int, decodes: int) -> None:
        """One iteration."""
        kind = "decode" if not prompt_tokens else "mixed" if decodes else "prefill"
        self._seconds[kind].observe(seconds)
        self._tokens.observe(prompt_tokens + decodes)

    def families(self, labels: dict[str, str]) -> Iterator[Metric]:
        """For the metrics page."""
        yield self._tokens.family(labels)
        family: HistogramMetricFamily | None = None
        for kind, histogram in self._seconds.items():
            family = histogram.family({**labels, "kind": kind}, family)
        assert family is not None
        yield family


class MetricsPage(Collector):
    """The /metrics page of one engine, in a registry of its own."""

    def __init__(self, engine: Served, meters: Meters) -> None:
        self._engine = engine
        self._meters = meters
        self._labels = {"engine": "0", "model_name": engine.model}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        load, meters = self._engine.load(), self._meters
        yield self._gauge("vllm:num_requests_running", "Requests in execution.", load.running)
        yield self._gauge("vllm:num_requests_waiting", "Requests waiting.", load.waiting)
        yield self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage; 1 is full.", load.kv_usage)
        yield self._counter("vllm:num_preemptions", "Preemptions.", load.preemptions)
        yield self._counter("vllm:nixl_bytes_transferred", "KV bytes moved between instances.", load.transferred_bytes)
        yield self._counter("vllm:prompt_tokens", "Prompt tokens of accepted requests.", meters.prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens generated.", meters.generation_tokens)
        yield self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", 0)
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", 0)
        yield self._success()
        yield self._rejections()
        for histogram in meters.histograms():
            yield histogram.family(self._labels)
        if isinstance(self._engine, TextEngine):
            yield from self._engine.steps.families(self._labels)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _success(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success", "Finished requests.", labels=[*self._labels, "finished_reason"]
        )
        for reason, count in (*self._meters.finished.items(), ("abort", self._meters.aborted)):
            family.add_metric([*self._labels.values(), reason], count)
        return family

    def _rejections(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:admission_rejections", "Requests refused by the queue limit.", labels=["model_name", "reason"]
        )
        family.add_metric([self._engine.model, "max_num_queued_reqs"], self._meters.rejected)
        return family

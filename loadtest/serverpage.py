"""A server's Prometheus page in our names: which of its metrics is which quantity, and how its series become one.

A page has one series per engine, rank, process or model. What is counted is added up; a share is averaged, and the
highest kept beside it; what ranks of one engine say of the same thing is said once.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import fmean
from typing import NamedTuple

from metrics.probes import HISTOGRAMS

Labels = tuple[tuple[str, str], ...]
Combine = Callable[[Iterable[float]], float]


class Quantity(NamedTuple):
    """How series become one value, and what the servers call it; the first name that a page has is taken.

    `NAME{LABEL=VALUE}` is a metric that keeps several quantities apart by a label.
    """

    combine: Combine
    names: tuple[str, ...]


_KV_USAGE = (
    *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    *("trtllm_kv_cache_utilization", "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"),
    *("dynamo_component_kvstats_gpu_cache_usage_percent", "llamacpp:kv_cache_usage_ratio"),
)

# vLLM and ours, SGLang, llama.cpp, TGI, TensorRT-LLM (alone and in Triton), Dynamo, vllm-router.
QUANTITIES: dict[str, Quantity] = {
    "running": Quantity(
        sum,
        (
            *("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
            *("tgi_batch_current_size", "trtllm_num_requests_running"),
            *("nv_trt_llm_request_metrics{request_type=scheduled}", "dynamo_frontend_inflight_requests"),
            "vllm_router_pd_active_decode_requests",
        ),
    ),
    "waiting": Quantity(
        sum,
        (
            *("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
            *("tgi_queue_size", "trtllm_num_requests_waiting"),
            *("nv_trt_llm_request_metrics{request_type=waiting}", "dynamo_frontend_queued_requests"),
            "vllm_router_pd_pending_decode_requests",
        ),
    ),
    "kv_usage": Quantity(fmean, _KV_USAGE),
    "kv_usage_highest": Quantity(max, _KV_USAGE),
    "preemptions": Quantity(sum, ("vllm:num_preemptions_total",)),
    "prefix_hits": Quantity(sum, ("vllm:prefix_cache_hits_total", "llamacpp:prompt_tokens_cached_total")),
    "prompt_tokens": Quantity(
        sum,
        (
            *("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
            *("tgi_request_input_length_sum", "dynamo_frontend_input_sequence_tokens_sum"),
        ),
    ),
    "output_tokens": Quantity(
        sum,
        (
            *("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
            *("tgi_request_generated_tokens_sum", "dynamo_frontend_output_sequence_tokens_sum"),
        ),
    ),
    "transferred_bytes": Quantity(sum, ("vllm:nixl_bytes_transferred_total", "vllm:nixl_bytes_transferred_sum")),
    "ttft": Quantity(
        sum,
        (
            *("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
            *("trtllm_time_to_first_token_seconds", "dynamo_frontend_time_to_first_token_seconds"),
        ),
    ),
    "queue": Quantity(
        sum,
        (
            *("vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "tgi_request_queue_duration"),
            "trtllm_request_queue_time_seconds",
        ),
    ),
    "prefill": Quantity(sum, ("vllm:request_prefill_time_seconds",)),
    "transfer": Quantity(sum, ("vllm:nixl_xfer_time_seconds",)),
    "decode_pending": Quantity(sum, ("vllm_router_pd_decode_pending_seconds",)),
    "decode": Quantity(sum, ("vllm:request_decode_time_seconds",)),
    "e2e": Quantity(
        sum,
        (
            *("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "tgi_request_duration"),
            *("trtllm_e2e_request_latency_seconds", "dynamo_frontend_request_duration_seconds"),
            "vllm_router_pd_request_duration_seconds",
        ),
    ),
}

_COPIES = frozenset({"tp_rank", "pp_rank", "cp_rank", "moe_ep_rank"})  # ranks of one engine: each tells of all of it
_WHOLE = ("rank", "aggregate")  # vllm-router: the series that is the sum of the others
_NAME = re.compile(r"([\w:]+)(?:\{(\w+)=(\w+)\})?")
# A label's value may hold braces, and behind an OpenMetrics sample may stand an example with braces of its own.
_SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def page_values(text: str) -> dict[str, float]:
    """Our metrics out of a Prometheus text page."""
    series = _known_series(text)
    found = {}
    for quantity, (combine, names) in QUANTITIES.items():
        for suffix in ("_sum", "_count") if quantity in HISTOGRAMS else ("",):
            told = next((values for name in names if (values := list(_values(series, name, suffix)))), None)
            if told is not None:
                found[quantity + suffix] = combine(told)
    return found


def _sample_names() -> frozenset[str]:
    """Every name that a sample of ours may have on a page."""
    names = {_NAME.match(name)[1] for quantity in QUANTITIES.values() for name in quantity.names}  # type: ignore[index]
    return frozenset(name + suffix for name in names for suffix in ("", "_sum", "_count"))


_SAMPLE_NAMES = _sample_names()


def _known_series(text: str) -> Mapping[str, dict[Labels, float]]:
    """The finite samples of known metrics by their labels; ranks that say the same of one engine are one series."""
    found: dict[str, dict[Labels, float]] = defaultdict(dict)
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or match[1] not in _SAMPLE_NAMES:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = tuple(sorted(label for label in _LABEL.findall(match[2] or "") if label[0] not in _COPIES))
            found[match[1]][labels] = max(value, found[match[1]].get(labels, value))
    return found


def _values(series: Mapping[str, dict[Labels, float]], name: str, suffix: str) -> Iterator[float]:
    """The values of a metric, one per engine; only the sum of all where the page has one."""
    match = _NAME.fullmatch(name)
    assert match is not None
    label = (match[2], match[3])
    told = series.get(match[1] + suffix, {}).items()
    chosen = {labels: value for labels, value in told if match[2] is None or label in labels}
    whole = [value for labels, value in chosen.items() if _WHOLE in labels]
    yield from whole or chosen.values()

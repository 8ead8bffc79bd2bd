"""A server's metrics page in our names, its series made one by what they are."""

from __future__ import annotations

import pytest

from loadtest.serverpage import QUANTITIES, page_values
from metrics.probes import METRICS

VLLM = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b}c"} 3.0
vllm:num_requests_running{engine="1",model_name="x"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0"} 1.5
vllm:time_to_first_token_seconds_count{engine="0"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001"} 0.0
vllm:kv_cache_usage_perc{engine="0"} NaN
vllm:num_preemptions_created{engine="0"} 1.7e+09
vllm:num_preemptions_total{engine="0"} 1.2e1 1700000000000
vllm:generation_tokens_total{model_name="a\\"}"} 7.0 # {trace_id="x"} 0.67 1700000000
broken line
"""


def test_a_page_in_our_names() -> None:
    """Engines are added up; NaN, other metrics and damaged lines are no values; a time stamp or an example behind one
    is none."""
    expected = {"running": 5.0, "ttft_sum": 1.5, "ttft_count": 6.0, "preemptions": 12.0, "output_tokens": 7.0}
    assert expected == page_values(VLLM)


def test_llama_cpps_page() -> None:
    """Its names, without labels."""
    assert {"running": 1.0, "waiting": 4.0} == page_values(
        "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"
    )


def test_vllm_routers_page() -> None:
    """Lines of a recording (0.1.17): a summary whose quantiles are no samples, a histogram, gauges."""
    page = """# TYPE vllm_router_processed_requests_total counter
vllm_router_processed_requests_total{worker="http://127.0.0.1:8202"} 41
vllm_router_pd_active_decode_requests{worker="http://127.0.0.1:8202",rank="aggregate"} 2
vllm_router_pd_active_decode_requests{worker="http://127.0.0.1:8203",rank="aggregate"} 1
vllm_router_pd_pending_decode_requests{worker="http://127.0.0.1:8202",rank="aggregate"} 0
vllm_router_pd_decode_pending_seconds{quantile="0.5"} 0.22248401781300214
vllm_router_pd_decode_pending_seconds_sum 56.001921972000005
vllm_router_pd_decode_pending_seconds_count 40
vllm_router_pd_request_duration_seconds_bucket{route="/v1/completions",le="0.001"} 0
vllm_router_pd_request_duration_seconds_sum{route="/v1/completions"} 60.5
vllm_router_pd_request_duration_seconds_count{route="/v1/completions"} 40
"""
    assert {
        "running": 3.0,
        "waiting": 0.0,
        "decode_pending_sum": 56.001921972000005,
        "decode_pending_count": 40.0,
        "e2e_sum": 60.5,
        "e2e_count": 40.0,
    } == page_values(page)


def test_every_name_has_a_column() -> None:
    """What is read can be stored."""
    columns = {name.removesuffix("_sum").removesuffix("_count") for name in METRICS}
    assert columns == set(QUANTITIES)


def shares(*values: float, label: str = "engine") -> str:
    lines = [f'vllm:kv_cache_usage_perc{{{label}="{n}",model_name="m"}} {value}' for n, value in enumerate(values)]
    return "\n".join(lines)


@pytest.mark.parametrize("label", ["engine", "dp_rank", "pid", "worker", "model_name", "lora"])
def test_shares_are_averaged_and_counts_added(label: str) -> None:
    """Four engines at 58 to 62 % with three requests each: 60.25 % on average, 62 % at most, 12 requests; whatever
    the label is that tells them apart."""
    page = shares(0.62, 0.58, 0.60, 0.61, label=label)
    page += "".join(f'\nvllm:num_requests_running{{{label}="{number}"}} 3.0' for number in range(4))
    told = page_values(page)
    assert pytest.approx(0.6025) == told.pop("kv_usage")
    assert {"kv_usage_highest": 0.62, "running": 12.0} == told


def test_ranks_of_one_engine_say_the_same_once() -> None:
    """SGLang with metrics of all schedulers: two data-parallel engines of two tensor-parallel ranks each; the ranks of
    an engine report its requests and its cache again, a moment apart."""
    told = [(0, 0, 5, 0.2, 90), (0, 1, 5, 0.2, 100), (1, 0, 3, 0.6, 50), (1, 1, 2, 0.6, 50)]
    page = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {running}\n'
        f'sglang:token_usage{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {usage}\n'
        f'sglang:generation_tokens_total{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {tokens}\n'
        for dp, tp, running, usage, tokens in told
    )
    assert {"running": 8.0, "kv_usage": 0.4, "kv_usage_highest": 0.6, "output_tokens": 150.0} == page_values(page)


def test_a_sum_beside_its_parts_counts_once() -> None:
    """vllm-router's aggregate of a worker's ranks is not added to them."""
    page = "".join(
        f'vllm_router_pd_active_decode_requests{{worker="w",rank="{rank}"}} {value}\n'
        for rank, value in (("0", 2), ("1", 3), ("aggregate", 5))
    )
    assert {"running": 5.0} == page_values(page)


def test_tgis_page() -> None:
    """Its token counts are sums of histograms, its settings are no counts."""
    page = """tgi_batch_current_size 4
tgi_batch_current_max_tokens 2048
tgi_queue_size 7
tgi_request_input_length_sum 8000
tgi_request_generated_tokens_sum 8123
tgi_request_generated_tokens_count 44
tgi_request_queue_duration_sum 2.5
tgi_request_queue_duration_count 44
tgi_request_queue_duration_bucket{le="1"} 40
"""
    assert {
        "running": 4.0,
        "waiting": 7.0,
        "prompt_tokens": 8000.0,
        "output_tokens": 8123.0,
        "queue_sum": 2.5,
        "queue_count": 44.0,
    } == page_values(page)


def test_tritons_page() -> None:
    """One metric holds several quantities, told apart by a label; numbers of blocks are no shares."""
    page = """nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 9
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6240
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.25
nv_inference_count{model="tensorrt_llm",version="1"} 10
"""
    assert {"running": 6.0, "waiting": 3.0, "kv_usage": 0.25, "kv_usage_highest": 0.25} == page_values(page)


def test_dynamos_page() -> None:
    """Its front end counts requests and tokens; two models of one front end are added."""
    page = """dynamo_frontend_inflight_requests{model="a"} 2
dynamo_frontend_inflight_requests{model="b"} 1
dynamo_frontend_queued_requests{model="a"} 4
dynamo_frontend_output_sequence_tokens_sum{model="a"} 100
dynamo_frontend_time_to_first_token_seconds_sum{model="a"} 1.5
dynamo_frontend_time_to_first_token_seconds_count{model="a"} 3
"""
    assert {
        "running": 3.0,
        "waiting": 4.0,
        "output_tokens": 100.0,
        "ttft_sum": 1.5,
        "ttft_count": 3.0,
    } == page_values(page)


def test_a_renamed_metric_counts_once() -> None:
    """vLLM shows a metric under its old and its new name for a while."""
    page = "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n"
    assert {"kv_usage": 0.5, "kv_usage_highest": 0.5} == page_values(page)

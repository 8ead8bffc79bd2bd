"""A data-parallel vLLM: one series per engine, four engines at about 60 % of their KV cache, three requests each."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange

USED = (0.62, 0.58, 0.60, 0.61)


async def answer(exchange: Exchange) -> None:
    if exchange.path == "/metrics":
        return await exchange.page(_page(), 200)
    return await exchange.stream()


def _page() -> str:
    lines = ["# TYPE vllm:kv_cache_usage_perc gauge"]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{i}",model_name="m"}} {used}' for i, used in enumerate(USED)]
    lines += ["# TYPE vllm:num_requests_running gauge"]
    lines += [f'vllm:num_requests_running{{engine="{i}",model_name="m"}} 3.0' for i in range(len(USED))]
    return "\n".join(lines) + "\n"

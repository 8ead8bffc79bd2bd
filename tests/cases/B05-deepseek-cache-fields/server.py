"""DeepSeek: what of the prompt came from the cache stands at the top of `usage`, four fifths of it."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange, prompt_tokens


async def answer(exchange: Exchange) -> None:
    prompt = prompt_tokens(await exchange.document())
    hit = prompt * 8 // 10
    await exchange.stream(usage={"prompt_cache_hit_tokens": hit, "prompt_cache_miss_tokens": prompt - hit})

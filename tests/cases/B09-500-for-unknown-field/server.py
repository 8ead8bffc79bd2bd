"""A gateway that fails on what its own client library does not know: 500, with a sentence that names the field."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange


async def answer(exchange: Exchange) -> None:
    document = await exchange.document()
    for name in ("ignore_eos", "min_tokens"):
        if name in document:
            return await _fail(exchange, f"got an unexpected keyword argument '{name}'")
    if isinstance(document.get("prompt"), list):
        return await _fail(exchange, "'list' object has no attribute 'strip'")
    return await exchange.stream()


async def _fail(exchange: Exchange, sentence: str) -> None:
    await exchange.refuse(500, f"APIConnectionError: {sentence}", type=None, param=None, code="500")

"""A newer OpenAI model: no max_tokens, no temperature but 1, no fields it does not know, no completions endpoint."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange

MODELS = ["gpt-next-mini"]
FIELDS = {
    *("model", "messages", "stream", "stream_options", "max_completion_tokens"),
    *("n", "user", "temperature", "seed", "top_p"),
}


async def answer(exchange: Exchange) -> None:
    """Each refusal names the one field it is about."""
    document = await exchange.document()
    if not exchange.path.endswith("/chat/completions"):
        sentence = "This is a chat model and not supported in the v1/completions endpoint."
        return await exchange.refuse(404, sentence, param="model", code=None)
    if "max_tokens" in document:
        sentence = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return await _refuse(exchange, "max_tokens", f"Unsupported parameter: {sentence}")
    for name in sorted(document.keys() - FIELDS):
        return await _refuse(exchange, name, f"Unrecognized request argument supplied: {name}")
    if document.get("temperature", 1) != 1:
        sentence = "'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
        return await _refuse(exchange, "temperature", f"Unsupported value: {sentence}")
    return await exchange.stream()


async def _refuse(exchange: Exchange, name: str, sentence: str) -> None:
    await exchange.refuse(400, sentence, param=name, code="unsupported_parameter")

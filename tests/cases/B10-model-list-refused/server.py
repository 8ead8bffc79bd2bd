"""A key that may use the model, not the list of models."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange

MODELS: list[str] = []


async def answer(exchange: Exchange) -> None:
    if exchange.method == "GET":
        return await exchange.page({"detail": "this key may not list models"}, 401)
    if exchange.headers.get("authorization") != "Bearer user-key-1":
        return await exchange.refuse(401, "no key")
    return await exchange.stream()

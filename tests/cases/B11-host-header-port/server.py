"""A mesh ingress: routes by the exact Host of its virtual service, without a port."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange

MODELS: list[str] = []


async def answer(exchange: Exchange) -> None:
    if exchange.headers["host"] != "localhost":
        return await exchange.page("", 404, "server: istio-envoy")
    if exchange.method == "GET":
        return await exchange.page({"object": "list", "data": [{"id": "m"}]})
    return await exchange.stream()

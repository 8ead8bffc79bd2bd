"""A server that takes whatever it is given."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange


async def answer(exchange: Exchange) -> None:
    await exchange.stream()

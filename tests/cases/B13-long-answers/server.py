"""A slow reasoner: its answers take longer than any wait between two tokens."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange


async def answer(exchange: Exchange) -> None:
    await exchange.stream(gap_s=0.1)

"""A server whose parser breaks when ignore_eos makes it go on past the end of a turn (gpt-oss)."""

from __future__ import annotations

from tests.cases.kinds._server import Exchange

TURN = 8
SENTENCE = "Unexpected token 200002 while expecting start token 200006"


async def answer(exchange: Exchange) -> None:
    document = await exchange.document()
    asked = document["max_tokens"]
    goes_on = document.get("ignore_eos") or (document.get("min_tokens") or 0) > TURN
    await exchange.stream(tokens=min(asked, TURN), error=SENTENCE if asked > TURN and goes_on else "")

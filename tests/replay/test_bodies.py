"""Requests made ahead, step by step: in order, hurried ones first, and the same bytes as at once."""

from __future__ import annotations

import json

import msgspec
import pytest

from loadtest.replay.bodies import WHOLE_BYTES, Bodies, Request, RequestBuilder, Steps, size_of
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.redirect import moved
from tests.replay.player import LAST_CHUNK, Play, Player, chunk
from tests.replay.replaying import replay, schedule
from tests.replay.streams import DONE, HEAD, completion_event, usage_event
from workloads.prompts import PIECE_TOKENS, Prompts

LONG = 5 * PIECE_TOKENS + 100
ENDPOINT = msgspec.structs.replace(Endpoint.parse("http://h", model="m"), prompt_form="ids")


def bodies(instants: list[float], prompt_tokens: int, budget: int = 64 * 2**20) -> Bodies:
    shard = schedule(instants, prompt_tokens=prompt_tokens)
    return Bodies(ENDPOINT, shard, Prompts.of(shard), budget=budget)


def whole(request: Request) -> bytes:
    return request if isinstance(request, bytes) else b"".join(request)


def made(steps: Steps) -> Request:
    """The request that all steps together make."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            request: Request = end.value
            return request


def steps_until_whole(found: Bodies) -> tuple[int, int]:
    """The row that is whole next, and the steps that it took."""
    for steps in range(1, 100):
        row = found.prepare()
        if row >= 0:
            return row, steps
    raise AssertionError("no request was finished")


@pytest.mark.parametrize("form", ["ids", "text"])
@pytest.mark.parametrize("tokens", [0, 3, PIECE_TOKENS, LONG, 60_000])
def test_a_request_in_pieces_is_a_request(tokens: int, form: str) -> None:
    """One head with the right length, one JSON document, whether whole or in pieces."""
    endpoint = msgspec.structs.replace(ENDPOINT, prompt_form=form)
    builder = RequestBuilder(endpoint, Prompts(1, "s"))
    steps = builder.steps(7, tokens, 20)
    request = made(steps)
    head, _, body = whole(request).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    prompt = json.loads(body)["prompt"]
    assert tokens == len(prompt if form == "ids" else prompt.split())
    assert whole(request) == builder.build(7, tokens, 20)
    assert isinstance(request, bytes) == (size_of(request) <= WHOLE_BYTES + 1000)


def test_rows_are_made_in_order_and_in_steps() -> None:
    """A step a piece; the row that is whole is handed out as it is."""
    found = bodies([0.0, 1.0], LONG)
    assert [(0, 6), (1, 6)] == [steps_until_whole(found) for _ in range(2)]
    assert found.full
    assert found.ready(0)
    assert LONG == len(json.loads(whole(found.take(0)).partition(b"\r\n\r\n")[2])["prompt"])


def test_a_hurried_row_comes_first_and_a_begun_one_goes_on() -> None:
    """What was made of another row is not lost."""
    found = bodies([0.0, 1.0, 2.0], LONG)
    assert -1 == found.prepare()
    found.hurry(2)
    found.hurry(2)
    assert (2, 6) == steps_until_whole(found)
    assert not found.hurried
    assert not found.ready(0)
    assert LONG == len(json.loads(whole(found.take(0)).partition(b"\r\n\r\n")[2])["prompt"])


def test_short_rows_are_always_ready() -> None:
    """They are made at once, and hurrying them changes nothing."""
    found = bodies([0.0, 1.0], PIECE_TOKENS)
    assert found.ready(1)
    found.hurry(1)
    assert not found.hurried
    assert (0, 1) == steps_until_whole(found)


def test_a_row_that_is_not_sent_costs_nothing_more() -> None:
    """Whole, begun or not begun: the next row is made, and the room is free again."""
    found = bodies([0.0, 1.0, 2.0], LONG, budget=1)
    assert 0 == steps_until_whole(found)[0]
    assert found.full
    found.drop(0)
    assert not found.full
    assert -1 == found.prepare()
    found.drop(1)
    assert 2 == steps_until_whole(found)[0]


def test_a_redirect_moves_pieces() -> None:
    """The same body behind another head, none of it copied together."""
    builder = RequestBuilder(ENDPOINT, Prompts(1, "s"))
    steps = builder.steps(7, LONG * 4, 20)
    request = made(steps)
    there = moved(request, Endpoint.parse("http://elsewhere:81"))
    assert isinstance(request, tuple)
    assert isinstance(there, tuple)
    assert request[1:] == there[1:]
    head, _, body = whole(there).partition(b"\r\n\r\n")
    assert b"Host: elsewhere:81" in head
    assert whole(request).partition(b"\r\n\r\n")[2] == body


def test_long_prompts_that_could_not_be_made_ahead_arrive_whole() -> None:
    """Six of 200,000 tokens at the first instant, and short ones right behind: all arrive, each with its length."""
    events = b"".join(map(chunk, (completion_event(" a", "length"), usage_event(1), DONE)))
    shard = schedule([0.0] * 6 + [0.01, 0.02], prompt_tokens=200_000, max_tokens=1)
    shard = type(shard)(**{**vars(shard), "prompt_tokens": [200_000] * 6 + [4, 4]})
    with Player(lambda *_: Play([(0, HEAD + events + LAST_CHUNK)])) as player:
        done = replay(player.url(), shard, lead_s=0.0, max_lateness_s=30.0)
    assert ["ok"] * 8 == [done.outcome(row) for row in range(8)]
    lengths = sorted(received.body.partition(b"]")[0].count(b",") + 1 for received in player.received)
    assert [4, 4] + [200_000] * 6 == lengths

"""Prompts: exact length, nobody's content twice, the same content on request."""

from __future__ import annotations

import json
from itertools import combinations, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import salts, seeds
from workloads.errors import WorkloadError
from workloads.prompts import Prompts
from workloads.words import WORDS

counts = st.integers(0, 3_000)
request_ids = st.integers(0, 2**62)


@given(seeds, salts, request_ids, counts)
def test_exact_count_in_every_form(seed: int, salt: str, request_id: int, count: int) -> None:
    """Ids, their JSON and text each hold exactly the asked number of tokens, and ids and JSON agree."""
    prompts = Prompts(seed, salt)
    ids = prompts.token_ids(request_id, count).tolist()
    assert count == len(ids)
    assert all(256 <= token < 2000 for token in ids)
    assert ids == json.loads(prompts.ids_json(request_id, count))
    text = prompts.text(request_id, count)
    assert count == (len(text.split(" ")) if text else 0)
    assert text == " ".join(text.split())


@given(seeds, salts, request_ids, st.integers(1, 500))
def test_pure_function_of_seed_salt_and_id(seed: int, salt: str, request_id: int, count: int) -> None:
    """The order of calls and the object do not matter."""
    prompts = Prompts(seed, salt)
    prompts.text(0, 7)
    assert prompts.token_ids(request_id, count).tolist() == Prompts(seed, salt).token_ids(request_id, count).tolist()


def test_no_two_prompts_share_a_beginning() -> None:
    """400 requests, two salts and two seeds: no common prefix longer than four tokens."""
    drawn = [
        Prompts(seed, salt).token_ids(request_id, 32).tolist()
        for seed, salt in ((1, "aa"), (1, "ab"), (2, "aa"))
        for request_id in range(400)
    ]
    for a, b in pairwise(sorted(drawn)):  # the longest common prefix is that of two neighbours in order
        assert len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=True)))) <= 4


def test_shared_blocks() -> None:
    """Equal leading blocks give equal leading tokens, to the block's end and no further; the last may be cut."""
    prompts = Prompts(1, "aa", block_tokens=16)
    a, b, c = prompts.token_ids(0, 40, [5, 6]), prompts.token_ids(1, 50, [5, 7]), prompts.token_ids(2, 10, [5, 6])
    assert (40, 50, 10) == (len(a), len(b), len(c))
    assert a[:16].tolist() == b[:16].tolist()
    assert a[:10].tolist() == c.tolist()
    assert a[16:32].tolist() != b[16:32].tolist()
    assert a[32:].tolist() != prompts.token_ids(3, 40, [5, 6])[32:].tolist()
    assert prompts.text(0, 40, [5]).split()[:16] == prompts.text(9, 20, [5]).split()[:16]


def test_blocks_and_requests_do_not_collide() -> None:
    """Block 3 and request 3 are different content."""
    prompts = Prompts(1, "aa", block_tokens=16)
    streams = [prompts.token_ids(3, 16).tolist(), prompts.token_ids(3, 16, [3]).tolist()]
    assert all(a != b for a, b in combinations(streams, 2))


def test_another_vocabulary() -> None:
    """Ids stay inside, and one of no ids is refused."""
    assert {7, 8} == set(Prompts(1, "aa", (7, 9)).token_ids(0, 100).tolist())
    assert {7, 8} == set(json.loads(Prompts(1, "aa", (7, 9)).ids_json(0, 100)))
    for vocabulary in ((5, 5), (-1, 4)):
        with pytest.raises(WorkloadError):
            Prompts(1, "aa", vocabulary)


def test_words_are_distinct() -> None:
    """Every word is one word and occurs once."""
    assert len(WORDS) == len(set(WORDS))
    assert all(word.isalpha() for word in WORDS)


@pytest.mark.parametrize("count", [0, 1, 16, 4095, 4096, 4097, 20_000])
@pytest.mark.parametrize("blocks", [(), tuple(range(3)), tuple(range(900))])
def test_a_prompt_in_pieces_is_the_prompt(count: int, blocks: tuple[int, ...]) -> None:
    """The bytes of one draw of the whole, as version 0.1 made them; no piece is long, a short prompt is one piece."""
    prompts = Prompts(5, "s", block_tokens=16)
    whole = [prompts._stream(1, block).integers(0, 1744, 16) for block in blocks][: -(-count // 16)]
    drawn = [256 + int(token) for part in whole for token in part][:count]
    drawn += (256 + prompts._stream(0, 9).integers(0, 1744, count - len(drawn))).tolist()
    for as_ids, expected in ((True, drawn), (False, prompts.text(9, count, blocks))):
        pieces = list(prompts.json_pieces(9, count, blocks, as_ids=as_ids))
        assert expected == json.loads(b"".join(pieces))
        assert max(piece.count(b"," if as_ids else b" ") for piece in pieces) <= 4096 + 16
        assert (count > 4096) == (len(pieces) > 1) or len(blocks) > 16
    assert drawn == prompts.token_ids(9, count, blocks).tolist()
    assert count == len(prompts.text(9, count, blocks).split())

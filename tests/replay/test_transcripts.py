"""Recordings of real servers, in their recorded reads and cut anew, against values taken from the bytes by hand."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from loadtest.replay.answer import Answer
from loadtest.replay.dialects import DIALECTS, Dialect
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.stamps import NO_STAMP
from metrics.records import Flag, Outcome

HERE = Path(__file__).parent / "transcripts"
TABLE: list[dict[str, Any]] = [json.loads(line) for line in (HERE / "table.jsonl").read_text().splitlines()]
MAX_SINGLE_BYTES = 9_000  # longer recordings are cut to single bytes around their ends and every 7th byte between

pytestmark = pytest.mark.parametrize("case", TABLE, ids=lambda case: case["case"])


def dialect_of(case: dict[str, Any]) -> Dialect:
    """The dialect that the recorded path speaks."""
    path = case["path"] if case["path"] != "/v1/nope" else "/v1/completions"
    return DIALECTS[Endpoint.parse(f"http://h{path}").api]


def played(case: dict[str, Any], reads: list[bytes], *, keep_text: bool) -> Answer:
    """The reads as a connection would hand them over, in small batches, and then the close."""
    answer = Answer(dialect_of(case), keep_text=keep_text)
    for start in range(0, len(reads), 5):
        answer.feed([(number + 1, NO_STAMP, data) for number, data in enumerate(reads[start : start + 5], start)])
    if case["ended"] == "eof" and not answer.complete:
        answer.close(10**9)
    return answer


def check(case: dict[str, Any], answer: Answer) -> None:
    """Everything that does not depend on the cut."""
    assert case["status"] == answer.status
    assert case["token_events"] == len(answer.event_reads)
    assert case["events"] == (answer.data_events if answer.streamed and case["events"] else 0)
    assert 0 == answer.malformed_events
    assert (case["usage"] if case["usage"] is not None else -1) == max(answer.usage_tokens, -1)
    assert (case["prompt"] if case["prompt"] is not None else -1) == answer.prompt_tokens
    assert case["cached"] in (0, answer.cached_tokens)
    assert case["finish"] == answer.finish_reason
    assert case["error"] in answer.error_message()
    assert expected_outcome(case) == answer.outcome()
    assert (case["status"] == 200 and case["events"] == 0) == (Flag.NOT_STREAMED in answer.flags(1))
    assert (case["ended"] != "client_closed") == answer.complete


def expected_outcome(case: dict[str, Any]) -> Outcome:
    if case["status"] != 200:
        return Outcome.HTTP_ERROR
    if case["error"]:
        return Outcome.IN_BAND_ERROR
    return Outcome.TRUNCATED_STREAM if case["ended"] == "client_closed" else Outcome.OK


def recording(case: dict[str, Any]) -> bytes:
    return (HERE / f"{case['case']}.http").read_bytes()


def cut(raw: bytes, positions: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(p for p in positions if 0 < p < len(raw))})
    return [raw[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("keep_text", [True, False])
def test_in_the_reads_that_were_recorded(case: dict[str, Any], keep_text: bool) -> None:
    """Counts, ends and errors, and for every token the read that completed it."""
    answer = played(case, cut(recording(case), list(accumulate(case["reads"]))), keep_text=keep_text)
    check(case, answer)
    assert case["token_reads"] == answer.event_reads.tolist()
    if keep_text and case["events"]:
        text = answer.text.encode()
        assert case["text_sha1"] == hashlib.sha1(text, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("keep_text", [True, False])
def test_all_in_one_read(case: dict[str, Any], keep_text: bool) -> None:
    """A proxy that holds everything back changes times, and nothing else."""
    answer = played(case, [recording(case)], keep_text=keep_text)
    check(case, answer)
    assert {0} >= set(answer.event_reads)


def test_byte_by_byte(case: dict[str, Any]) -> None:
    """The slowest network there is."""
    raw = recording(case)
    edge = MAX_SINGLE_BYTES // 2
    middle = range(edge, len(raw) - edge, 7) if len(raw) > MAX_SINGLE_BYTES else range(edge, edge)
    singles = [p for p in range(len(raw)) if p < edge or p > len(raw) - edge] if middle else list(range(len(raw)))
    check(case, played(case, cut(raw, [*singles, *middle]), keep_text=False))


def test_cut_inside_characters_and_line_ends(case: dict[str, Any]) -> None:
    """Every multi-byte character and every CRLF is torn, each in a read of its own."""
    raw = recording(case)
    inside = [match.start() + 1 for match in re.finditer(rb"\r\n|[\xc2-\xf4][\x80-\xbf]", raw)]
    inside += [match.start() + 1 for match in re.finditer(rb"\n\n", raw)]
    answer = played(case, cut(raw, inside), keep_text=True)
    check(case, answer)
    if case["events"]:
        assert case["text_sha1"] == hashlib.sha1(answer.text.encode(), usedforsecurity=False).hexdigest()

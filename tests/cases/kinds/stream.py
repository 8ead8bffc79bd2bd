"""Stream cases: recorded bodies played at recorded times, read by the real sender.

Each case runs twice: on the bare loop the careful way, which keeps the text; and on the gevent hub, as in a Locust
worker, the quick way that a load run takes.
"""

from __future__ import annotations

import functools
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from metrics.latency import tpot_s
from tests.cases.kinds import undisturbed
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk, response_head
from tests.replay.replaying import Replayed, replay, schedule

IDLE_LIMIT_S = 1.0
MAY_BE_SET_BESIDES = {"coalesced", "short_output", "reconnected", "redirected"}
EVIDENCE = {"first_event_tokens", "unknown_text_key", "usage_over_text", "usage_contradiction"}


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Play the case and compare everything expected.json names."""
    for keep_text, reactor in ((True, "epoll"), (False, "hub")):
        undisturbed(functools.partial(_play_and_compare, case_dir, case, expected, keep_text, reactor))


def _play_and_compare(
    case_dir: Path, case: dict[str, Any], expected: dict[str, Any], keep_text: bool, reactor: str
) -> None:
    with Player(lambda _received, _number: play_of(case_dir, case)) as player:
        request = case.get("request", {})
        lengths = {name: request.get(name, default) for name, default in (("prompt_tokens", 4), ("max_tokens", 16))}
        replayed = replay(
            player.url(case["endpoint"]),
            schedule([0.0], **lengths),
            idle_timeout_s=IDLE_LIMIT_S,
            keep_text=keep_text,
            reactor=reactor,
            drain_limit_s=30.0,
        )
        compare(replayed, player.received[0], expected)


def play_of(case_dir: Path, case: dict[str, Any]) -> Play:
    """The writes of a case: its head with the first piece of its body, each piece framed as the case says."""
    response = case["response"]
    body = (case_dir / case["body"]).read_bytes()
    framing, end = response.get("framing", "chunked"), response.get("end", "clean")
    headers = dict(response.get("headers", {}))
    if framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif framing in ("length", "content-length"):
        headers["Content-Length"] = str(len(body))
    version = "HTTP/1.0" if framing == "close" else "HTTP/1.1"
    writes: list[tuple[float, bytes]] = [(0, response_head(response.get("status", 200), headers, version=version))]
    position = 0
    for at_ms, count in json.loads((case_dir / case["timeline"]).read_text()):
        piece = body[position : position + count]
        position += count
        writes.append((at_ms, chunk(piece) if framing == "chunked" and piece else piece))
    if framing == "chunked" and end == "clean":
        at_ms, data = writes[-1]
        writes[-1] = (at_ms, data + LAST_CHUNK)
    ends = {"clean": "close" if framing == "close" else "keep", "no_final_chunk": "close"}
    return Play(writes, ends.get(end, end))


def compare(replayed: Replayed, received: Received, expected: dict[str, Any]) -> None:
    """Every value of expected.json, times against the player's own write stamps."""
    row, answer = replayed.rows[0], replayed.exchanges[0].answer if replayed.exchanges else None
    outcome = replayed.outcome(0)
    if "outcome" in expected:
        assert expected["outcome"] == ("ok" if outcome == "ok" else "error")
    if expected.get("error_class"):
        assert expected["error_class"] == outcome
    for key, column in (("output_tokens", "output_tokens"), ("token_events", "token_events")):
        if key in expected:
            assert expected[key] == row[column], key
    if "flags" in expected:
        assert set(expected["flags"]) - MAY_BE_SET_BESIDES == replayed.flags(0) - MAY_BE_SET_BESIDES - EVIDENCE
    if "evidence" in expected:
        assert set(expected["evidence"]) == replayed.flags(0) & EVIDENCE
    for key in ("hidden_tokens", "served_prompt_tokens"):
        if key in expected:
            assert expected[key] == row[key], key
    if "output_tokens_source" in expected and row["output_tokens"]:
        source = "events" if "tokens_estimated" in replayed.flags(0) else "usage"
        assert expected["output_tokens_source"] in (source, {"events": "token_events"}.get(source))
    if "message_contains" in expected:
        assert expected["message_contains"] in replayed.error(0)
    _compare_times(replayed, received, expected)
    if answer is not None:
        _compare_text(answer, expected)


def _compare_text(answer: Any, expected: dict[str, Any]) -> None:
    values = {
        "text": answer.text,
        "text_length": len(answer.text),
        "reasoning_text": answer.reasoning_text,
        "data_events": answer.data_events,
        "first_token_event": answer.first_token_event if answer.first_token_event >= 0 else None,
        "finish_reason": answer.finish_reason,
        "malformed_events": answer.malformed_events,
    }
    for key, value in values.items():
        if key in expected:
            assert expected[key] == value, key


def _compare_times(replayed: Replayed, received: Received, expected: dict[str, Any]) -> None:
    tolerance_ns = expected.get("tolerance_ms", 15) * 1e6
    events_ns = replayed.event_ns(0)
    if "first_token_ms" not in expected:
        return
    if expected["first_token_ms"] is None:
        assert np.isnan(replayed.rows["first_token_s"][0])
        return
    planned = [expected["first_token_ms"]]
    if "token_gaps_ms" in expected:
        planned = list(accumulate(expected["token_gaps_ms"], initial=expected["first_token_ms"]))
        assert len(planned) == len(events_ns)
    for at_ms, event_ns in zip(planned, events_ns, strict=False):
        before, after = _written(received, at_ms)
        assert before - tolerance_ns <= event_ns <= after + tolerance_ns, f"the token planned at {at_ms} ms"
    if expected.get("last_token_ms") is not None:
        before, after = _written(received, expected["last_token_ms"])
        assert before - tolerance_ns <= events_ns[-1] <= after + tolerance_ns
    if "tpot_ms" in expected:
        _compare_tpot(replayed, received, expected, tolerance_ns)


def _compare_tpot(replayed: Replayed, received: Received, expected: dict[str, Any], tolerance_ns: float) -> None:
    """Against the player's own stamps: the mean time per token between the writes of the first and the last one."""
    tpot = float(tpot_s(replayed.rows)[0])
    if expected["tpot_ms"] is None:
        assert np.isnan(tpot)
        return
    tokens = int(replayed.rows["output_tokens"][0])
    first, last = (sum(_written(received, expected[key])) / 2 for key in ("first_token_ms", "last_token_ms"))
    assert abs((last - first) / (tokens - 1) - tpot * 1e9) <= 10_000 + 2 * tolerance_ns / (tokens - 1)


def _written(received: Received, at_ms: float) -> tuple[int, int]:
    """When the player wrote what was planned nearest to `at_ms`: the instants around the last such write."""
    nearest = min(received.writes, key=lambda write: abs(write[0] - at_ms))[0]
    same = [write for write in received.writes if write[0] == nearest]
    return same[0][1], same[-1][2]

"""HTTP cases: one raw response to every request, or a script of connections, met by the real sender and command."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from metrics.records import RecordTable
from metrics.slo import SLO, attain
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk, response_head
from tests.replay.replaying import Replayed, replay, schedule

RUN_KEYS = {"preflight", "exit_code_nonzero", "report_must_contain", "report_must_not_contain"}
_EVENT = b'data: {"choices":[{"index":0,"text":" token","finish_reason":%s}]}\n\n'
_ANSWER = (
    response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    + chunk(_EVENT % b"null")
    + chunk(_EVENT % b'"length"')
    + chunk(b"data: [DONE]\n\n")
    + LAST_CHUNK
)


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:  # noqa: ARG001  all kinds take the three
    """Play the case; what expected.json says of a request is looked up in its row, the rest in a whole run."""
    if (case_dir / "script.json").exists():
        script = json.loads((case_dir / "script.json").read_text())
        with Player(_connections(script)) as player:
            row = len(player.received), replay(player.url(), schedule([0.0, 0.3]))
            _compare_row(row[1], 1, expected)
        return
    raw = (case_dir / "response.http").read_bytes()
    with Player(lambda _received, _number: Play([(0, raw)], _end_of(raw))) as player:
        if "outcome" in expected:
            _compare_row(replay(player.url(), schedule([0.0])), 0, expected)
        if RUN_KEYS & set(expected):
            _compare_run(player, expected)


def _end_of(raw: bytes) -> str:
    head = raw.partition(b"\r\n\r\n")[0].lower()
    return "keep" if b"content-length" in head or b"chunked" in head else "close"


def _connections(script: dict[str, Any]) -> Any:
    """Answer as the n-th connection that carries a request is told to."""
    plans: dict[int, dict[str, Any]] = {}
    served: dict[int, int] = {}

    def answer(received: Received, _number: int) -> Play:
        plan = plans.setdefault(
            received.connection, script["connections"][min(len(plans), len(script["connections"]) - 1)]
        )
        served[received.connection] = served.get(received.connection, 0) + 1
        limit = plan.get("serve_requests", "all")
        if limit != "all" and served[received.connection] > limit:
            return Play([], "reset" if "reset" in str(plan.get("then", "")) else "close")
        return Play([(0, _ANSWER)])

    return answer


def _compare_row(replayed: Replayed, index: int, expected: dict[str, Any]) -> None:
    row, outcome = replayed.rows[index], replayed.outcome(index)
    if "outcome" in expected:
        assert expected["outcome"] == ("ok" if outcome == "ok" else "error")
    if expected.get("error_class"):
        assert expected["error_class"] == outcome
    for key in ("attempts", "reconnects", "output_tokens", "token_events"):
        if key in expected:
            assert expected[key] == row[key], key
    assert set(expected.get("flags", ())) <= replayed.flags(index)
    if "first_token_ms" in expected and expected["first_token_ms"] is None:
        assert np.isnan(row["first_token_s"])
    if "retry_after_s" in expected:
        assert expected["retry_after_s"] == replayed.answer_of(index).retry_after_s
    if "message_contains" in expected and "preflight" not in expected:
        assert expected["message_contains"] in replayed.error(index)
    if "message_max_chars" in expected:
        assert len(replayed.error(index)) <= expected["message_max_chars"]
    if "counts_as_server_failure" in expected:
        assert expected["counts_as_server_failure"] == (outcome != "ok")
    if "counts_in_attainment_denominator" in expected:
        attainment = attain(RecordTable(replayed.rows), SLO.parse("ttft=1s,tpot=1s"))
        assert expected["counts_in_attainment_denominator"] == (attainment.total == len(replayed.rows))


def _compare_run(player: Player, expected: dict[str, Any]) -> None:
    """What only the command shows: preflight, exit code, report."""
    before = len(player.received)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", player.url(), "--model", "x"]
        command += ["--trace", "azure-conv", "--requests", "3", "--rate", "50", "--slo", "ttft=1s,tpot=1s"]
        done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=120, check=False)
        if "exit_code_nonzero" in expected:
            assert expected["exit_code_nonzero"] == (done.returncode != 0)
        if expected.get("preflight") == "fail":
            assert done.returncode != 0
            sent = [r for r in player.received[before:] if b'"max_tokens"' in r.body]
            assert all(b'"max_tokens":2,' in r.body for r in sent), "only the probe may have been sent"
            assert expected.get("message_contains", "") in done.stderr.replace("\n", " ")
        if "report_must_contain" in expected or "report_must_not_contain" in expected:
            page = (out / "report.html").read_text()
            assert expected.get("report_must_contain", "") in page
            assert expected.get("report_must_not_contain", "\0") not in page

"""Whole `goodput run` commands, so inside a Locust worker: true token times, even arrivals, and honest verdicts."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest import clock
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.supervise import python_module
from metrics import rundir
from tests.replay.player import LAST_CHUNK, Play, Player, chunk, response_head
from tests.replay.streams import DONE, HEAD, answer_bytes, completion_event, usage_event
from tests.replay.test_sender import make_certificate

ROOT = Path(__file__).parents[2]
ANSWER = answer_bytes([" a", " b"])


def trace_of(path: Path, rows: int, gap_s: float, tokens: int = 2) -> Path:
    lines = (f"{i * gap_s:.6f},4,{tokens}" for i in range(rows))
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *lines]) + "\n")
    return path


def start(url: str, trace: Path, *words: str) -> subprocess.Popen[str]:
    """The command, with its run directory beside the trace."""
    line = ["run", "--target", url, "--model", "m", "--trace", str(trace), "--out", str(trace.parent / "run"), "--json"]
    return subprocess.Popen(
        python_module("loadtest.cli.main", *line, *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), "MY_KEY": "sesame"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, errors = process.communicate(timeout=100)
    assert out, errors
    return process.returncode, json.loads(out), errors


def test_every_token_of_a_dribbling_server_is_seen_when_it_comes(tmp_path: Path) -> None:
    """Tokens 50 ms apart, seen one by one by the kernel's stamps; a buffering reader sees all of them at the end."""
    writes = [(0.0, HEAD), *((50.0 * (i + 1), chunk(completion_event(f" {i}"))) for i in range(8))]
    tail = chunk(completion_event("", "length")) + chunk(usage_event(8)) + chunk(DONE) + LAST_CHUNK
    with Player(lambda *_: Play([*writes, (400, tail)])) as player:
        code, summary, errors = finished(start(player.url(), trace_of(tmp_path / "t.csv", 3, 0.1, 8)))
        load = player.received[-3:]
    assert ExitCode.OK == code or "limited_by_client" in errors, errors
    table = rundir.load(tmp_path / "run").table
    assert table.events is not None
    zero_ns = table.workers[0].zero_ns
    for row, received in zip(range(3), load, strict=True):
        us = table.events.us[table.events.start[row] : table.events.start[row + 1]].astype(np.int64)
        seen = us * 1000 + round(float(table.rows["sent_s"][row]) * 1e9) + zero_ns
        for (_, before, after), event_ns in zip(received.writes[1:9], seen, strict=True):
            assert before - 1e6 <= event_ns <= after + 15e6
    assert summary["validity"]["kernel_stamped_share"] > 0.9


def test_arrivals_of_four_workers_are_even(tmp_path: Path) -> None:
    """100 arrivals/s with 10 ms between them from four workers: every row has its own instant, nothing clumps."""
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        _, summary, _ = finished(start(player.url(), trace_of(tmp_path / "t.csv", 120, 0.01), "--workers", "4"))
        arrivals = np.sort([received.read_ns for received in player.received][-120:]) / 1e9
    rows = rundir.load(tmp_path / "run").table.rows
    assert 120 == summary["requests"]["sent"]
    assert {0, 1, 2, 3} == set(rows["worker"].tolist())
    assert (rows["sent_s"] >= rows["scheduled_s"]).all()
    gaps = np.diff(arrivals)
    assert 0.005 < float(np.median(gaps)) < 0.015
    assert float(np.quantile(gaps, 0.75) - np.quantile(gaps, 0.25)) < 0.01


def test_a_worker_that_was_held_up_is_not_the_server(tmp_path: Path) -> None:
    """The client stands still for most of a second: its sends are late, the run is invalid, and says who was slow."""
    with Player(lambda *_: Play([(0, ANSWER)])) as player:
        process = start(
            player.url(), trace_of(tmp_path / "t.csv", 150, 0.02), "--slo", "ttft=200ms", "--timeout", "30s"
        )
        while len(player.received) < 20 and process.poll() is None:
            clock.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        clock.sleep(0.8)
        process.send_signal(signal.SIGCONT)
        code, summary, errors = finished(process)
    assert ExitCode.INVALID == code
    assert "sent late" in errors
    found = next(f for f in summary["validity"]["findings"] if f["code"] == "limited_by_client")
    assert found["evidence"]["lag_max_s"] > 0.3
    assert summary["validity"]["client_lag_s"]["max"] == found["evidence"]["lag_max_s"]
    assert 150 == summary["requests"]["by_outcome"]["ok"]


def test_abort_on_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """A server that refuses everything: stopped early, marked partial with the rule, exit code 1."""
    refused = Play([(0, response_head(503, {"Content-Length": "0"}))])
    with Player(lambda *_: refused) as player:
        words = ("--abort-on", "failed > 20%", "--workers", "2")
        code, summary, errors = finished(start(player.url(), trace_of(tmp_path / "t.csv", 3000, 0.02), *words))
    assert ExitCode.FAILED == code
    assert ("partial", 3000) == (summary["run"]["state"], summary["requests"]["planned"])
    assert summary["run"]["stop_reason"].startswith("failed > 20%:")
    assert "failed > 20%" in errors
    assert 0 < summary["run"]["stopped_at_s"] < 30
    assert {"failures", "partial"} <= {finding["code"] for finding in summary["validity"]["findings"]}
    assert "schedule_not_offered" not in {finding["code"] for finding in summary["validity"]["findings"]}


def test_a_key_file_a_certificate_and_an_own_path_reach_every_request(tmp_path: Path) -> None:
    """https with --ca-file, --api-key-file, --path and --extra-body: probe and load alike, the key in no record."""
    certificate = make_certificate(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    (tmp_path / "key").write_text("open-sesame\n")
    words = ("--ca-file", str(certificate), "--api-key-file", str(tmp_path / "key"), "--path", "/mine")
    with Player(lambda *_: Play([(0, ANSWER)]), tls=server) as player:
        trace = trace_of(tmp_path / "t.csv", 5, 0.02)
        code, summary, errors = finished(start(player.url(), trace, *words, "--extra-body", "top_k=3"))
        posts = [received for received in player.received if received.head.startswith(b"POST")]
    assert 5 == summary["requests"]["by_outcome"]["ok"], errors
    assert code in (ExitCode.OK, ExitCode.INVALID)
    assert all(received.head.startswith(b"POST /mine HTTP/1.1") for received in posts)
    assert all(b"Authorization: Bearer open-sesame" in received.head for received in player.received)
    assert all(b'"top_k":3' in received.body for received in posts)
    kept = [path.read_bytes() for path in (tmp_path / "run").iterdir()]
    assert not any(b"open-sesame" in content for content in kept)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--abort-on", "ttft > 1s"], "bad_rule"),
        (["--extra-body", "x"], "usage"),
        (["--path", "x"], "usage"),
        (["--ca-file", "/none"], "usage"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_sent(
    words: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with one sentence."""
    trace = trace_of(tmp_path / "t.csv", 5, 0.02)
    line = ["run", "--target", "https://127.0.0.1:1", "--trace", str(trace), "--out", str(tmp_path / "out"), "--json"]
    assert ExitCode.USAGE == run([*line, *words])
    assert code == json.loads(capsys.readouterr().out)["error"]["code"]

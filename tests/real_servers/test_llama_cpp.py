"""llama.cpp, which counts and times on its own: our records against its answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loadtest.cli.main import run as goodput
from loadtest.supervise import Server
from metrics import rundir
from metrics.latency import ttft_from_sent_s
from metrics.records import Outcome

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("GOODPUT_REAL_SERVERS", ROOT / ".real-servers"))
PYTHON, MODEL = HOME / "llama-cpp" / "bin" / "python", HOME / "tiny.gguf"

pytestmark = [
    pytest.mark.real_server,
    pytest.mark.live,
    pytest.mark.skipif(
        not (PYTHON.exists() and MODEL.exists()),
        reason="llama.cpp is not installed here: scripts/real-servers llama-cpp --install",
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("llama") / "server.log"
    program = ROOT / "examples" / "servers" / "llama_cpp.py"
    with Server([str(PYTHON), str(program), "--model", str(MODEL)], log=log, name="llama.cpp") as running:
        yield running


def trace(folder: Path, lengths: list[tuple[int, int]], gap_ms: int) -> Path:
    """Requests of these (prompt, output) lengths, `gap_ms` apart."""
    file = folder / "trace.jsonl"
    row = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}\n'
    file.write_text("".join(row.format(gap_ms * i, *lengths[i]) for i in range(len(lengths))))
    return file


def replayed(server: Server, folder: Path, lengths: list[tuple[int, int]], gap_ms: int, *words: str) -> rundir.Run:
    """A run against the server."""
    file = trace(folder, lengths, gap_ms)
    code = goodput(["run", "--target", server.url, "--trace", str(file), "--out", str(folder / "run"), *words])
    assert code in (0, 4)  # 4 where a busy machine sends late: what is counted here does not depend on it
    return rundir.load(folder / "run")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_token_counts_are_the_servers_own(server: Server, tmp_path: Path, workers: str) -> None:
    """Prompt and output counts equal the usage it reports, and what was asked; a token each event."""
    lengths = [(10 + 17 * i, 1 + i % 24) for i in range(24)]
    rows = replayed(server, tmp_path, lengths, 30, "--workers", workers).table.rows
    assert [Outcome.OK] * len(lengths) == rows["outcome"].tolist()
    assert [prompt for prompt, _ in lengths] == rows["prompt_tokens"].tolist() == rows["served_prompt_tokens"].tolist()
    assert [output for _, output in lengths] == rows["output_tokens"].tolist()


def test_times_are_the_servers_own(server: Server, tmp_path: Path) -> None:
    """One request at a time: TTFT is its prompt_ms, and first to last token its predicted_ms, within what a network
    stack and a busy machine add.

    llama.cpp's predicted_ms counts from the first token's sampling to the last's, prompt_ms from the start of the
    request's processing; a client cannot see less than either, but for the rounding of one decode step.
    """
    lengths = [(600, 40)] * 8
    table = replayed(server, tmp_path, lengths, 600, "--max-in-flight", "1").table
    assert not np.isnan(table.rows["prefill_s"]).any()
    rows = table.rows[table.rows["token_events"] > 0]  # a random model may say nothing but a token without text
    assert len(rows) >= len(lengths) // 2
    added = ttft_from_sent_s(rows) - rows["prefill_s"]
    assert -0.002 < np.median(added) < 0.030
    spoken = rows["last_token_s"] - rows["first_token_s"]
    assert abs(np.median(spoken - rows["decode_s"])) < max(0.2 * float(np.median(rows["decode_s"])), 0.005)


def test_a_prompt_too_long_is_the_servers_refusal(server: Server, tmp_path: Path) -> None:
    """Its context is learnt before the run: a row that does not fit is left out and named, the others are sent."""
    run = replayed(server, tmp_path, [(5000, 4), (20, 4)], 10)
    assert {"exceeds_context": 1} == run.info.rejected
    assert [Outcome.OK] == run.table.rows["outcome"].tolist()

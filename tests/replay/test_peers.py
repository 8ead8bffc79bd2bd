"""The adapters of other tools' clients, on outputs recorded from each (eight requests of 20 tokens) and cut down."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest

from benchmarks import versus
from benchmarks.mock import Truth
from benchmarks.peers import PEERS, tokenizer, venvs
from benchmarks.peers.peer import Ask, Peer, Reported
from benchmarks.peers.venvs import UnavailableError

RECORDED = json.loads((Path(__file__).parent / "peers" / "recorded.json").read_text())
BY_NAME = {peer.name: peer for peer in PEERS}
SAID = {  # read off the recordings by hand
    "sglang_rust": Reported(8, 207.1578, 251.7863, 30.3982),
    "vllm_bench": Reported(8, 249.7595, 316.7144, 35.5012),
    "inference_perf": Reported(8, 209.9, 294.9, 149.2),
    "evalscope_perf": Reported(8, 167.6775, 271.6761, 30.4973),
    "genai_bench": Reported(8, 222.9772, 323.356, nan),
    "aiperf": Reported(8, 260.3486, 323.9886, 49.72),
    "guidellm": Reported(8, 220.0108, 317.0893, nan),
}


def asked(folder: Path) -> Ask:
    return Ask("http://127.0.0.1:1234", "mock", 100, 150, 16, 200, folder, folder / "words")


def recorded(peer: str, folder: Path) -> Path:
    """The files that a tool left behind, where it leaves them."""
    for name, content in RECORDED[peer].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content) + "\n")
    return folder


@pytest.mark.parametrize("name", sorted(SAID))
def test_what_a_tool_says_is_read(name: str, tmp_path: Path) -> None:
    """Requests, TTFT p50 and p99, gap p99 in milliseconds; what it does not say stays NaN."""
    found = BY_NAME[name].read(asked(recorded(name, tmp_path)), "")
    assert SAID[name] == pytest.approx(found, nan_ok=True, abs=1e-6)


@pytest.mark.parametrize("name", sorted(SAID))
def test_a_tool_that_left_no_report_is_said_to_have_left_none(name: str, tmp_path: Path) -> None:
    """One sentence, which the table then shows as the reason."""
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit, match="bench: the tool left no"):
        BY_NAME[name].read(asked(tmp_path), "")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_command_asks_for_the_streams_and_nothing_else(peer: Peer, tmp_path: Path) -> None:
    """Every adapter passes on address, streams and requests, and starts a program of the tool's own environment."""
    python = Path("/cache") / peer.name / "bin" / "python"
    line = peer.command(python, asked(tmp_path))
    written = " ".join([*line, *(path.read_text() for path in tmp_path.iterdir())])
    assert python.parent == Path(line[0]).parent
    assert "http://127.0.0.1:1234" in written
    assert 150 == written.count("0,16,200") if peer.here else "150" in written
    assert any("100" in word for word in written.replace("streams=", " ").split())


@pytest.mark.parametrize("peer", [peer for peer in PEERS if not peer.here], ids=lambda peer: peer.name)
def test_versions_are_pinned(peer: Peer) -> None:
    """Each requirement names one version, and the title names it too."""
    lines = peer.requirements.read_text().splitlines()
    assert lines
    assert all("==" in line for line in lines)
    assert any(peer.title.endswith(line.rpartition("==")[2]) for line in lines)


def test_a_tool_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """Not installed, or no Python that is new enough: a sentence for the table, nothing left behind."""
    peer = BY_NAME["inference_perf"]
    with pytest.raises(UnavailableError, match="not installed"):
        venvs.interpreter(peer, tmp_path)
    with pytest.raises(UnavailableError, match=r"it needs Python 3\.90"):
        venvs.install(replace(peer, python=(3, 90)), tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_the_tokenizer_counts_words(tmp_path: Path) -> None:
    """The folder is a Hugging Face tokenizer, in which a word is a token."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer.from_file(str(tokenizer.write(tmp_path / "words") / "tokenizer.json"))
    assert [3, 3, 7, 0] == made.encode("the the w7 nonsense").ids


def test_what_was_said_stands_beside_the_truth() -> None:
    """Two answers, 10 and 30 ms to the first token, gaps of 20 and 40 ms; they overlap; 1 ms of CPU, 5 events."""
    truth = [
        Truth(0, 200, np.array([10, 30, 50]) * 1_000_000),
        Truth(10_000_000, 200, np.array([40, 80]) * 1_000_000),
        Truth(5, 404, np.zeros(0, dtype=np.int64)),
    ]
    figures = versus.compare(0.001, 5, truth, Reported(2, 12.0, 99.0))
    assert (200.0, 2) == (figures.cpu_us_per_event, figures.peak_streams)
    assert pytest.approx(5 / 0.070) == figures.events_per_s
    assert (12.0, 20.0) == (figures.ttft_p50_ms, pytest.approx(figures.true_ttft_p50_ms))
    assert (99.0, 29.8) == (figures.ttft_p99_ms, pytest.approx(figures.true_ttft_p99_ms))
    assert isnan(figures.itl_p99_ms)
    assert 39.6 == pytest.approx(figures.true_itl_p99_ms)


def test_targets_are_shares_of_the_tools_that_ran() -> None:
    """8 us beside 20 and 100: 0.4 of the Rust client holds, 0.08 of GuideLLM holds; what did not run is not judged."""
    empty = versus.Figures(8.0, 1, *[nan] * 7)
    medians = {"ours": empty, "sglang_rust": replace(empty, cpu_us_per_event=20.0)}
    assert [("cpu_share_of.sglang_rust", 0.4, True)] == [
        (target.name, target.value, target.holds) for target in versus.targets(medians)
    ]
    medians["guidellm"] = replace(empty, cpu_us_per_event=100.0)
    assert [True, True] == [target.holds for target in versus.targets(medians)]
    assert [] == versus.targets({"guidellm": empty})

"""Everything that a command writes is on the disk before it prints its first result: a reader may go away."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.plan.planner import Planner
from metrics.plan import PlanReport
from tests.reports.test_text_search import candidate, row_of

CHEAP = "emulated:chunked,model=demo-8b"
LOAD = ["--virtual", "--requests", "30", "--rate", "5"]
SLO = ["--slo", "ttft=500ms,tpot=20ms"]
TRACE = "arrival_ns,prompt_tokens,output_tokens\n" + "".join(f"{i * i}000000000,{10 + i},5\n" for i in range(120))


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, but the locks that last as long as a command."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


class Watching(io.StringIO):
    """A stdout that notes what was on the disk when the first result reached it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.found: dict[str, bytes] | None = None

    def write(self, text: str) -> int:
        if self.found is None:
            self.found = files(self.folder)
        return super().write(text)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that other commands read."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        assert ExitCode.OK == run(["run", "--backend", CHEAP, *LOAD, *SLO, "--out", str(folder)])
    return folder


COMMANDS = {
    "run": ["run", "--backend", CHEAP, *LOAD, *SLO, "--require", "failed < 50%", "--out", "r"],
    "run --predict": ["run", "--backend", CHEAP, *LOAD, "--predict", CHEAP, "--out", "r"],
    "gate": [
        *("gate", "--baseline", CHEAP, "--candidate", CHEAP, *LOAD, *SLO, "--pairs", "1", "--on-inconclusive", "pass"),
        *("--out", "g", "--junit", "j.xml", "--summary", "s.md", "--openmetrics", "m.txt", "--annotations"),
    ],
    "compare": ["compare", CHEAP, CHEAP, *LOAD, "--pairs", "1", "--out", "c"],
    "search": ["search", "--backend", CHEAP, "--virtual", *SLO, "--rates", "2,4", "--requests", "20", "--out", "s"],
    "calibrate": ["calibrate", "--model", "llama2-70b", "--hardware", "h100", "--out", "m.json"],
    "report": ["report", "STORED", "--out", "page.html"],
    "report svg": ["report", "STORED", "--format", "svg", "--out", "figures"],
    "trace info": ["trace", "info", "trace.csv", "--html", "t.html"],
    "trace convert": ["trace", "convert", "trace.csv", "--out", "o.csv"],
    "trace sample": ["trace", "sample", "trace.csv", "4", "--out", "o.csv"],
    "trace synth": ["trace", "synth", "azure-conv", "--requests", "5", "--out", "o.csv"],
    "trace fit": ["trace", "fit", "trace.csv", "--out", "o.json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_written_after_the_first_result_was_printed(
    name: str, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`goodput ... | true` leaves the same files as without the pipe."""
    (tmp_path / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    stdout = Watching(tmp_path)
    monkeypatch.setattr(sys, "stdout", stdout)
    code = run([str(stored) if word == "STORED" else word for word in COMMANDS[name]])
    assert ExitCode.OK == code
    assert stdout.found is not None
    assert len(stdout.found) > 1
    assert files(tmp_path) == stdout.found


def test_a_plan_is_whole_before_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON, page and launch files; planning itself takes too long for this question."""
    winner = candidate("chunked", 0.5, 0.01, "emulated:chunked,model=demo-8b,instances=2")
    found = PlanReport(
        trace="azure-conv", model="demo-8b", hardware=["h100"], gpus=2, slo="ttft=1s", seed=0, command=[], designs=1,
        rows=[row_of("strict", "ttft=1s", [winner])], kv=None, flip_tpot_s=None, flip_note="", link_gbps=None,
        link_note="", waterfall=[], rule_holds=True, rule_note="",
    )  # fmt: skip
    monkeypatch.setattr(Planner, "plan", lambda *_: found)
    monkeypatch.chdir(tmp_path)
    stdout = Watching(tmp_path)
    monkeypatch.setattr(sys, "stdout", stdout)
    words = ["--gpus", "2", "--model", "demo-8b", "--out", "p.json", "--html", "p.html", "--emit", "files"]
    assert ExitCode.OK == run(["plan", "--slo", "ttft=1s,tpot=45ms", *words])
    assert stdout.found is not None
    assert {"p.json", "p.html"} < stdout.found.keys()
    assert files(tmp_path) == stdout.found

"""`goodput run --master` with `goodput worker`, each worker with a disk of its own, when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cli.main import run as goodput
from metrics import rundir
from tests.swarm.crew import Crew, end

pytestmark = pytest.mark.live


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path, seconds=1.5)
    yield made
    made.close()


def test_three_workers_offer_one_run(crew: Crew) -> None:
    """Three workers: each request once, exit 0 all over, the master's copies are the workers' journals."""
    workers = [crew.worker() for _ in range(3)]
    master = crew.master(3, drawn=True)
    assert 0 == end(master)[0]
    assert [0, 0, 0] == [end(worker)[0] for worker in workers]
    assert {"OK": crew.planned} == crew.account()
    assert crew.planned == len(crew.arrived())
    for index, folder in enumerate(sorted(crew.workers_folders(), key=lambda path: path.name)):
        assert rundir.journal_path(folder, index).read_bytes() == rundir.journal_path(crew.run, index).read_bytes()


def test_there_is_no_master(crew: Crew) -> None:
    """One sentence and exit 5."""
    worker = crew.worker(wait="1s")
    code, errors = end(worker)
    assert 5 == code
    assert "no master listens" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--master",), "--expect-workers"),
        (("--expect-workers", "2"), "is for --master"),
        (("--master", "--expect-workers", "2", "--workers", "2"), "leave --workers out"),
        (("--master", "--expect-workers", "2", "--master-bind", "nowhere"), "is not HOST:PORT"),
    ],
)
def test_contradictions_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Exit 2 and a sentence, before anything is sent or written."""
    out = tmp_path / "run"
    assert 2 == goodput(["run", "--target", "http://127.0.0.1:1", "--requests", "3", "--out", str(out), *words])
    assert said in capsys.readouterr().err
    assert not out.exists()

"""Something of ours fails in a callback of the loop: the run ends in order, with what was measured and a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metrics import rundir
from metrics.records import Outcome
from metrics.runinfo import FAULT
from tests.replay.faulty_runs import ANSWERED, CALLBACKS, ROWS
from tests.replay.player import LAST_CHUNK, Play, Player, chunk
from tests.replay.streams import DONE, HEAD, completion_event, usage_event

ROOT = Path(__file__).parents[2]
ANSWER = HEAD + chunk(completion_event(" a", "length")) + chunk(usage_event(1)) + chunk(DONE) + LAST_CHUNK


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder of all runs, and their exit codes."""
    folder = tmp_path_factory.mktemp("faults")
    row = '{{"timestamp": {}, "input_length": 5, "output_length": 1}}\n'
    (folder / "trace.jsonl").write_text("".join(row.format(30 * number) for number in range(ROWS)))
    # Each answer ends its connection, so that `connected` and `lost` are called in mid-run, too.
    with Player(lambda *_: Play([(5, ANSWER)], "close")) as player:
        done = subprocess.run(
            [sys.executable, "-m", "tests.replay.faulty_runs", player.url(), str(folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=110,
            check=True,
        )
    codes: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return folder, codes


@pytest.mark.live
@pytest.mark.parametrize("name", CALLBACKS)
def test_the_run_ends_with_its_rows_and_its_reason(name: str, runs: tuple[Path, dict[str, int]]) -> None:
    """Exit 6 says that it is our fault; every planned row once, and those answered before are kept."""
    folder, codes = runs
    run = rundir.load(folder / name)
    rows = run.table.rows
    assert list(range(ROWS)) == sorted(rows["request_id"].tolist())
    assert (rows["outcome"] == Outcome.OK).sum() >= ANSWERED
    assert not (rows["outcome"] == Outcome.LOST_WORKER).any()
    assert 6 == codes[name]
    assert "partial" == run.info.state
    assert run.info.stop_reason.startswith(FAULT)
    assert f"a fault in {name}" in run.info.stop_reason

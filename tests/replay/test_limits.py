"""Open files: raised, refused with a sentence, and the client's own fault when they run out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.limits import most_within
from tests.replay.player import Play, Player
from tests.replay.replaying import replay, schedule
from tests.replay.streams import answer_bytes

ROOT = Path(__file__).parents[2]


def in_child(files: int, code: str, *words: str) -> str:
    """Run `code` where no more than `files` files may be open."""
    start = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@given(st.lists(st.integers(0, 40).map(lambda tenths: tenths / 10), max_size=30))
def test_the_densest_second(instants: list[float]) -> None:
    """The largest count in any half-open window of one second, found by trying them all."""
    due = sorted(instants)
    brute = max((sum(start <= other < start + 1.0 for other in due) for start in due), default=0)
    assert brute == most_within(schedule(due))


def test_a_schedule_that_needs_more_files_than_there_are_is_refused() -> None:
    """Before the start, in one sentence with both numbers; a cap or more workers make it fit."""
    code = """
from loadtest.errors import UsageError
from loadtest.replay.limits import require_files
from tests.replay.replaying import replay, schedule
burst = schedule([0.0] * 500)
require_files(burst, 1, 100)
require_files(burst, 5, None)
try:
    require_files(burst, 1, None)
except UsageError as error:
    print(error.code, error.message, error.hint)
"""
    said = in_child(256, code)
    assert said.startswith("fd_limit 500 requests")
    assert "256 files" in said
    assert "ulimit -n" in said


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    """Whoever starts us with the usual 1,024 gets what the system grants."""
    code = """
import resource
from loadtest.replay.limits import raise_fd_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
print(raise_fd_limit())
"""
    assert "300" == in_child(300, code).strip()


def test_running_out_of_files_is_the_clients_fault() -> None:
    """Requests for which no socket could be had were not sent, and the run is invalid; the others go through."""
    code = """
import json, sys
from tests.replay.replaying import findings, replay, schedule
done = replay(sys.argv[1], schedule([0.0] * 60), lead_s=0.3, keep_text=False)
outcomes = [done.outcome(i) for i in range(60)]
found = findings(done)["schedule_not_offered"]
unsent = outcomes.index("not_sent")
print(json.dumps([sorted(set(outcomes)), outcomes.count("not_sent"), done.error(unsent), found.level,
                  found.evidence["count"], done.progress.sent]))
"""
    with Player(lambda *_: Play([(500, answer_bytes([" a"]))])) as player:
        kinds, unsent, text, level, count, sent = json.loads(in_child(48, code, player.url()))
    assert ["not_sent", "ok"] == kinds
    assert (unsent, 60 - unsent, "invalid") == (count, sent, level)
    assert "no connection could be opened here" in text


def test_three_hundred_streams_at_once() -> None:
    """No pool is a hidden cap: the 300th request leaves before the first one is answered."""
    streams = 300
    with Player(lambda *_: Play([(1500, answer_bytes([" a"]))])) as player:
        done = replay(player.url(), schedule([0.0] * streams), lead_s=1.0)
    assert {"ok"} == {done.outcome(row) for row in range(streams)}
    assert done.rows["sent_s"].max() < done.rows["first_token_s"].min()
    assert 0 == done.rows["client_queue_s"].max()
    assert streams == len({received.connection for received in player.received})

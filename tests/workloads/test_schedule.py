"""`Schedule`: the plan of a run, split without loss, stored without change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import salts, seeds, traces
from workloads.errors import WorkloadError
from workloads.schedule import Schedule, Think, plan
from workloads.trace import Trace


def columns(schedule: Schedule) -> Iterator[list[object]]:
    for name in (
        "request_id",
        "scheduled_s",
        "prompt_tokens",
        "max_tokens",
        "session",
        "slo_class",
        "warmup",
        "think_s",
    ):
        yield getattr(schedule, name).tolist()
    yield [schedule.blocks(row) for row in range(len(schedule))]
    yield [schedule.seed, schedule.salt, schedule.trace_name, schedule.trace_hash]


def simple(arrival_s: list[float], session: list[int] | None = None) -> Schedule:
    rows = len(arrival_s)
    trace = Trace(
        "t",
        np.rint(np.array(arrival_s) * 1e9),
        np.arange(1, rows + 1),
        np.arange(11, rows + 11),
        session=None if session is None else np.array(session),
    )
    return plan(trace, seed=3, salt="ab", warmup_s=1.0)


def test_plan() -> None:
    """A row per request in order; warm-up is what is due before its end."""
    schedule = simple([0, 0.5, 1.0, 2.0])
    assert [0, 1, 2, 3] == schedule.request_id.tolist()
    assert [0, 0.5, 1.0, 2.0] == schedule.scheduled_s.tolist()
    assert [11, 12, 13, 14] == schedule.max_tokens.tolist()
    assert [True, True, False, False] == schedule.warmup.tolist()
    assert [-1] * 4 == schedule.session.tolist()
    assert (4, 2.0, 1.5) == (len(schedule), schedule.duration_s, schedule.offered_rate_per_s)


def test_burst_has_no_rate() -> None:
    """All at once: no offered rate, no division by zero."""
    assert (0.0, None) == (simple([0, 0, 0]).duration_s, simple([0, 0, 0]).offered_rate_per_s)


@given(traces(), st.integers(1, 9))
def test_shards_partition_the_schedule(trace: Trace, workers: int) -> None:
    """Every request is on exactly one worker, in order, and a session is never split."""
    schedule = plan(trace, seed=1, salt="ab")
    shards = [schedule.shard(worker, workers) for worker in range(workers)]
    ids = [shard.request_id.tolist() for shard in shards]
    assert list(range(len(trace))) == sorted(i for shard in ids for i in shard)
    assert all(shard == sorted(shard) for shard in ids)
    owners: dict[int, set[int]] = {}
    for worker, shard in enumerate(shards):
        for session in shard.session.tolist():
            owners.setdefault(session, set()).add(worker)
        for row, request in enumerate(shard.request_id.tolist()):
            assert schedule.scheduled_s[request] == shard.scheduled_s[row]
            assert schedule.blocks(request) == shard.blocks(row)
    assert all(len(workers) == 1 for session, workers in owners.items() if session >= 0)


def test_shards_are_even() -> None:
    """Requests without sessions are dealt out in turn; sessions by their first request."""
    assert [0, 2, 4] == simple([0, 1, 2, 3, 4]).shard(0, 2).request_id.tolist()
    schedule = simple([0, 1, 2, 3, 4, 5], session=[80, 40, 80, -1, 40, 20])
    assert [0, 2, 3] == schedule.shard(0, 2).request_id.tolist()
    assert [1, 4, 5] == schedule.shard(1, 2).request_id.tolist()


def test_more_workers_than_requests() -> None:
    """The surplus workers get an empty part."""
    assert [1, 1, 0] == [len(simple([0, 1]).shard(worker, 3)) for worker in range(3)]
    with pytest.raises(WorkloadError):
        simple([0]).shard(3, 3)


@given(trace=traces(), seed=seeds, salt=salts)
def test_a_stored_schedule_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace, seed: int, salt: str
) -> None:
    """save and load change nothing, and equal schedules are equal files."""
    path = tmp_path_factory.mktemp("schedule") / "schedule.npz"
    schedule = plan(trace, seed=seed, salt=salt, warmup_s=1.0)
    schedule.save(path)
    loaded = Schedule.load(path)
    assert list(columns(schedule)) == list(columns(loaded))
    assert schedule.recipe_hash == loaded.recipe_hash
    first = path.read_bytes()
    loaded.save(path)
    assert first == path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 torn"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """What is no schedule is named, not half loaded."""
    path = tmp_path / "schedule.npz"
    path.write_bytes(content)
    with pytest.raises(WorkloadError) as caught:
        Schedule.load(path)
    assert caught.value.code == "schedule"


def test_another_npz_is_refused(tmp_path: Path) -> None:
    """An .npz of other arrays, of pickles too, is no schedule."""
    for name, values in (("other", np.arange(3)), ("request_id", np.array([{}], dtype=object))):
        np.savez(tmp_path / "schedule.npz", **{name: values})
        with pytest.raises(WorkloadError):
            Schedule.load(tmp_path / "schedule.npz")


def test_recipe_hash() -> None:
    """The salt does not change the recipe; arrivals, lengths and the seed do."""
    schedule = simple([0, 1])
    assert schedule.recipe_hash == replace(schedule, salt="cd").recipe_hash
    for change in ({"seed": 4}, {"scheduled_s": np.array([0, 2.0])}, {"max_tokens": np.array([1, 1])}):
        assert schedule.recipe_hash != replace(schedule, **change).recipe_hash  # type: ignore[arg-type]


def test_slices_are_views() -> None:
    """A slice of a large plan copies nothing."""
    schedule = simple([0, 1, 2, 3])
    part = schedule.rows(slice(1, 3))
    assert [1, 2] == part.request_id.tolist()
    assert np.shares_memory(schedule.scheduled_s, part.scheduled_s)


def waiting(mean_s: float | None) -> Schedule:
    trace = Trace(
        "t",
        np.array([0, 1, 2, 3, 5, 9]) * 10**9,
        np.arange(1, 7),
        np.arange(11, 17),
        session=np.array([4, -1, 4, 7, 4, 7]),
    )
    return plan(trace, seed=3, salt="ab", warmup_s=2.5, think=Think(mean_s, np.random.default_rng(1)))


def test_later_turns_wait() -> None:
    """First turns and lone requests have instants; later ones wait for the row before in their session."""
    schedule = waiting(None)
    assert [False, False, True, False, True, True] == schedule.waits.tolist()
    assert [2, -1, 4, 5, -1, -1] == schedule.next_turn.tolist()
    assert [0, 0, 2, 0, 3, 6] == schedule.think_s.tolist()
    assert [True, True, True, False, False, False] == schedule.warmup.tolist()
    assert (3.0, None) == (schedule.duration_s, schedule.offered_rate_per_s)


def test_thinking_is_drawn_around_its_mean() -> None:
    """Exponential, only before later turns, 0 for a user who never thinks."""
    drawn = waiting(5.0).think_s
    assert [True, True, False, True, False, False] == (drawn == 0).tolist()
    assert [0.0] * 6 == waiting(0.0).think_s.tolist()


def test_waiting_turns_stay_with_their_session(tmp_path: Path) -> None:
    """A shard finds the next turn among its own rows, and a stored schedule is the same again."""
    schedule = waiting(None)
    shards = [schedule.shard(worker, 2) for worker in range(2)]
    following = {
        int(shard.request_id[row]): int(shard.request_id[later])
        for shard in shards
        for row, later in enumerate(shard.next_turn.tolist())
        if later >= 0
    }
    assert {0: 2, 2: 4, 3: 5} == following
    schedule.save(tmp_path / "s.npz")
    again = Schedule.load(tmp_path / "s.npz")
    assert schedule.recipe_hash == again.recipe_hash
    assert [True] * 6 == ((again.scheduled_s == schedule.scheduled_s) | schedule.waits).tolist()


def test_no_sessions_to_wait_in() -> None:
    """Asked to wait where nothing waits."""
    with pytest.raises(WorkloadError) as caught:
        plan(
            Trace("t", np.array([0]), np.array([1]), np.array([1])),
            seed=1,
            salt="",
            think=Think(1.0, np.random.default_rng(1)),
        )
    assert "no_sessions" == caught.value.code

"""What --trace, --rate, --speed, --duration and --requests select together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.workload import Workload, fresh_salt, rejections
from workloads.errors import WorkloadError


@pytest.fixture
def ten(tmp_path: Path) -> str:
    """Ten requests, one each two seconds: 0.5 per second over 18 s; the last one is long."""
    path = tmp_path / "ten.jsonl"
    row = '{{"timestamp": {}, "input_length": {}, "output_length": 5}}\n'
    path.write_text("".join(row.format(2000 * i, 10_000 if i == 9 else 10) for i in range(10)))
    return str(path)


def arrivals(trace: str, **asked: Any) -> list[float]:
    read: list[float] = (Workload(trace=trace, **asked).read().arrival_ns / 1e9).tolist()
    return read


def test_a_file_as_it_is(ten: str) -> None:
    """Nothing asked: every row at its recorded time."""
    assert [2.0 * i for i in range(10)] == arrivals(ten)


def test_the_first_seconds_of_a_file(ten: str) -> None:
    """--duration takes the rows before it, end exclusive."""
    assert [0.0, 2.0, 4.0] == arrivals(ten, duration_s=6.0)


def test_speed_comes_before_duration(ten: str) -> None:
    """Twice as fast for 6 s: the rows of the first 12 s of the file."""
    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] == arrivals(ten, speed=2.0, duration_s=6.0)


def test_a_rate_is_exact_and_the_duration_is_that_of_the_run(ten: str) -> None:
    """2/s for 3 s is 6 requests whose (n-1)/span is exactly 2/s."""
    found = arrivals(ten, rate_per_s=2.0, duration_s=3.0)
    assert 6 == len(found)
    assert 2.0 == pytest.approx((len(found) - 1) / found[-1])


def test_requests_bound_the_rest(ten: str) -> None:
    """--requests takes the first rows, before the rate is made exact."""
    assert [0.0, 2.0, 4.0] == arrivals(ten, requests=3)
    assert [0.0, 0.25, 0.5] == arrivals(ten, requests=3, rate_per_s=4.0)


def test_a_built_in_workload_is_generated_to_measure() -> None:
    """Rate times duration requests at exactly that rate; the seed decides all of it."""
    asked = {"rate_per_s": 4.0, "duration_s": 30.0}
    first = Workload(trace="azure-conv", seed=3, **asked).read()
    assert 120 == len(first)
    assert 4.0 == pytest.approx(first.mean_rate_per_s)
    assert first.content_hash == Workload(trace="azure-conv", seed=3, **asked).read().content_hash
    assert first.content_hash != Workload(trace="azure-conv", seed=4, **asked).read().content_hash


def test_a_built_in_workload_at_speed() -> None:
    """Twice as fast for 30 s: 60 s of the original's traffic in half the time."""
    slow = Workload(trace="azure-code", duration_s=60.0).read()
    fast = Workload(trace="azure-code", duration_s=30.0, speed=2.0).read()
    assert len(slow) == len(fast)
    np.testing.assert_allclose(slow.arrival_ns / 2, fast.arrival_ns, atol=1)


def test_rows_beyond_the_context_are_left_out_and_counted(ten: str) -> None:
    """The rate stays exact without them."""
    trace = Workload(trace=ten, rate_per_s=1.0).read(max_tokens=100)
    assert 9 == len(trace)
    assert 1.0 == pytest.approx(trace.mean_rate_per_s)
    assert {"exceeds_context": 1} == rejections(trace)


def test_a_context_nothing_fits_into(ten: str) -> None:
    """Says so under a code of its own: the command makes it the target's error."""
    with pytest.raises(WorkloadError) as caught:
        Workload(trace=ten).read(max_tokens=5)
    assert "exceeds_context" == caught.value.code


@pytest.mark.parametrize(
    "asked",
    [
        {"rate_per_s": 0.0},
        {"rate_per_s": -1.0},
        {"rate_per_s": float("nan")},
        {"speed": 0.0},
        {"duration_s": 0.0},
        {"requests": 0},
        {"rate_per_s": 1.0, "speed": 2.0},
    ],
)
def test_what_cannot_be_replayed_is_refused(asked: dict[str, Any]) -> None:
    """Before any file is read."""
    with pytest.raises(UsageError):
        Workload(trace="azure-conv", **asked)


def test_an_unknown_trace_names_the_built_in_ones() -> None:
    """Neither a file nor a name."""
    with pytest.raises(UsageError, match="azure-conv"):
        Workload(trace="azure-con").read()


def test_a_warm_up_must_leave_something(ten: str) -> None:
    """A warm-up as long as the schedule would measure nothing."""
    workload = Workload(trace=ten, warmup_s=18.0)
    with pytest.raises(UsageError, match="warm-up"):
        workload.schedule(workload.read())


def test_salts_are_fresh_unless_given(ten: str) -> None:
    """Two runs never share prompts by accident; --salt repeats them."""
    assert fresh_salt() != fresh_salt()
    workload = Workload(trace=ten, salt="00ff")
    assert "00ff" == workload.schedule(workload.read()).salt

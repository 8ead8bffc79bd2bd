"""What --trace, --rate, --speed, --duration and --requests select together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.fetch import cache_folder
from loadtest.workload import Workload, fresh_salt, rejections
from workloads import model
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


def test_a_duration_that_leaves_next_to_nothing(tmp_path: Path) -> None:
    """The first of a hundred rows, because the others come later: said before anything is sent."""
    path = tmp_path / "t.csv"
    path.write_text(
        "arrival_ns,prompt_tokens,output_tokens\n0,5,6\n" + "".join(f"{i}000000000000,5,6\n" for i in range(1, 100))
    )
    trace = Workload(trace=str(path), duration_s=60.0).read()
    assert (1, ["few_requests"]) == (len(trace), [found.code for found in Workload(trace="x").findings(trace)])
    assert "1 of 100 rows" in trace.warnings[-1]
    assert () == Workload(trace=str(path), duration_s=60_000.0).read().warnings


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


def test_steps_come_before_the_rate(ten: str) -> None:
    """--shape works on the trace, --requests and --rate on what it leaves; chance comes from the seed."""
    assert [0.0, 0.5, 1.0] == arrivals(ten, shape=("window=4s+8s", "head=3"), rate_per_s=2.0)
    assert 30 == len(arrivals(ten, shape=("repeat=3",)))
    drawn = [arrivals(ten, shape=("sample=4",), seed=seed) for seed in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert len({tuple(one) for one in drawn}) > 1


def test_other_arrivals(ten: str) -> None:
    """A process at exactly the rate for the duration; one with its own rates takes none and is cut by the duration."""
    found = arrivals(ten, arrivals="poisson", rate_per_s=2.0, duration_s=3.0)
    assert (6, 2.0) == (len(found), pytest.approx(5 / found[-1]))
    assert [0.0, 0.25, 0.5] == arrivals(ten, arrivals="constant", rate_per_s=4.0, requests=3)
    assert max(arrivals(ten, arrivals="steps:1@60s", duration_s=5.0)) < 5.0
    for clash in ({"rate_per_s": 1.0}, {"speed": 2.0}):
        with pytest.raises((UsageError, WorkloadError)):
            arrivals(ten, arrivals="ramp:1..2", **clash)


def test_lengths_need_arrivals(tmp_path: Path) -> None:
    """A length-only file says so, and works with a process and a rate."""
    path = tmp_path / "l.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n" + "5,5,10,1\n" * 4)
    with pytest.raises(UsageError) as caught:
        arrivals(str(path), rate_per_s=2.0)
    assert "no_arrivals" == caught.value.code
    assert [0.0, 0.5, 1.0, 1.5] == arrivals(str(path), arrivals="constant", rate_per_s=2.0)


def test_a_short_trace_says_so(ten: str) -> None:
    """Ten requests cannot last 60 s at 1/s."""
    trace = Workload(trace=ten, rate_per_s=1.0, duration_s=60.0).read()
    assert ["short_trace"] == [word.split(":")[0] for word in trace.warnings]
    assert "repeat" in trace.warnings[0]


def test_a_model_file(tmp_path: Path) -> None:
    """A fitted model is generated from like a built-in workload."""
    path = tmp_path / "mine.json"
    path.write_bytes(model.encode(model.builtin("azure-code")))
    asked = {"rate_per_s": 4.0, "duration_s": 30.0, "seed": 5}
    assert arrivals("azure-code", **asked) == arrivals(str(path), **asked)


def test_a_catalogue_trace(ten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name once it has been fetched; before, the command that fetches it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        arrivals("mooncake-conversation")
    assert ("not_fetched", "goodput trace fetch mooncake-conversation") == (caught.value.code, caught.value.hint)
    file = cache_folder() / "mooncake-conversation.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(Path(ten).read_bytes())
    assert 10 == len(arrivals("mooncake-conversation"))


def test_a_log_of_ones_own(tmp_path: Path) -> None:
    """--columns and --format reach the reader."""
    path = tmp_path / "log.csv"
    path.write_text("when,p,o,kind\n1,5,5,a\n2,6,6,b\n")
    trace = Workload(trace=str(path), columns="time=when,unit=s,prompt=p,output=o,class=kind").read()
    assert trace.slo_class is not None
    assert [0, 1] == trace.slo_class.tolist()
    with pytest.raises(WorkloadError):
        Workload(trace=str(path), format="azure-csv").read()


def test_zero_tokens(tmp_path: Path) -> None:
    """Dropped and counted, or replayed as 1 and counted."""
    path = tmp_path / "z.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,0\n1,5,5\n")
    dropped, clamped = (Workload(trace=str(path), zero_tokens=policy).read() for policy in ("drop", "clamp"))
    assert {"output_tokens<1": 1} == rejections(dropped)
    assert ([1, 5], ["clamped"]) == (clamped.output_tokens.tolist(), [word.split(":")[0] for word in clamped.warnings])


def test_thinking(tmp_path: Path) -> None:
    """Later turns wait in the schedule; the seed decides for how long."""
    path = tmp_path / "s.csv"
    path.write_text("arrival_ns,prompt_tokens,output_tokens,session\n0,5,5,1\n1000000000,5,5,1\n2000000000,5,5,\n")
    schedules = [
        workload.schedule(workload.read())
        for workload in (
            Workload(trace=str(path), think=think, seed=seed) for think, seed in (("recorded", 0), ("5", 0), ("5", 0))
        )
    ]
    assert [False, True, False] == schedules[0].waits.tolist()
    assert [0.0, 1.0, 0.0] == schedules[0].think_s.tolist()
    assert schedules[1].think_s.tolist() == schedules[2].think_s.tolist()


def test_findings(ten: str) -> None:
    """What is suspicious is known before a request is sent; notes of the reader are warnings already."""
    workload = Workload(trace=ten)
    assert [] == workload.findings(workload.read())
    assert ["not_sendable"] == [found.code for found in workload.findings(workload.read(), 100)]


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


def test_what_a_run_says_of_its_trace(tmp_path: Path) -> None:
    """How the file was read, what was left out, and each thing to know once; nothing of a generated one's file."""
    path = tmp_path / "t.csv"
    rows = "".join(f"2026-09-10 09:00:{i:02},{50 + i},5\n" for i in range(20))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1970-01-01 00:00:00,9,9\n" + rows)
    workload = Workload(trace=str(path))
    told = workload.facts(workload.read())
    assert ("azure-csv", "date and time") == (told["trace_reading"]["format"], told["trace_reading"]["time_unit"])
    assert {"far_in_time": 1} == told["rejected"]
    assert ["far_in_time", "rejected"] == [warning.partition(":")[0] for warning in told["warnings"]]
    built_in = Workload(trace="azure-conv", requests=20)
    assert {} == built_in.facts(built_in.read())["trace_reading"]

"""Runs on the virtual clock: same numbers, same requests; early ends that change no verdict."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import asdict

from loadtest.deployment import Deployment
from loadtest.search import Search, VirtualRuns, Windows
from loadtest.search.virtual import run_length
from loadtest.search.windows import at_once, without_edges
from metrics.objective import parse_objective
from metrics.search import Attempt, SearchRow, extrapolation
from metrics.slo import SLO

CHUNKED = Deployment.parse("emulated:chunked")
SLO_ = SLO(ttft_s=1.0, tpot_s=0.045)


def test_a_run_is_at_exactly_its_rate_and_its_edges_do_not_count() -> None:
    """The first fifth and the last twentieth by arrival."""
    schedule = without_edges(Windows("azure-conv").trace(3, 2.5, 400))
    assert pytest.approx(2.5) == schedule.offered_rate_per_s
    counted = np.flatnonzero(~schedule.warmup)
    assert (80, 379, 300) == (counted[0], counted[-1], len(counted))


def test_equal_numbers_give_equal_requests_at_every_rate() -> None:
    """Lengths are the same, times are scaled; another number gives others."""
    windows = Windows("azure-conv", seed=5)
    slow, fast, other = windows.trace(1, 1.0, 200), windows.trace(1, 4.0, 200), windows.trace(2, 1.0, 200)
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert np.allclose(slow.arrival_ns / 4, fast.arrival_ns, atol=1)


def test_a_file_gives_windows_of_consecutive_rows(tmp_path: object) -> None:
    """Each number another one; a file with fewer rows is used whole."""
    path = f"{tmp_path}/trace.csv"
    with open(path, "w") as file:
        file.write("arrived_at,num_prefill_tokens,num_decode_tokens\n")
        file.writelines(f"{i * 0.5},{100 + i},{20}\n" for i in range(300))
    windows = Windows(path)
    firsts = set()
    for number in range(6):
        tokens = windows.trace(number, 3.0, 50).prompt_tokens
        assert (50, [1] * 49) == (len(tokens), np.diff(tokens).tolist())
        firsts.add(int(tokens[0]))
    assert len(firsts) > 3
    assert 300 == len(windows.trace(0, 3.0, 500))


def test_rows_beyond_the_context_are_left_out() -> None:
    """They would be refused at any rate."""
    trace = Windows("azure-conv", max_tokens=2000).trace(0, 2.0, 500)
    assert 2000 >= int((trace.prompt_tokens + trace.output_tokens).max())
    assert pytest.approx(2.0) == trace.mean_rate_per_s


@pytest.mark.parametrize(("rate", "median_s", "requests"), [(1.0, 0.0, 500), (10.0, 5.0, 1000), (100.0, 9.0, 18_000)])
def test_runs_have_500_requests_and_last_20_of_the_median(rate: float, median_s: float, requests: int) -> None:
    """At most 20,000."""
    assert requests == run_length(rate, median_s)
    assert 20_000 == run_length(1000.0, 9.0)


def test_the_first_run_of_a_fast_fleet_is_long_enough() -> None:
    """8B, median request 1,020 tokens in and 129 out: 27 ms + 129 x 9.6 ms = 1.27 s alone, so 2,540 at 100/s."""
    runs = VirtualRuns(Deployment.parse("emulated:chunked,model=demo-8b,instances=8"), "azure-conv", SLO(ttft_s=1.0))
    assert 2_540 == pytest.approx(runs(100.0, 0).requests, rel=0.1)


@pytest.mark.parametrize("rate", [1.5, 2.0, 2.3, 2.6, 3.2, 5.0])
@pytest.mark.parametrize("slo", ["ttft=1s,tpot=45ms", "ttft=200ms", "e2e=8s,share=80%"])
def test_ending_a_lost_run_early_changes_no_verdict(rate: float, slo: str) -> None:
    """A run is cut exactly when the whole run fails, and then it costs less."""
    first, second = (VirtualRuns(CHUNKED, "azure-conv", parse_objective(slo), least_requests=200) for _ in range(2))
    whole, cut = first(rate, 7), second.bracketing(rate, 7)
    fails = not all(limit.met for limit in whole.limits)
    assert fails == cut.aborted
    if fails:
        assert cut.good >= whole.good
        assert cut.requests <= whole.requests
        assert cut.seconds < whole.seconds
    else:
        assert whole == cut


def test_the_same_seed_gives_the_same_answer_to_the_last_digit() -> None:
    """And another seed another one."""
    found = [Search(VirtualRuns(CHUNKED, "azure-conv", SLO_, seed=seed), 0.9).run(1.5, 6).goodput for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_what_binds_is_named() -> None:
    """The prefill pool is the bottleneck of one deployment, so TTFT binds; TPOT binds where decodes are slow."""
    prefill = Deployment.parse("emulated:disaggregated,prefill=1,decode=3")
    tight = VirtualRuns(prefill, "azure-conv", SLO.parse("ttft=300ms,tpot=100ms"))
    assert "ttft" == Search(tight, 0.9).run(4.0, 6).binding
    assert "tpot" == Search(VirtualRuns(CHUNKED, "azure-conv", SLO_), 0.9).run(2.0, 6).binding


def test_where_the_server_tells_each_phase_is_kept() -> None:
    """The hand-off of a disaggregated server is a phase of its own."""
    phases = VirtualRuns(Deployment.parse("emulated:disaggregated"), "azure-conv", SLO_)(3.0, 0).phases_p90_s
    assert {"queue_s", "prefill_s", "transfer_s"} == phases.keys()
    assert phases["transfer_s"] > 0


def test_at_once_keeps_everything_but_the_times() -> None:
    """All arrive at zero."""
    trace = Windows("azure-conv").trace(0, 1.0, 50)
    assert ([0] * 50, trace.prompt_tokens.tolist()) == (
        at_once(trace).arrival_ns.tolist(),
        at_once(trace).prompt_tokens.tolist(),
    )


def test_time_outside_the_calibration_is_said() -> None:
    """On a GPU that nobody measured all of it, on a measured one within its range none (N17)."""
    for hardware, share in (("h100", 0.0), ("h200", 1.0)):
        runs = VirtualRuns(Deployment.parse(f"emulated:chunked,hardware={hardware}"), "azure-conv", SLO_)
        found = runs(1.0, 0)
        assert share == found.extrapolated
        row = SearchRow(
            label="a", deployment="", gpus=8, attempts=[Attempt(**asdict(found), rate_per_s=1.0, purpose="fit")]
        )
        assert (["a: 100.0 % of the simulated time"] if share else []) == [
            line.partition(" lay")[0] for line in extrapolation([row])
        ]

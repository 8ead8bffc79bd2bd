"""Findings about a run's soundness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metrics.records import NO_KERNEL_STAMP, EventTimes, Flag, Outcome, Rows, StampSource
from metrics.slo import SLO
from metrics.stamps import stamp_uncertainty_s
from metrics.validity import Validity, assess, lag_limit_s
from tests.metrics.rows import ok_rows, ragged, run_of

TARGETS = SLO(ttft_s=1.0, tpot_s=0.05)


def codes(rows: Rows, events: EventTimes | None = None, slo: SLO | None = TARGETS, **info: Any) -> dict[str, str]:
    return {f.code: f.level for f in assess(run_of(rows, events, **info), slo).findings}


def verdict(rows: Rows, **info: Any) -> str:
    return assess(run_of(rows, **info), TARGETS).verdict


def test_a_clean_run_is_valid() -> None:
    """Nothing to say: no finding."""
    validity = assess(run_of(ok_rows([0.1] * 50), ragged([[1000, 21000]] * 50)), TARGETS)
    assert ("valid", []) == (validity.verdict, validity.findings)
    assert validity.client_queue_s is None


@pytest.mark.parametrize(
    ("slo", "limit_s"),
    [(None, 0.02), (SLO(tpot_s=0.05), 0.02), (SLO(ttft_s=1.0), 0.02), (SLO(ttft_s=0.1), 0.01)],
)
def test_allowed_lag_follows_the_ttft_target(slo: SLO | None, limit_s: float) -> None:
    """10 % of the TTFT target, at most 20 ms."""
    assert pytest.approx(limit_s) == lag_limit_s(slo)


def test_late_sends_are_the_clients_fault() -> None:
    """p99 lag of 30 ms invalidates; 19 ms does not; a wait under the cap is only a warning."""
    late = ok_rows([0.1] * 100)
    late["sent_s"] += 0.03
    assert {"limited_by_client": "invalid"} == codes(late)
    late["sent_s"] -= 0.011
    assert {} == codes(late)
    capped = ok_rows([5.0] * 100, client_queue_s=3.0)
    capped["sent_s"] += 3.0
    assert {"not_open_loop": "warning"} == codes(capped)


@pytest.mark.parametrize(
    ("lags_us", "whose"),
    [
        ([100, 100], {"buffered_stream"}),  # fresh when they were found
        ([2_000, 8_000], set()),  # 5 ms old in the mean, where tokens are 10 ms apart
        ([NO_KERNEL_STAMP] * 2, {"buffered_stream"}),  # nobody knows how old
    ],
)
def test_who_reads_late_does_not_blame_the_way(lags_us: list[int], whose: set[str]) -> None:
    """Four tokens each 40 ms, in one read: the way held them up where the client found them fresh."""
    rows = ok_rows([0.1] * 10, loop_lag_max_us=8_000.0, flags=Flag.BUFFERED | Flag.COALESCED)
    events = ragged([[100_000 + 40_000 * (i // 4) for i in range(8)]] * 10)
    events.lag_us[:] = np.repeat(np.array(lags_us * 10, dtype=np.uint16), 4)
    assert whose == set(codes(rows, events, slo=SLO(ttft_s=1.0)))


def test_a_loop_that_reads_late_is_the_clients_fault() -> None:
    """Two tokens 25 ms apart in one read of a lagging loop: half the token times are wrong by up to a gap."""
    rows = ok_rows([0.1] * 10, loop_lag_max_us=24_000.0)
    events = ragged([[100_000, 150_000, 150_000, 200_000, 200_000]] * 10, lag_us=100)
    assert {"limited_by_client": "invalid"} == codes(rows, events)
    assert {} == codes(rows, events, slo=SLO(ttft_s=1.0))


def test_a_server_that_sends_tokens_together_is_not_the_clients_fault() -> None:
    """Shared reads while the loop was never late: a warning about buffering, not an invalid run."""
    rows = ok_rows([0.1] * 10, loop_lag_max_us=200.0, flags=Flag.BUFFERED | Flag.COALESCED)
    events = ragged([[100_000, 150_000, 150_000, 200_000, 200_000]] * 10, lag_us=100)
    assert {"buffered_stream": "warning"} == codes(rows, events)


def test_stamp_uncertainty_by_hand() -> None:
    """Kernel-stamped and alone: 0. User-stamped: the worst lag. Sharing a read: a gap, within the lag if known."""
    rows = ok_rows([0.1, 0.1], loop_lag_max_us=[3000.0, 0.0], stamp_source=[StampSource.MIXED, StampSource.USER])
    events = ragged([[1000, 11_000, 11_000, 12_000], [2000, 2000, 7000, 7000, 7000]])
    events.lag_us[:] = [0, 0, 0, NO_KERNEL_STAMP] + [NO_KERNEL_STAMP] * 5
    expected = [0, 0.003, 0, 0.003, 0.002, 0, 0.005, 0.005, 0]
    assert pytest.approx(expected) == stamp_uncertainty_s(rows, events).tolist()
    rows["stamp_source"] = StampSource.SIMULATED
    assert [0] * 9 == stamp_uncertainty_s(rows, events).tolist()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.LOST_WORKER, "worker_lost"),
        (Outcome.NOT_SENT, "schedule_not_offered"),
        (Outcome.SKIPPED_LATE, "schedule_not_offered"),
    ],
)
def test_a_schedule_not_offered_is_invalid(outcome: Outcome, code: str) -> None:
    """Never a green report over the survivors; the evidence says how many and from when."""
    rows = ok_rows([0.1] * 4)
    rows["outcome"][2:] = outcome
    findings = assess(run_of(rows), TARGETS).findings
    assert [(code, "invalid")] == [(f.code, f.level) for f in findings]
    assert {"count": 2, "share": 0.5, "first_scheduled_s": 2.0} == findings[0].evidence


def test_failures_of_the_server_never_invalidate() -> None:
    """Every request failed: a warning about the server, not about the measurement."""
    rows = ok_rows([0.1] * 10, outcome=Outcome.HTTP_ERROR, http_status=500)
    assert {"failures": "warning"} == codes(rows)
    assert "warning" == verdict(rows)


def test_answers_in_one_piece_are_invalid_unless_no_token_time_is_asked_for() -> None:
    """Without first-token times a TTFT target cannot be judged; an E2E target can."""
    rows = ok_rows([0.1] * 3, flags=Flag.NOT_STREAMED)
    assert {"ttft_not_measurable": "invalid"} == codes(rows)
    assert {"ttft_not_measurable": "invalid"} == codes(rows, slo=None)
    assert {} == codes(rows, slo=SLO(e2e_s=1.0))


def test_some_answers_in_one_piece_are_not_good_and_decide_or_not() -> None:
    """One of twenty leaves 95 %: a warning; three leave 85 % of what could be 100: nobody knows."""
    rows = ok_rows([0.1] * 20)
    rows["flags"][:1] |= np.uint32(Flag.NOT_STREAMED)
    assert {"unmeasurable": "warning"} == codes(rows)
    assert {"ttft_not_measurable": "warning"} == codes(rows, slo=None)
    rows["flags"][:3] |= np.uint32(Flag.NOT_STREAMED)
    assert {"unmeasurable": "invalid"} == codes(rows)
    found = assess(run_of(rows), TARGETS).findings[0]
    assert {"count": 3, "share": 0.15, "ttft": 3, "tpot": 3} == found.evidence
    rows["first_token_s"][3:8] += 1.0  # five are late for certain: missed either way
    assert "warning" == codes(rows)["unmeasurable"]


def test_all_tokens_in_one_read_leave_tpot_unknown() -> None:
    """A proxy that buffers everything gets no praise for its token times; TTFT alone is judged."""
    rows = ok_rows([0.1] * 5)
    rows["last_token_s"] = rows["first_token_s"]
    assert {"tpot_not_measurable": "invalid"} == codes(rows)
    assert {} == codes(rows, slo=SLO(ttft_s=1.0))


def test_requests_that_a_stop_cut_off_are_told_with_both_bounds() -> None:
    """Two of ten, above 1 %: none or all of them good."""
    rows = ok_rows([0.1] * 10)
    rows["outcome"][8:] = Outcome.INTERRUPTED
    assert {"partial": "warning", "undecided": "warning"} == codes(rows, stopped_at_s=10.0)
    found = assess(run_of(rows, stopped_at_s=10.0), TARGETS).findings
    told = next(finding for finding in found if finding.code == "undecided")
    assert {"count": 2, "share": 0.2, "lowest_share": 0.8, "highest_share": 1.0} == told.evidence
    assert "80.0 %" in told.message


@pytest.mark.parametrize(
    ("columns", "info", "code"),
    [
        ({"flags": Flag.SHORT_OUTPUT}, {}, "short_outputs"),
        ({"flags": Flag.TOKENS_ESTIMATED}, {}, "estimated_tokens"),
        ({"prompt_tokens": 100, "served_prompt_tokens": 103}, {}, "prompt_count_mismatch"),
        ({}, {"server": {"prefix_cache_hits": 512}}, "prefix_cache"),
        ({}, {"server": {"extrapolated_share": 0.2}}, "extrapolated_model"),
        ({}, {"stopped_at_s": 5.0}, "partial"),
    ],
)
def test_warnings(columns: dict[str, Any], info: dict[str, Any], code: str) -> None:
    """Valid, but to be read first."""
    rows = ok_rows([0.1] * 10, **columns)
    assert {code: "warning"} == codes(rows, **info)
    assert "warning" == verdict(rows, **info)


def test_unspoken_prompt_counts_and_a_few_template_tokens_are_no_mismatch() -> None:
    """-1 means the server did not say; under 1 % is a chat template."""
    assert {} == codes(ok_rows([0.1] * 3, prompt_tokens=100))
    assert {} == codes(ok_rows([0.1] * 3, prompt_tokens=2000, served_prompt_tokens=2010))


def test_a_cold_start_shows_in_the_first_answer() -> None:
    """One first TTFT far above nearly all others; a growing queue is none."""
    assert {"cold_start": "warning"} == codes(ok_rows([0.9] + [0.1] * 30))
    assert {} == codes(ok_rows(np.linspace(0.1, 0.9, 31).tolist()))


def test_a_cold_start_shows_in_the_first_answer_of_each_length() -> None:
    """Five lengths, a compilation each: 5 s five times in 30 answers is over a tenth of all, so no p90 tells them."""
    lengths = np.repeat([64, 128, 256, 512, 1024], 6)
    ttft_s = np.where(np.arange(30) % 6 == 0, 5.0, 0.1)
    assert {"cold_start": "warning"} == codes(ok_rows(ttft_s.tolist(), prompt_tokens=lengths))
    ttft_s[[0, 6, 12]] = 0.1  # only two of five lengths, and long prompts may well be slow
    assert {} == codes(ok_rows((ttft_s + lengths / 1e3).tolist(), prompt_tokens=lengths))


def test_warm_up_rows_are_not_held_against_the_run() -> None:
    """A late send during warm-up is what warm-up is for."""
    rows = ok_rows([0.1] * 10, warmup=[True] * 5 + [False] * 5)
    rows["sent_s"][:5] += 1.0
    assert {} == codes(rows)
    assert {"no_requests": "invalid"} == codes(ok_rows([0.1], warmup=True))


def test_rows_due_after_a_stop_are_not_missing() -> None:
    """The user stopped at 5 s: later rows were not due, earlier ones count."""
    rows = ok_rows([0.1] * 10)
    rows["outcome"][5:] = Outcome.NOT_SENT
    assert {"partial": "warning"} == codes(rows, stopped_at_s=5.0)
    assert "invalid" == verdict(rows)


def test_client_figures_are_shares_of_reads() -> None:
    """Kernel-stamped and coalesced reads, and the loop's lag over stamped events."""
    rows = ok_rows([0.1, 0.1], reads=[8, 2], kernel_reads=[9, 0], coalesced_reads=[1, 0])
    events = ragged([[1, 2], [3]], lag_us=250)
    events.lag_us[2] = NO_KERNEL_STAMP
    validity: Validity = assess(run_of(rows, events), None)
    assert (0.9, 0.1) == (validity.kernel_stamped_share, validity.coalesced_share)
    assert validity.loop_lag_s is not None
    assert (2, 0.00025) == (validity.loop_lag_s.n, validity.loop_lag_s.max)

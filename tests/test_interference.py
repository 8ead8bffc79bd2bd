"""The benchmark that shows what a long prompt does to running decodes: its arithmetic on a made run."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.interference import DECODES, Rounds, _targets, measured
from metrics.records import EventTimes, Outcome, RecordTable, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo


def one_round(outcome: Outcome = Outcome.OK) -> Run:
    """Four decodes with a token every 10 ms from 0.1 s, silent from 0.6 to 0.9 s; a prompt sent at 0.55 s speaks at
    0.85 s."""
    rows = empty_rows(DECODES + 1)
    rows["outcome"] = Outcome.OK
    rows["outcome"][0] = outcome
    rows["sent_s"] = [0.0] * DECODES + [0.55]
    decode_us = [*range(100_000, 600_001, 10_000), *range(900_000, 1_000_001, 10_000)]
    events = [*decode_us * DECODES, 300_000, 310_000]
    start = np.array([*(len(decode_us) * row for row in range(DECODES + 1)), len(events)])
    ones = np.ones(len(events), dtype=np.uint16)
    table = RecordTable(rows, EventTimes(start, np.array(events, dtype=np.uint32), ones, ones))
    return Run(RunInfo(name="made", gpus=2), table)


def test_a_stall_is_told_from_quiet_gaps() -> None:
    """Gaps before the prompt was sent: 10 ms; the worst while it waited for its first token: 300 ms, 30 times that."""
    found = measured(one_round(), rounds=1)
    assert (10.0, 300.0, 300.0) == pytest.approx((found.quiet_p50, found.worst, found.ttft))
    assert pytest.approx(30.0) == found.ratio
    assert 2 == found.cores


def test_a_request_without_an_answer_is_no_measurement() -> None:
    """One of the decodes failed: nothing is said of the others."""
    with pytest.raises(SystemExit, match="not every request"):
        measured(one_round(Outcome.TIMEOUT), rounds=1)


def test_the_direction_is_judged_by_name() -> None:
    """Chunked 10 over colocated 60 holds; disaggregated 20 over chunked 10 does not."""
    ratios = {"vllm-disaggregated": 20.0, "vllm-colocated": 60.0, "vllm-chunked": 10.0}
    targets = _targets({name: Rounds(1.0, ratio, 1.0, 1, "valid") for name, ratio in ratios.items()})
    assert [True, False] == [target.holds for target in targets]
    assert pytest.approx([1 / 6, 2.0]) == [target.value for target in targets]

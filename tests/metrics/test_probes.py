"""Client against server: which lines there are, and whose figures stand in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from metrics.probes import METRICS, PROBES, Probes, compare, load
from metrics.records import EventTimes, Outcome, RecordTable, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo


def a_run() -> Run:
    """Two answered requests, TTFT 100 and 300 ms from sent, and one that failed."""
    rows = empty_rows(3)
    rows["outcome"] = [Outcome.OK, Outcome.OK, Outcome.TIMEOUT]
    rows["scheduled_s"] = rows["sent_s"] = [0.0, 1.0, 2.0]
    rows["first_token_s"] = [0.1, 1.3, np.nan]
    rows["last_token_s"] = [0.2, 1.4, np.nan]
    rows["done_s"] = [0.2, 1.4, 9.0]
    rows["token_events"] = [2, 2, 0]
    rows["prompt_tokens"], rows["output_tokens"] = [10, 20, 40], [2, 2, 0]
    return Run(RunInfo(), RecordTable(rows, EventTimes.empty(3)))


def test_only_what_somebody_tells() -> None:
    """A pool without a figure has None; a quantity that no pool tells has no line; failed requests are not counted."""
    values = np.full((4, len(METRICS)), np.nan)
    values[:2, METRICS.index("prompt_tokens")] = [5.0, 35.0]
    values[2:, METRICS.index("ttft_sum")] = [1.0, 1.3]
    values[2:, METRICS.index("ttft_count")] = [4.0, 6.0]
    probes = Probes(np.arange(4.0), np.array([0, 0, 1, 1]), values, ["prefill", "decode"])
    lines = {line.quantity: line for line in compare(a_run(), probes)}
    assert {"TTFT, mean", "prompt tokens"} == lines.keys()
    assert {"prefill": 30.0, "decode": None} == lines["prompt tokens"].servers
    assert 30.0 == lines["prompt tokens"].client
    ttft = lines["TTFT, mean"]
    assert ttft.servers["prefill"] is None
    np.testing.assert_allclose([0.2, 0.15], [ttft.client or 0, ttft.servers["decode"] or 0])


def test_what_an_older_version_did_not_ask_for_was_not_told(tmp_path: Path) -> None:
    """Samples of two metrics, in an order of their own; all others are unknown."""
    columns = {"at_s": np.arange(2.0), "source": np.zeros(2, np.int64), "values": np.array([[3.0, 10.0], [4.0, 20.0]])}
    np.savez(tmp_path / PROBES, **columns, sources=np.array(["server"]), metrics=np.array(["running", "prompt_tokens"]))
    probes = load(tmp_path)
    assert probes is not None
    assert (4.0, 10.0, None) == (probes.peak(0, "running"), probes.grown(0, "prompt_tokens"), probes.mean_s(0, "e2e"))


def test_the_fullest_engine_is_a_line_of_its_own() -> None:
    """Where a page speaks for several engines the mean hides the fullest; of one engine there is nothing to add."""
    values = np.full((2, len(METRICS)), np.nan)
    values[:, METRICS.index("kv_usage")] = 0.5, 0.6
    values[:, METRICS.index("kv_usage_highest")] = 0.9, 0.62
    told = Probes(np.arange(2.0), np.zeros(2, dtype=np.int64), values, ["server"])
    shares = {line.quantity: line.servers for line in compare(a_run(), told)}
    assert {"KV cache used, peak": {"server": 0.6}, "KV cache used, fullest engine": {"server": 0.9}} == shares
    values[:, METRICS.index("kv_usage_highest")] = 0.5, 0.6
    assert ["KV cache used, peak"] == [line.quantity for line in compare(a_run(), told)]

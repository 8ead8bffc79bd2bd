"""Metrics pages: what they say in our names, and a child that samples them beside a run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadtest import clock
from loadtest.cli.main import run as goodput
from loadtest.errors import UsageError
from loadtest.probe import NAMES, Probing, Source, page_values, sources_of
from loadtest.supervise import Server
from metrics import probes as stored
from metrics.probes import METRICS, Probes

VLLM = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b}c"} 3.0
vllm:num_requests_running{engine="1",model_name="x"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0"} 1.5
vllm:time_to_first_token_seconds_count{engine="0"} 6.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001"} 0.0
vllm:kv_cache_usage_perc{engine="0"} NaN
vllm:num_preemptions_created{engine="0"} 1.7e+09
vllm:num_preemptions_total{engine="0"} 1.2e1 1700000000000
broken line
"""


def test_a_page_in_our_names() -> None:
    """Engines are added up; NaN, other metrics and damaged lines are no values; a time stamp behind one is none."""
    expected = {"running": 5.0, "ttft_sum": 1.5, "ttft_count": 6.0, "preemptions": 12.0}
    assert expected == page_values(VLLM)


def test_llama_cpps_page() -> None:
    """Its names, without labels."""
    assert {"running": 1.0, "waiting": 4.0} == page_values(
        "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"
    )


def test_every_name_has_a_column() -> None:
    """What is read can be stored."""
    columns = {name.removesuffix("_sum").removesuffix("_count") for name in METRICS}
    assert columns == set(NAMES)


@pytest.mark.parametrize(
    ("text", "pool", "url"),
    [
        ("http://h:1/metrics", "server", "http://h:1/metrics"),
        ("http://h:1", "server", "http://h:1/metrics"),
        ("prefill=http://h:1/m?a=b", "prefill", "http://h:1/m?a=b"),
        ("http://h:1/m?a=b", "server", "http://h:1/m?a=b"),
    ],
)
def test_sources(text: str, pool: str, url: str) -> None:
    """With and without a pool's name, with and without a path."""
    assert Source(pool, url) == Source.parse(text)


@pytest.mark.parametrize("text", ["ftp://h/m", "prefill=", "http://a,http://b"])
def test_bad_sources(text: str) -> None:
    """No URL, or two pages of one name."""
    with pytest.raises(UsageError):
        sources_of([text])


def some_probes() -> Probes:
    values = np.full((3, len(METRICS)), np.nan)
    for row, (total, count, running) in enumerate([(1.0, 10, 2), (4.0, 30, 9), (5.0, 30, 1)]):
        values[row, METRICS.index("ttft_sum")] = total
        values[row, METRICS.index("ttft_count")] = count
        values[row, METRICS.index("running")] = running
    return Probes(np.arange(3.0), np.zeros(3, dtype=np.int64), values, ["server"])


def test_growth_mean_and_peak() -> None:
    """(5 - 1) s over (30 - 10) requests; the highest gauge; None for what no page tells."""
    told = some_probes()
    assert 0.2 == told.mean_s(0, "ttft")
    assert 9.0 == told.peak(0, "running")
    assert told.grown(0, "preemptions") is None
    assert told.mean_s(0, "queue") is None


def test_probes_come_back_from_the_disk(tmp_path: Path) -> None:
    """probes.npz holds all of it; a run without one has none."""
    assert stored.load(tmp_path) is None
    stored.save(tmp_path, some_probes())
    again = stored.load(tmp_path)
    assert again is not None
    assert ["server"] == again.sources
    np.testing.assert_array_equal(some_probes().values, again.values)


@pytest.mark.live
def test_a_page_that_is_not_there_ends_nothing(tmp_path: Path) -> None:
    """Gaps in the samples, one line in the log, no error."""
    with Probing([Source("server", "http://127.0.0.1:1/metrics")], tmp_path) as probe:
        pass
    told = probe.stop(clock.monotonic_ns())
    assert 0 == len(told.at_s)
    assert 1 == (tmp_path / "probe.log").read_text().count("server: http://127.0.0.1:1/metrics: ")


@pytest.mark.live
def test_client_against_server(tmp_path: Path) -> None:
    """Our emulated server: token counts equal the records', its TTFT is below the client's, samples lie on the run's
    clock, and the raw file is gone."""
    from loadtest.backends.server import command

    row = '{{"timestamp": {}, "input_length": {}, "output_length": 10}}\n'
    (tmp_path / "trace.jsonl").write_text("".join(row.format(50 * i, 100 + 100 * i) for i in range(20)))
    with Server(command("emulated:chunked,model=demo-8b"), log=tmp_path / "s.log") as server:
        words = ["--trace", str(tmp_path / "trace.jsonl"), "--metrics-url", server.url]
        code = goodput(["run", "--target", server.url, *words, "--out", str(tmp_path / "run")])
    assert code in (0, 4)  # 4 where a busy machine sends late
    table = {line["quantity"]: line for line in json.loads((tmp_path / "run" / "server.json").read_bytes())}
    for quantity in ("prompt tokens", "output tokens"):
        assert table[quantity]["client"] == table[quantity]["servers"]["server"] > 0
    ttft = table["TTFT, mean"]
    assert 0 < ttft["servers"]["server"] <= ttft["client"]
    told = stored.load(tmp_path / "run")
    assert told is not None
    assert -60 < told.at_s[0] < 0 < told.at_s[-1]
    assert math.isfinite(told.values[-1, METRICS.index("running")])
    assert not (tmp_path / "run" / "probes.jsonl").exists()


def test_the_child_needs_no_heavy_library() -> None:
    """It starts beside a load: no gevent, locust or aiohttp in it."""
    code = "import sys, loadtest.probe; print({'gevent', 'locust', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set()" == done.stdout.strip()

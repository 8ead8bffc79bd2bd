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
from loadtest.probe import Probing, Source, sources_of
from loadtest.supervise import Server
from metrics import probes as stored
from metrics.probes import METRICS, Probes


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


@pytest.mark.parametrize("text", ["ftp://h/m", "prefill=", "http://a,http://b", "http://user:word@h/metrics"])
def test_bad_sources(text: str) -> None:
    """No URL, two pages of one name, or a password that would be recorded."""
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


def test_a_counter_that_falls_began_anew() -> None:
    """10, 30, then a restarted server's 5, 25: (30 - 10) before and 25 after; its mean is over both lives."""
    values = np.full((4, len(METRICS)), np.nan)
    values[:, METRICS.index("prompt_tokens")] = values[:, METRICS.index("ttft_count")] = [10, 30, 5, 25]
    values[:, METRICS.index("ttft_sum")] = [1, 2, 0.5, 3.5]
    told = Probes(np.arange(4.0), np.zeros(4, dtype=np.int64), values, ["server"])
    assert 45.0 == told.grown(0, "prompt_tokens")
    assert 4.5 / 45.0 == told.mean_s(0, "ttft")


# Pages that a server, a proxy or a typing error may come up with.
PAGES = """
import http.server, socketserver, sys, time
GOOD = b"vllm:num_requests_running 3\\n"
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind = self.path[1:]
        moved = {"moved": "/good", "loop": "/loop", "https": "https://h/m"}.get(kind)
        self.send_response(307 if moved else 500 if kind == "error" else 200)
        if moved: self.send_header("Location", moved)
        if kind == "half": self.send_header("Content-Length", "5000")
        self.end_headers()
        if kind == "slow":
            while True: self.wfile.write(b"#"); time.sleep(0.1)
        if kind == "mute": time.sleep(100)
        self.wfile.write({"html": b"<html>", "huge": b"#" * (9 << 20) + GOOD}.get(kind, GOOD))
    def log_message(self, *_): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    def handle_error(self, *_): pass
server = Server(("127.0.0.1", 0), Page)
print('{"ready": true, "url": "http://127.0.0.1:%d"}' % server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.live
def test_no_page_holds_up_another(tmp_path: Path) -> None:
    """A slow page, a mute one and six kinds of bad ones: each is named with its reason, the good ones are sampled."""
    bad = {
        "slow": "not complete within 2 s",
        "mute": "timed out",
        "html": "none of the metrics that are known",
        "huge": "larger than 8 MiB",
        "half": "IncompleteRead",
        "error": "status 500",
        "loop": "redirected again and again",
        "https": "https://h/m, which is not http",
    }
    with Server([sys.executable, "-c", PAGES], log=tmp_path / "pages.log") as pages:
        sources = [Source(kind, f"{pages.url}/{kind}") for kind in (*bad, "good", "moved")]
        with Probing(sources, tmp_path) as probe:
            pass
        told = probe.stop(clock.monotonic_ns())
    assert bad.keys() == set(told.silent)
    for pool in ("good", "moved"):
        assert 3.0 == told.peak(told.sources.index(pool), "running")
    log = (tmp_path / "probe.log").read_text()
    for kind, why in bad.items():
        assert 1 == log.count(f"{kind}: http://")
        line = next(line for line in log.splitlines() if line.startswith(f"{kind}: "))
        assert why in line


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

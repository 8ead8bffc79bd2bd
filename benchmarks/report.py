"""What a report costs: building it from 10^4, 10^5 and 10^6 requests, its size, and the time until it is drawn.

The runs are synthetic (a queue, a decode loop, a token event per output token up to a limit), so that reading a run
directory is not part of it. Rendering is timed in headless Chromium where there is one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from metrics.bins import bins
from metrics.records import EventTimes, Outcome, RecordTable, StampSource, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.summary import summarise
from reports.page import PageData, RunView, render_html
from reports.static import vega_bundle

SIZES = (10_000, 100_000, 1_000_000)
TARGETS = SLO(ttft_s=0.5, tpot_s=0.05)
RATE_PER_S = 200.0
TOKENS = 20  # a million requests have 20 million token events
MB = 1e6
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@dataclass
class Cost:
    """One size: seconds to aggregate and to write the page, its megabytes, seconds until it is drawn."""

    requests: int
    aggregate_s: float
    page_s: float
    size_mb: float
    drawn_s: float | None


def run_of(requests: int, seed: int = 1) -> Run:
    """A run whose prompts queue and whose token gaps have a tail."""
    rng = np.random.default_rng(seed)
    rows = empty_rows(requests)
    due = np.cumsum(rng.exponential(1 / RATE_PER_S, requests))
    tokens = rng.integers(TOKENS // 2, TOKENS * 3 // 2, requests)
    rows["scheduled_s"] = due
    rows["sent_s"] = due + rng.gamma(2.0, 1e-4, requests)
    rows["prompt_tokens"] = rows["served_prompt_tokens"] = np.clip(rng.lognormal(6.6, 1.0, requests), 20, 8000)
    rows["max_tokens"] = rows["output_tokens"] = rows["token_events"] = tokens
    start = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
    gaps = rng.gamma(20.0, 1.5e3, start[-1])
    gaps[start[:-1]] = rng.gamma(2.0, 1.2e5, requests)
    us = np.cumsum(gaps)
    us -= np.repeat(np.concatenate([[0.0], us[start[1:-1] - 1]]), tokens)
    events = EventTimes(
        start, us.astype(np.uint32), np.ones(len(us), np.uint16), rng.integers(5, 60, len(us)).astype(np.uint16)
    )
    rows["first_token_s"] = rows["sent_s"] + events.us[start[:-1]] / 1e6
    rows["last_token_s"] = rows["sent_s"] + events.us[start[1:] - 1] / 1e6
    rows["done_s"] = rows["last_token_s"] + 2e-4
    rows["outcome"], rows["http_status"], rows["worker"] = Outcome.OK, 200, 0
    rows["stamp_source"], rows["reads"], rows["kernel_reads"] = StampSource.KERNEL, tokens, tokens
    info = RunInfo(state="complete", name="synthetic", requests=requests, slo=str(TARGETS), gpus=8)
    return Run(info, RecordTable(rows, events))


def cost_of(requests: int, folder: Path) -> Cost:
    """Aggregate, write, draw."""
    run = run_of(requests)
    begun = clock.monotonic_ns()
    view = RunView(label="synthetic", summary=summarise(run, TARGETS), bins=bins(run, TARGETS))
    aggregated = clock.monotonic_ns()
    html = render_html(PageData(title="synthetic", runs=[view]))
    written = clock.monotonic_ns()
    path = folder / f"{requests}.html"
    path.write_text(html, encoding="utf-8")
    return Cost(
        requests,
        (aggregated - begun) / 1e9,
        (written - aggregated) / 1e9,
        path.stat().st_size / MB,
        drawn_s(path),
    )


def drawn_s(path: Path) -> float | None:
    """Seconds from navigation until the first chart is drawn and two frames have passed; None without a browser."""
    if CHROMIUM is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.goto(path.as_uri(), wait_until="commit")
        page.wait_for_selector(".chart[data-drawn=yes]", state="attached", timeout=60_000)
        moment: Any = page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
            "() => done(performance.now()))))"
        )
        browser.close()
    return float(moment) / 1e3


def main() -> int:
    """Measure every size, judge the largest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="*", default=list(SIZES))
    sizes = parser.parse_args().requests
    begun = clock.monotonic_ns()
    vega_bundle()
    say(f"chart script ready in {(clock.monotonic_ns() - begun) / 1e9:.2f} s")
    with tempfile.TemporaryDirectory(prefix="goodput-report-") as name:
        costs = [cost_of(requests, Path(name)) for requests in sizes]
    for cost in costs:
        drawn = "not measured" if cost.drawn_s is None else f"{cost.drawn_s:.2f} s"
        say(
            f"{cost.requests:>9,} requests: aggregated in {cost.aggregate_s:.2f} s, page in {cost.page_s:.2f} s, "
            f"{cost.size_mb:.2f} MB, drawn after {drawn}"
        )
    largest = costs[-1]
    return conclude(
        "report",
        [
            Target("built", largest.aggregate_s + largest.page_s, 10.0, "s"),
            Target("size", max(cost.size_mb for cost in costs), 1.6, "MB"),
            Target("first_render", largest.drawn_s, 2.0, "s"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())

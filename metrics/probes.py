"""`probes.npz`: what the server's own metrics pages said during a run, and the client's figures beside the server's.

at_s     seconds on the run's clock, one per sample
source   index into `sources` (the pools that were asked), one per sample
values   samples x metrics, NaN where a page does not tell
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.archive import Column, damaged, load_columns, save_columns
from metrics.latency import client_lag_s, counted, e2e_s, is_ok, select, ttft_from_sent_s
from metrics.rundir import Run
from metrics.sound import MOST_SECONDS
from metrics.stats import defined

PROBES = "probes.npz"
HISTOGRAMS = ("ttft", "queue", "prefill", "transfer", "decode_pending", "decode", "e2e")
GAUGES = ("running", "waiting", "kv_usage", "kv_usage_highest")
COUNTERS = (
    *("preemptions", "prefix_hits", "prompt_tokens", "output_tokens", "transferred_bytes"),
    *(f"{name}{suffix}" for name in HISTOGRAMS for suffix in ("_sum", "_count")),
)
METRICS = (*GAUGES, *COUNTERS)


@dataclass(eq=False)
class Probes:
    """Samples of one or several metrics pages."""

    at_s: NDArray[np.float64]
    source: NDArray[np.int64]
    values: NDArray[np.float64]
    sources: list[str]

    def of(self, source: int, metric: str) -> NDArray[np.float64]:
        """One pool's defined samples of one metric, in order of time."""
        return defined(self.values[self.source == source, METRICS.index(metric)])

    @property
    def silent(self) -> list[str]:
        """Pools without any value."""
        told = {int(source) for source in self.source[~np.isnan(self.values).all(axis=1)]}
        return [pool for number, pool in enumerate(self.sources) if number not in told]

    def grown(self, source: int, metric: str) -> float | None:
        """How much a counter grew during the run; None when the page does not tell.

        One that falls began anew, with its server: what it had reached before counts too.
        """
        told = self.of(source, metric)
        if len(told) < 2:
            return None
        reached = told[:-1][np.diff(told) < 0].sum()
        return float(told[-1] - told[0] + reached)

    def mean_s(self, source: int, histogram: str) -> float | None:
        """Mean of what a histogram took in during the run; None when that was nothing."""
        total, count = self.grown(source, f"{histogram}_sum"), self.grown(source, f"{histogram}_count")
        return None if total is None or not count else total / count

    def peak(self, source: int, metric: str) -> float | None:
        """Highest sample of a gauge."""
        told = self.of(source, metric)
        return float(told.max()) if len(told) else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: what the client saw, and what each pool says of itself; None where nobody knows."""

    quantity: str
    unit: str
    client: float | None
    servers: dict[str, float | None]


def save(directory: Path, probes: Probes) -> None:
    """Write probes.npz."""
    save_columns(
        directory / PROBES,
        {
            "at_s": probes.at_s,
            "source": probes.source,
            "values": probes.values,
            "sources": np.array(probes.sources),
            "metrics": np.array(METRICS),
        },
    )


def load(directory: Path) -> Probes | None:
    """Read probes.npz; None when the run has none."""
    file = directory / PROBES
    if not file.exists():
        return None
    stored = load_columns(file)
    if wrong := _wrong(stored):
        raise damaged(file, wrong)
    # A metric that an older version did not ask for is one that no page told.
    columns = {str(name): number for number, name in enumerate(stored["metrics"])}
    values = np.full((len(stored["at_s"]), len(METRICS)), np.nan)
    known = [name for name in METRICS if name in columns]
    values[:, [METRICS.index(name) for name in known]] = stored["values"][:, [columns[name] for name in known]]
    values[~np.isfinite(values)] = np.nan
    at_s, source = stored["at_s"].astype(np.float64), stored["source"].astype(np.int64)
    return Probes(at_s, source, values, [str(name) for name in stored["sources"]])


def _wrong(stored: Mapping[str, Column]) -> str:
    """What does not fit together in a file of samples; empty when it does."""
    if missing := {"at_s", "source", "values", "sources", "metrics"} - set(stored):
        return f"it lacks {', '.join(sorted(missing))}"
    kinds = "".join(stored[name].dtype.kind for name in ("at_s", "source", "values", "sources", "metrics"))
    samples, sources, metrics = (stored[name].shape for name in ("at_s", "sources", "metrics"))
    if kinds != "fifUU" or not len(samples) == len(sources) == len(metrics) == 1:
        return "its columns are of another kind"
    if stored["source"].shape != samples or stored["values"].shape != samples + metrics:
        return "its columns have different lengths"
    source, at_s = stored["source"].astype(np.int64), stored["at_s"].astype(np.float64)
    if not ((source >= 0) & (source < sources[0])).all() or not (np.abs(at_s) <= MOST_SECONDS).all():
        return "its samples are of no page, or of no time"
    return ""


def compare(run: Run, probes: Probes) -> list[Comparison]:
    """Client against server, the lines that at least one pool can fill; the client's times are from `sent`.

    In a disaggregated deployment no pool's TTFT is the client's: the prefill pool does not see the hand-off.
    """
    rows = run.table.rows
    ok = select(rows, counted(rows, None) & is_ok(rows))
    spans = {name: _mean(ok[f"{name}_s"]) for name in ("queue", "prefill", "transfer", "decode")}
    sources = range(len(probes.sources))
    lines = [
        ("TTFT, mean", "s", _mean(ttft_from_sent_s(ok)), [probes.mean_s(i, "ttft") for i in sources]),
        ("queue time, mean", "s", spans["queue"], [probes.mean_s(i, "queue") for i in sources]),
        ("prefill time, mean", "s", spans["prefill"], [probes.mean_s(i, "prefill") for i in sources]),
        ("KV transfer time, mean", "s", spans["transfer"], [probes.mean_s(i, "transfer") for i in sources]),
        ("until decode begins, mean", "s", None, [probes.mean_s(i, "decode_pending") for i in sources]),
        ("decode time, mean", "s", spans["decode"], [probes.mean_s(i, "decode") for i in sources]),
        ("end to end, mean", "s", _mean(e2e_s(ok) - client_lag_s(ok)), [probes.mean_s(i, "e2e") for i in sources]),
        ("prompt tokens", "", float(ok["prompt_tokens"].sum()), [probes.grown(i, "prompt_tokens") for i in sources]),
        ("output tokens", "", float(ok["output_tokens"].sum()), [probes.grown(i, "output_tokens") for i in sources]),
        ("prefix cache hits", "tokens", None, [probes.grown(i, "prefix_hits") for i in sources]),
        ("preemptions", "", None, [probes.grown(i, "preemptions") for i in sources]),
        ("KV transferred", "bytes", None, [probes.grown(i, "transferred_bytes") for i in sources]),
        ("requests running, peak", "", None, [probes.peak(i, "running") for i in sources]),
        ("requests waiting, peak", "", None, [probes.peak(i, "waiting") for i in sources]),
        ("KV cache used, peak", "share", None, [probes.peak(i, "kv_usage") for i in sources]),
        ("KV cache used, fullest engine", "share", None, [_fullest(probes, i) for i in sources]),
    ]
    return [
        Comparison(quantity=name, unit=unit, client=client, servers=dict(zip(probes.sources, told, strict=True)))
        for name, unit, client, told in lines
        if any(value is not None for value in told)
    ]


def _fullest(probes: Probes, source: int) -> float | None:
    """Highest share of one engine, where a page speaks for several: their mean hides it."""
    highest = probes.peak(source, "kv_usage_highest")
    return None if highest == probes.peak(source, "kv_usage") else highest


def _mean(values: NDArray[np.float64]) -> float | None:
    known = defined(values)
    return float(known.mean()) if len(known) else None

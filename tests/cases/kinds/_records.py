"""What the cases of several kinds share: record files become journals, journals a run, the run its figures.

Nothing is computed here that the product computes: rows go through its journal, its merge and its summary.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metrics import latency
from metrics.bins import table_bins
from metrics.journal import JournalContents, JournalWriter, read_journal
from metrics.judge import Verdict, judge_rows
from metrics.latency import counted
from metrics.merge import merge
from metrics.rates import peak_tokens_per_s
from metrics.records import RECORD_DTYPE, Flag, Outcome, RecordTable, Rows, WorkerStats, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import QUANTITIES, SLO, attain, good_rows
from metrics.stats import Stat, defined, describe, nearest_rank
from metrics.summary import Summary, summarise
from tests.golden import differences

COMMENTS = {"why", "note", "tolerance"}
QUANTITY: dict[str, Callable[[Rows], Any]] = {
    **QUANTITIES,
    "ttft_from_sent": latency.ttft_from_sent_s,
    "late": latency.client_lag_s,
    "client_lag": latency.client_lag_s,
    "client_queue": lambda rows: rows["client_queue_s"],
}
_TIMES = {"end_s": "done_s"} | {name: name for name in RECORD_DTYPE.names or () if name.endswith("_s")}
_COUNTS = ("prompt_tokens", "served_prompt_tokens", "max_tokens", "output_tokens", "hidden_tokens", "token_events")
_WHOLE = ("session", "slo_class", "attempts", "reconnects", "reads", "kernel_reads", "coalesced_reads")


@dataclass
class RecordFile:
    """One file of records: the lines that are records, and how many are torn."""

    records: list[dict[str, Any]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def read_records(path: Path) -> RecordFile:
    """Read a JSON-lines file; a line that is no whole object is torn."""
    file = RecordFile()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if isinstance(record, dict):
            file.records.append(record)
        else:
            file.torn.append(line)
    return file


def to_rows(records: list[dict[str, Any]], warmup_s: float = 0.0) -> Rows:
    """Rows of the product from a case's records."""
    rows = empty_rows(len(records))
    for i, record in enumerate(records):
        _fill(rows[i : i + 1], record, i, warmup_s)
    return rows


def _fill(row: Rows, record: dict[str, Any], position: int, warmup_s: float) -> None:
    row["request_id"] = record.get("id", position)
    row["worker"] = record.get("worker", 0)
    for key, column in _TIMES.items():
        if record.get(key) is not None:
            row[column] = record[key]
    for column in (*_COUNTS, *_WHOLE):
        if record.get(column) is not None:
            row[column] = record[column]
    row["warmup"] = record.get("warmup", record.get("scheduled_s", 0.0) < warmup_s)
    outcome, status = _outcome(record)
    row["outcome"], row["http_status"] = outcome, status
    flags = Flag(0)
    for name in record.get("flags", []):
        flags |= Flag[name.upper()]
    untimed = record.get("first_token_s") is None and (record.get("output_tokens") or 0) > 0
    if outcome == Outcome.OK and (record.get("stream") is False or untimed):
        flags |= Flag.NOT_STREAMED
    row["flags"] = flags


def _outcome(record: dict[str, Any]) -> tuple[Outcome, int]:
    name = record.get("outcome", "ok")
    if name == "error":
        name = record.get("error_class", "connection_lost")
    status = re.fullmatch(r"http_(\d+)", name)
    return (Outcome.HTTP_ERROR, int(status[1])) if status else (Outcome[name.upper()], 0)


def journal(
    folder: Path, worker: int, file: RecordFile, rows: Rows, events: dict[int, Any] | None = None
) -> JournalContents:
    """Send a worker's rows through a real journal; torn lines leave it torn and without an end."""
    path = folder / f"records-{worker}.bin"
    writer = JournalWriter(path, worker)
    for row, record in zip(rows, file.records, strict=True):
        times, tokens = (events or {}).get(int(row["request_id"]), ([], []))
        us = np.array([round((t - row["sent_s"]) * 1e6) for t in times], dtype=np.uint32)
        writer.record(
            row, us.tobytes(), np.array(tokens, dtype=np.uint16).tobytes(), bytes(2 * len(us)), record.get("error", "")
        )
    writer.stats(WorkerStats(worker=worker))
    if file.torn:
        writer.record(empty_rows(1)[0])
        writer.flush()
        whole = path.read_bytes()
        writer.close()
        path.write_bytes(whole[:-5])
    writer.close()
    return read_journal(path)


def merged(
    journals: Iterable[tuple[int, RecordFile, Rows]], planned: Rows, events: dict[int, Any] | None = None
) -> RecordTable:
    """One table from all workers, as the product makes it after a run."""
    with tempfile.TemporaryDirectory() as folder:
        return merge([journal(Path(folder), *each, events) for each in journals], planned)


def slo_of(options: dict[str, Any]) -> SLO | None:
    """The objectives of a case's options; None when it has none."""
    limits = {f"{q}_s": options[f"{q}_s"] for q in QUANTITIES if options.get(f"{q}_s") is not None}
    share = options.get("target_attainment", options.get("share", 0.9))
    return SLO(**limits, share=share) if limits else None


class Figures:
    """Every figure a case may ask for, by the case's own name for it."""

    def __init__(self, table: RecordTable, options: dict[str, Any]) -> None:
        self.options = options
        self.slo = slo_of(options)
        self.run = Run(RunInfo(state="complete", gpus=options.get("gpus"), requests=len(table)), table)
        self.rows = table.rows[counted(table.rows)]

    @cached_property
    def summary(self) -> Summary:
        return summarise(self.run, self.slo)

    def check(self, expected: dict[str, Any]) -> None:
        """Compare every expected value; a key nobody knows is a failure, never a pass."""
        for key, value in expected.items():
            if key not in COMMENTS:
                got = self.value(key, value)
                assert same(value, got), f"{key}: expected {value!r}, got {got!r}"

    def value(self, key: str, expected: Any) -> Any:
        named = getattr(self, f"_{key}", None)
        if named is not None:
            return named()
        peak = re.fullmatch(r"peak_tokens_per_s(?:_(\d+(?:\.\d+)?)s_window)?", key)
        if peak:
            return self._peak(float(peak[1]) if peak[1] else self.options.get("window_s", 1.0))
        over = re.fullmatch(r"([a-z_]+?)_(?:count_over|over)_(\d+(?:\.\d+)?)(ms|s)(?:_count)?", key)
        if over and over[1] in QUANTITY:
            limit = float(over[2]) / (1e3 if over[3] == "ms" else 1)
            return int((QUANTITY[over[1]](self.rows) > limit + 1e-9).sum())
        match = re.fullmatch(r"([a-z0-9_]+?)_(attainment|samples|mean|min|max|sum|p\d+|percentiles_\w+)(_s|_ms)?", key)
        if match and (match[1] in QUANTITY or match[1] in ("itl", "token_gap")):
            return self._of_quantity(match[1], match[2], 1e3 if match[3] == "_ms" else 1.0, expected)
        per_row = re.fullmatch(r"([a-z_]+?)(_s|_ms)", key)
        if per_row and per_row[1] in QUANTITY and isinstance(expected, list):
            scale = 1e3 if per_row[2] == "_ms" else 1.0
            return [None if math.isnan(x) else float(x) * scale for x in QUANTITY[per_row[1]](self.run.table.rows)]
        raise AssertionError(f"this kind does not know the figure {key!r}")

    def _of_quantity(self, name: str, statistic: str, scale: float, expected: Any) -> Any:
        if statistic == "attainment":
            assert self.slo is not None, "an attainment needs objectives"
            return None if self._attained.share is None else self._attained.marginals[name]
        sample = self._sample(name)
        if statistic == "percentiles_linear":
            return {p: scale * float(np.percentile(sample, float(p))) for p in expected}
        if statistic == "percentiles_nearest_rank":
            return {p: scale * (nearest_rank(sample, float(p)) or 0.0) for p in expected}
        if statistic == "samples":
            return len(sample)
        stat = describe(sample)
        if stat is None:
            return None
        if statistic in ("min", "sum"):
            return scale * float(getattr(sample, statistic)())
        known = getattr(stat, statistic, None)
        return scale * (float(np.percentile(sample, float(statistic[1:]))) if known is None else known)

    def _sample(self, name: str) -> Any:
        if name not in ("itl", "token_gap"):
            return defined(QUANTITY[name](self.rows))
        table = self.run.table
        assert table.events is not None
        return latency.itl_s(table.events, counted(table.rows) & latency.is_ok(table.rows))

    @property
    def _attained(self) -> Any:
        assert self.slo is not None, "the case has no objectives"
        return attain(self.run.table, self.slo)

    def _attainment(self) -> float | None:
        return self._attained.share  # type: ignore[no-any-return]

    def _peak(self, window_s: float) -> float | None:
        table = self.run.table
        assert table.events is not None
        return peak_tokens_per_s(table.rows, table.events, counted(table.rows), window_s)

    def _good(self) -> int | None:
        return self._attained.good  # type: ignore[no-any-return]

    def _total(self) -> int:
        return len(self.rows) if self.slo is None else self._attained.total

    def _meets_target(self) -> bool | None:
        return self._attained.meets  # type: ignore[no-any-return]

    def _undecided(self) -> int:
        return self._attained.undecided  # type: ignore[no-any-return]

    def _unmeasurable(self) -> dict[str, int]:
        return self._attained.unmeasurable  # type: ignore[no-any-return]

    def _bounds(self) -> list[float] | None:
        return None if self._attained.bounds is None else list(self._attained.bounds)

    def _parts(self) -> dict[str, int]:
        found = table_bins(self.run.table, self.slo).quadrants
        assert found is not None
        return msgspec.structs.asdict(found)

    def _binding(self) -> str | None:
        return self._attained.binding  # type: ignore[no-any-return]

    def _error(self) -> str | None:
        return self._attained.reason  # type: ignore[no-any-return]

    def _attainment_from_scheduled(self) -> float | None:
        return self._attainment()

    def _attainment_from_sent(self) -> float | None:
        return self._attained.from_sent.share  # type: ignore[no-any-return]

    def _good_from_sent(self) -> int | None:
        return self._attained.from_sent.good  # type: ignore[no-any-return]

    def _good_ids(self) -> list[int]:
        assert self.slo is not None
        return [int(i) for i in self.rows["request_id"][good_rows(self.rows, self.slo)]]

    def _quadrants(self) -> dict[str, int]:
        assert self.slo is not None
        ok = latency.is_ok(self.rows)
        judged = judge_rows(self.rows, self.slo.limits).by_limit
        ttft, tpot = (judged[quantity] == Verdict.GOOD for quantity in ("ttft", "tpot"))
        cells = {
            "ok": ttft & tpot,
            "late_first_token": ~ttft & tpot,
            "slow_tokens": ttft & ~tpot,
            "both": ~ttft & ~tpot,
        }
        return {name: int((mask & ok).sum()) for name, mask in cells.items()} | {"failed": int((~ok).sum())}

    def _failed(self) -> int:
        return int((~latency.is_ok(self.rows)).sum())

    def _completed(self) -> int:
        return int(latency.is_ok(self.rows).sum())

    def _failed_share(self) -> float:
        return self._failed() / len(self.rows)

    def _by_outcome(self) -> dict[str, int]:
        return self.summary.requests.by_outcome

    def _excluded_warmup(self) -> int:
        return self.summary.requests.in_warmup

    def _planned(self) -> int:
        return self.summary.requests.planned

    def _sent(self) -> int:
        return self.summary.requests.sent

    def _output_tokens_total(self) -> int:
        return self.summary.tokens.output_got

    def _offered_rate(self) -> float | None:
        return self.summary.rates.offered_per_s

    def _duration_s(self) -> float | None:
        return self.summary.rates.duration_s

    def _completed_per_s(self) -> float | None:
        return self.summary.rates.completed_per_s

    _request_throughput = _requests_per_s = _completed_per_s

    def _output_tokens_per_s(self) -> float | None:
        return self.summary.rates.output_tokens_per_s

    _tokens_per_s = _mean_tokens_per_s = _output_tokens_per_s

    def _output_tokens_per_s_per_gpu(self) -> float | None:
        return self.summary.rates.output_tokens_per_s_per_gpu

    def _slo_throughput(self) -> float | None:
        return self.summary.rates.slo_throughput_per_s

    _slo_throughput_per_s = _slo_throughput
    _good_per_s = _slo_throughput

    def _sample_warning(self) -> bool:
        return any(stat.few for stat in self._stats())

    def _few(self) -> list[str]:
        return sorted({name for stat in self._stats() for name in stat.few})

    def _stats(self) -> list[Stat]:
        stats = (self.summary.ttft_s, self.summary.tpot_s, self.summary.e2e_s)
        return [stat for stat in stats if stat is not None]

    def _verdict(self) -> str:
        return self.summary.validity.verdict

    def _findings(self) -> list[str]:
        return sorted(finding.code for finding in self.summary.validity.findings)

    def _run_valid(self) -> bool:
        return self._verdict() != "invalid"

    _trustworthy = _run_valid

    def _exit_code_nonzero(self) -> bool:
        return not self._run_valid() or not self._completed()


def same(expected: Any, got: Any) -> bool:
    """Equal up to the rounding of a printed figure."""
    return not differences(expected, got, absolute=2e-6, others_allowed=True)

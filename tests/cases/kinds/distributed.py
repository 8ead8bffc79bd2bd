"""Distributed cases: files of several workers, torn, doubled or missing, become one table and one verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from metrics.records import Outcome, Rows, empty_rows
from tests.cases.kinds._records import Figures, RecordFile, merged, read_records, to_rows
from workloads.formats import read_trace
from workloads.schedule import plan


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Merge what the workers reported into what was planned; check the counts and every other figure."""
    options = case.get("options", {})
    if (case_dir / "trace.jsonl").exists():
        files, planned = _dealt_out(case_dir / "trace.jsonl", options.get("workers", 1), options)
    else:
        files = {int(_digits(p.stem)): read_records(p) for p in sorted(case_dir.glob("worker*.jsonl"))}
        planned = _planned(case_dir, files, options)
    warmup_s = options.get("warmup_s", 0.0)
    figures = _Merged(merged(_journals(files, warmup_s), planned), options, files)
    figures.check(expected)


class _Merged(Figures):
    """The figures of the merged run, and what became of the workers' reports."""

    def __init__(self, table: Any, options: dict[str, Any], files: dict[int, RecordFile]) -> None:
        super().__init__(table, options)
        self.files = files

    def _missing_mask(self) -> Any:
        return np.isin(self.run.table.rows["outcome"], (Outcome.LOST_WORKER, Outcome.NOT_SENT))

    def _missing(self) -> int:
        return int(self._missing_mask().sum())

    def _reported(self) -> int:
        return len(self.run.table) - self._missing()

    _count = _reported
    _unique = _reported

    def _duplicates(self) -> int:
        return sum(len(file.records) for file in self.files.values()) - self._reported()

    def _sent_total(self) -> int:
        return int((~np.isnan(self.run.table.rows["sent_s"])).sum())

    def _each_request_once(self) -> bool:
        ids = [record["id"] for file in self.files.values() for record in file.records]
        return bool(sorted(ids) == self.run.table.rows["request_id"].tolist())

    def _torn_lines(self) -> int:
        return sum(worker.torn_frames for worker in self.run.table.workers)

    def _missing_by_worker(self) -> dict[str, int]:
        workers, counts = np.unique(self.run.table.rows["worker"][self._missing_mask()], return_counts=True)
        return {str(worker): int(count) for worker, count in zip(workers, counts, strict=True)}

    def _lost_workers(self) -> list[int]:
        rows = self.run.table.rows
        return [int(w) for w in np.unique(rows["worker"][rows["outcome"] == Outcome.LOST_WORKER])]

    def _workers(self) -> int:
        return len(self.files)


def _journals(files: dict[int, RecordFile], warmup_s: float) -> list[tuple[int, RecordFile, Rows]]:
    return [(worker, file, to_rows(file.records, warmup_s)) for worker, file in files.items()]


def _planned(case_dir: Path, files: dict[int, RecordFile], options: dict[str, Any]) -> Rows:
    """Every reported request once, then the requests that plan.json (or a torn line) promises beyond them."""
    seen: dict[int, dict[str, Any]] = {}
    for worker, file in files.items():
        for record in file.records:
            seen.setdefault(record["id"], {"worker": worker, **record})
    unreported = _unreported(case_dir, files, seen)
    plan_rows = to_rows([*seen.values(), *unreported], options.get("warmup_s", 0.0))
    planned = empty_rows(len(plan_rows))
    for column in ("request_id", "worker", "scheduled_s", "warmup", "prompt_tokens", "max_tokens", "session"):
        planned[column] = plan_rows[column]
    return planned[np.argsort(planned["scheduled_s"], kind="stable")]


def _unreported(case_dir: Path, files: dict[int, RecordFile], seen: dict[int, Any]) -> list[dict[str, Any]]:
    path = case_dir / "plan.json"
    promised = json.loads(path.read_text())["requests_planned"] if path.exists() else {}
    rows: list[dict[str, Any]] = []
    fresh = 1 + max(seen, default=-1)
    for worker in sorted({*files, *map(int, promised)}):
        mine = [record for record in seen.values() if record["worker"] == worker]
        given = promised.get(str(worker))
        if isinstance(given, list):
            ids = [i for i in given if i not in seen]
        else:
            torn = len(files[worker].torn) if worker in files else 0
            count = torn if given is None else given - len(mine)
            ids = list(range(fresh, fresh + count))
            fresh += count
        times = sorted(record["scheduled_s"] for record in mine)
        gap = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
        last = times[-1] if times else 0.0
        rows += [{"id": i, "worker": worker, "scheduled_s": last + (k + 1) * gap} for k, i in enumerate(ids)]
    return rows


def _dealt_out(path: Path, workers: int, options: dict[str, Any]) -> tuple[dict[int, RecordFile], Rows]:
    """A trace dealt out to the workers, each of which answers its shard: some may have nothing to do."""
    schedule = plan(read_trace(path), seed=0, salt="", warmup_s=options.get("warmup_s", 0.0))
    files, planned = {}, empty_rows(len(schedule))
    planned["scheduled_s"], planned["warmup"] = schedule.scheduled_s, schedule.warmup
    for worker in range(workers):
        shard = schedule.shard(worker, workers)
        planned["worker"][shard.request_id] = worker
        each = zip(shard.request_id.tolist(), shard.scheduled_s.tolist(), strict=True)
        files[worker] = RecordFile([_answered(request, at) for request, at in each])
    return files, planned


def _answered(request: int, at: float) -> dict[str, Any]:
    return {
        "id": request,
        "scheduled_s": at,
        "sent_s": at,
        "first_token_s": at + 0.1,
        "last_token_s": at + 0.12,
        "end_s": at + 0.12,
        "output_tokens": 2,
        "outcome": "ok",
    }


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text) or "0"

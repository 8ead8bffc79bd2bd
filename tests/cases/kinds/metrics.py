"""Metrics cases: records (or token events) of one client, and the figures that must come out of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.cases.kinds._records import Figures, RecordFile, merged, read_records, to_rows


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Every key of expected.json is a figure of the run's summary."""
    options = case.get("options", {})
    events = _events(case_dir)
    file = read_records(case_dir / "records.jsonl") if (case_dir / "records.jsonl").exists() else _requests_of(events)
    rows = to_rows(file.records, options.get("warmup_s", 0.0))
    figures = Figures(merged([(0, file, rows)], rows, events), options)
    figures.check(expected)


def _events(case_dir: Path) -> dict[int, tuple[list[float], list[int]]]:
    """Times and tokens of each request's token events."""
    path = case_dir / "events.jsonl"
    events: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for event in read_records(path).records if path.exists() else []:
        times, tokens = events[event.get("id", 0)]
        times.append(event["t_s"])
        tokens.append(event.get("tokens", 1))
    return dict(events)


def _requests_of(events: dict[int, tuple[list[float], list[int]]]) -> RecordFile:
    """The requests behind a file of events alone: sent at 0, ended with their last token."""
    return RecordFile(
        [
            {
                "id": request,
                "scheduled_s": 0.0,
                "sent_s": 0.0,
                "first_token_s": min(times),
                "last_token_s": max(times),
                "end_s": max(times),
                "output_tokens": sum(tokens),
                "token_events": len(times),
                "outcome": "ok",
            }
            for request, (times, tokens) in events.items()
        ]
    )

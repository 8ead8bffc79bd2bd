"""Whole runs, one after the other, each with a fault in one callback: `python -m tests.replay.faulty_runs URL FOLDER`.

Prints a JSON object: the exit code of each run. A callback fails once, when some requests have been answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import reports.page
from loadtest.cli.main import main
from loadtest.replay.sender import Sender

CALLBACKS = ("_tick", "_launch", "_dispatched", "connected", "received", "lost", "_end_by_answer", "_end", "_make")
ANSWERED = 5
ROWS = 20


def run_with_fault(name: str, url: str, folder: Path) -> int:
    """One `goodput run` whose sender fails in that method."""
    whole, failed = getattr(Sender, name), []

    def faulty(self: Any, *arguments: Any, **named: Any) -> Any:
        if not failed and self.progress().finished >= ANSWERED:
            failed.append(name)
            raise RuntimeError(f"a fault in {name}")
        return whole(self, *arguments, **named)

    setattr(Sender, name, faulty)
    try:
        asked = ["--target", url, "--trace", str(folder / "trace.jsonl"), "--api", "completions", "--model", "m"]
        main(["run", *asked, "--drain", "3s", "--out", str(folder / name)])
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        setattr(Sender, name, whole)
    return 0


if __name__ == "__main__":
    reports.page.render_html = lambda *_, **__: ""
    target, place = sys.argv[1], Path(sys.argv[2])
    codes = {callback: run_with_fault(callback, target, place) for callback in CALLBACKS}
    sys.__stdout__.write("\n" + json.dumps(codes) + "\n")  # type: ignore[union-attr]

"""The run directory that every crafted one begins as: twelve requests, two workers, all files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadtest.record import begin
from metrics import probes, rundir
from metrics.frames import MAGIC, MARK_BYTES, FrameReader, FrameWriter
from metrics.journal import JournalWriter
from metrics.merge import merge
from metrics.prediction import Prediction
from metrics.prediction import save as save_prediction
from metrics.records import Outcome, WorkerStats, empty_rows
from metrics.runinfo import RunInfo, run_id
from workloads.schedule import plan
from workloads.trace import Trace

ROWS, WORKERS = 12, 2
INFO = RunInfo(
    id="1d", name="run", salt="5a17", workers=WORKERS, slo="ttft=1s,tpot=50ms", requests=ROWS, rate_per_s=1000.0, gpus=1
)

Craft = Callable[[Path], None]


def whole_run(folder: Path) -> Path:
    """A complete run; crash(folder) takes back what only its end wrote."""
    folder.mkdir()
    trace = Trace("t", np.arange(ROWS) * 1_000_000, np.full(ROWS, 4), np.full(ROWS, 3))
    begin(plan(trace, seed=0, salt=INFO.salt), INFO, folder)
    for worker in range(WORKERS):
        writer = JournalWriter(rundir.journal_path(folder, worker), worker, run_id(INFO.name, INFO.salt, INFO.id))
        for request in range(worker, ROWS, WORKERS):
            row = a_row(request, worker)
            ok = row["outcome"][0] == Outcome.OK
            us = np.arange(1, 4, dtype="<u4") * 1000 if ok else np.zeros(0, dtype="<u4")
            ones = np.ones(len(us), dtype="<u2").tobytes()
            writer.record(row[0], us.tobytes(), ones, ones, error="" if ok else "boom")
        writer.stats(WorkerStats(worker=worker, zero_ns=10**12, cpu_s=0.1, wall_s=1.0))
        writer.close()
    rundir.write_table(folder, merge(rundir.read_journals(folder, INFO), rundir.read_plan(folder)))
    rundir.write_info(folder, msgspec.structs.replace(INFO, state="complete"))
    values = np.ones((3, len(probes.METRICS)))
    probes.save(folder, probes.Probes(np.arange(3.0), np.zeros(3, dtype=np.int64), values, ["server"]))
    save_prediction(folder, Prediction(source="x", attainment=0.5, ttft_s=None, tpot_s=None, e2e_s=None, slo=INFO.slo))
    return folder


def a_row(request: int, worker: int) -> Any:
    """A plain request; every fourth failed."""
    row = empty_rows(1)
    at = request / 1000
    row["request_id"], row["worker"], row["outcome"] = request, worker, Outcome.OK if request % 4 else Outcome.TIMEOUT
    row["scheduled_s"], row["sent_s"], row["done_s"] = at, at + 1e-4, at + 4e-3
    row["first_token_s"], row["last_token_s"] = at + 1.1e-3, at + 3.1e-3
    row["output_tokens"] = row["token_events"] = 3
    row["reads"] = row["kernel_reads"] = 3
    row["attempts"] = 1
    row["stamp_source"] = 1
    return row


def copy_of(whole: Path, folder: Path) -> Path:
    """A run directory to be spoilt; named as the whole one, whose name its run.json has."""
    folder.mkdir()
    return Path(shutil.copytree(whole, folder / whole.name))


def crash(folder: Path) -> None:
    """As if the process had died at its last instant: only plan and journals are there."""
    for name in (rundir.RECORDS, rundir.EVENTS, rundir.ERRORS, rundir.WORKERS, "probes.npz", "prediction.json"):
        (folder / name).unlink(missing_ok=True)


def reframed(folder: Path, change: Callable[[int, bytes], list[tuple[int, bytes]]], worker: int = 0) -> None:
    """Write a crashed run's journal anew, each frame as `change(kind, payload)` has it, with right checksums."""
    crash(folder)
    file = rundir.journal_path(folder, worker)
    frames = [frame for kind, payload in FrameReader(file.read_bytes()) for frame in change(kind, bytes(payload))]
    writer = FrameWriter()
    file.write_bytes(writer.beginning + b"".join(writer.frame(kind, payload) for kind, payload in frames))


def columns(file: Path) -> dict[str, Any]:
    """What an .npz holds."""
    with np.load(file) as stored:
        return {name: stored[name] for name in stored.files}


FRAMES_BEGIN = len(MAGIC) + MARK_BYTES

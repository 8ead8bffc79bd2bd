"""`run.json`: what a run was asked to do, of whom, and how far it came."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "goodput.run/1"

Scalar = str | int | float | bool | None
State = Literal["running", "complete", "partial"]
STOPPED_BY_USER = "stopped by the user"
FAULT = "a fault in goodput"  # how the reason begins when something of ours failed
DISK_FULL = "the disk takes nothing more"  # how the reason begins when what was measured could not be written


class Setting(msgspec.Struct, frozen=True):
    """A resolved setting and where its value came from: flag, environment, file or default."""

    value: Scalar | list[str]
    origin: str = "default"


class RunInfo(msgspec.Struct, kw_only=True):
    """Everything about a run that is not a row.

    `state` is `running` until the end is written, so a run directory found `running` has crashed.
    Keys of `server` that validity reads: `prefix_cache_hits` (count), `extrapolated_share` (0..1).
    """

    schema: str = SCHEMA
    id: str = ""  # drawn for this run: two of one name and one salt are still two
    state: State = "running"
    name: str = ""
    created_at: str = ""  # ISO 8601, UTC
    command: list[str] = []
    deployment: str = ""
    arrangement: str = ""
    gpus: int | None = None
    target_url: str = ""
    model: str = ""
    endpoint: str = ""
    slo: str = ""
    seed: int = 0
    salt: str = ""
    trace_name: str = ""
    trace_hash: str = ""
    recipe_hash: str = ""
    requests: int = 0
    rate_per_s: float | None = None
    duration_s: float | None = None
    warmup_s: float = 0.0
    trace_reading: dict[str, Scalar] = {}  # the file's format, unit of times, size of blocks, and who decided each
    rejected: dict[str, int] = {}  # trace rows left out, by reason
    warnings: list[str] = []
    workers: int = 1
    config: dict[str, Setting] = {}
    versions: dict[str, str] = {}
    host: dict[str, Scalar] = {}
    server: dict[str, Scalar] = {}  # what preflight and the server's metrics told
    stopped_at_s: float | None = None  # when it was ended early, on the schedule's clock
    stop_reason: str = ""  # who or what ended it early
    realtime_minus_monotonic_ns: int = 0
    tags: dict[str, str] = {}


def run_id(name: str, salt: str, drawn: str = "") -> str:
    """What every message and journal of a run carries: its name, its salt, and what was drawn for it."""
    return "-".join([name, salt, *([drawn] if drawn else [])])

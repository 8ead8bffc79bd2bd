"""What the coordinator and its workers say to each other: structs in Locust's custom messages.

    worker        -> coordinator   Claim      a user has started here: which shard is mine?
    coordinator   -> worker        Assignment shard `worker` of `workers`, or Refusal
    worker        -> coordinator   Ready      loaded, garbage collector frozen
    coordinator   -> worker        Go         the instant of scheduled_s == 0, once everybody is ready
    worker        -> coordinator   Beat       each second, and a last one when done
    coordinator   -> worker        Stop       the user pressed Ctrl-C, or the run is not yours any more

Every message but Claim carries the run's id, the fence: a worker that wakes up in a later run is told to stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions

CLAIM = "goodput.claim"
ASSIGN = "goodput.assign"
REFUSE = "goodput.refuse"
READY = "goodput.ready"
GO = "goodput.go"
BEAT = "goodput.beat"
STOP = "goodput.stop"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Claim(msgspec.Struct, frozen=True):
    """A worker asks for its shard; `machine` tells whether its monotonic clock and its disk are ours."""

    machine: str
    pid: int


class Assignment(msgspec.Struct, frozen=True):
    """One shard of a run: everything a worker needs, small because a shard is a pure function of the schedule."""

    run: str
    worker: int
    workers: int
    schedule_path: str
    journal_path: str
    endpoint: Endpoint
    options: SenderOptions
    reactor: str


class Refusal(msgspec.Struct, frozen=True):
    """No shard for this claim; the user stays, and idles, so that the user count is constant."""

    run: str
    reason: str


class Ready(msgspec.Struct, frozen=True):
    """The shard is loaded and can start."""

    run: str
    worker: int


class Go(msgspec.Struct, frozen=True):
    """`t0_ns` is the monotonic instant of scheduled_s == 0."""

    run: str
    t0_ns: int


class Beat(msgspec.Struct, frozen=True):
    """How far a worker is: liveness and progress in one."""

    run: str
    worker: int
    planned: int = 0
    sent: int = 0
    in_flight: int = 0
    finished: int = 0
    failed: int = 0
    aborted: str = ""  # why this worker ended the run early, by the rule of --abort-on
    aborted_ns: int = 0
    done: bool = False
    error: str = ""


class Stop(msgspec.Struct, frozen=True):
    """Stop sending, close what is in flight, write the journal's end."""

    run: str


Message = TypeVar("Message", bound=msgspec.Struct)


def pack(message: msgspec.Struct) -> bytes:
    """The bytes to put into a Locust message."""
    return msgspec.msgpack.encode(message)


def unpack(data: bytes, kind: type[Message]) -> Message:
    """A struct out of a Locust message; raises msgspec.ValidationError for a message of another version."""
    return msgspec.msgpack.decode(data, type=kind)


def machine_id() -> str:
    """The same text in two processes whose CLOCK_MONOTONIC is one clock."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "this machine"

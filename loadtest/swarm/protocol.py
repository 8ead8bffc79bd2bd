"""What the coordinator and its workers say to each other: structs in Locust's custom messages.

    worker        -> coordinator   Claim      a user has started here: which shard is mine?
    coordinator   -> worker        Assignment shard `worker` of `workers`, or Refusal
    worker        -> coordinator   Ping       what does your clock say? (only from another disk)
    coordinator   -> worker        Pong       that
    worker        -> coordinator   Ready      loaded, garbage collector frozen
    coordinator   -> worker        Go         the instant of scheduled_s == 0, once everybody is ready
    worker        -> coordinator   Beat       each second, and a last one when done
    worker        -> coordinator   Batch      the next piece of its journal (only from another disk)
    coordinator   -> worker        Ack        how much of that journal is here
    coordinator   -> worker        Stop       the user pressed Ctrl-C, or the run is not yours any more

Every message about a run carries its id, the fence: a worker that wakes up in a later run is told to stop.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.replay.tally import Seen

CLAIM = "goodput.claim"
ASSIGN = "goodput.assign"
REFUSE = "goodput.refuse"
READY = "goodput.ready"
GO = "goodput.go"
BEAT = "goodput.beat"
STOP = "goodput.stop"
PING = "goodput.ping"
PONG = "goodput.pong"
BATCH = "goodput.batch"
ACK = "goodput.ack"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/ns/mnt")


class Claim(msgspec.Struct, frozen=True):
    """A worker asks for its shard; `place` tells whether its monotonic clock and its disk are the coordinator's."""

    place: str
    pid: int


class Assignment(msgspec.Struct, frozen=True):
    """One shard of a run. A worker at the coordinator's place reads the whole schedule from the disk and writes its
    journal there; any other gets `schedule`, the bytes of a schedule.npz with its rows, and chooses its own paths and
    keys: it is only told whether the server wants a key, and the hash of the tokenizer whose words the texts are of."""

    run: str
    worker: int
    workers: int
    schedule_path: str
    journal_path: str
    endpoint: Endpoint
    options: SenderOptions
    reactor: str
    schedule: bytes = b""
    needs_key: bool = False
    tokenizer_sha256: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """No shard for this claim; the user stays, and idles, so that the user count is constant."""

    run: str
    reason: str


class Ping(msgspec.Struct, frozen=True):
    """`sent_ns` on the worker's monotonic clock."""

    sent_ns: int


class Pong(msgspec.Struct, frozen=True):
    """A Ping's stamp given back, with the coordinator's monotonic clock."""

    sent_ns: int
    coordinator_ns: int


class Ready(msgspec.Struct, frozen=True):
    """The shard is loaded and can start; `rtt_ns` is the way there and back, 0 where nothing was measured."""

    run: str
    worker: int
    rtt_ns: int = 0


class Go(msgspec.Struct, frozen=True):
    """`t0_ns` is the instant of scheduled_s == 0 on the coordinator's monotonic clock."""

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
    seen: Seen | None = None  # the latencies so far
    disk: str = ""  # why rows wait in this worker's memory; with `done`, why some are not in its journal
    done: bool = False
    error: str = ""


class Batch(msgspec.Struct, frozen=True):
    """The bytes of a worker's journal from `offset` on."""

    run: str
    offset: int
    data: bytes


class Ack(msgspec.Struct, frozen=True):
    """The coordinator has the first `size` bytes of this worker's journal."""

    run: str
    size: int


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


def place_id() -> str:
    """The same text in two processes that share their monotonic clock and see the same files."""
    if not _BOOT_ID.exists():
        return "this machine"
    return f"{_BOOT_ID.read_text().strip()} {os.readlink(_MOUNTS)}"

"""JSON lines: Mooncake (milliseconds, 512-token blocks) and Qwen-Bailian (seconds, 16-token blocks, chats)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from workloads.formats.rows import Reject, RowSink, whole_value
from workloads.formats.times import Times
from workloads.formats.timestamp import Unreadable

NAME = "mooncake-jsonl"
QWEN = "qwen-jsonl"
REQUIRED = ("timestamp", "input_length", "output_length")
UNITS = {NAME: "ms", QWEN: "s"}
BLOCK_TOKENS = {NAME: 512, QWEN: 16}

_decode = msgspec.json.Decoder(float_hook=Decimal).decode  # exact: no time passes through a binary float


def is_qwen(row: dict[str, Any]) -> bool:
    """Qwen-Bailian rows are told by their chat ids."""
    return "chat_id" in row


def parse(text: str) -> dict[str, Any]:
    """The object on one line; anything else is rejected as `json`."""
    try:
        row = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise Reject("json") from None
    if not isinstance(row, dict):
        raise Reject("json")
    return row


def read_lines(body: Iterable[tuple[int, str]], times: Times, sink: RowSink, *, qwen: bool) -> None:
    """Read every line into the sink."""
    chats: dict[int, int] = {}
    for line, text in body:
        try:
            row = parse(text)
            if any(key not in row for key in REQUIRED):
                raise Reject("columns")
            session = _session(row, chats) if qwen else -1
            sink.add(
                line,
                times.nanoseconds(row["timestamp"]),
                whole_value(row["input_length"]),
                whole_value(row["output_length"]),
                session=session,
                turn=whole_value(row["turn"]) if qwen and "turn" in row else -1,
                blocks=blocks_of(row.get("hash_ids")),
            )
        except Unreadable as error:
            sink.untimed(line, error)
        except Reject as reason:
            sink.reject(line, str(reason))


def blocks_of(value: Any) -> Sequence[int]:
    """Prefix ids; anything but a list of 64-bit integers is rejected."""
    if not isinstance(value, list | None):
        raise Reject("hash_ids")
    try:
        return array("q", value or ())
    except (TypeError, OverflowError):  # not all of them are 64-bit integers
        raise Reject("hash_ids") from None


def _session(row: dict[str, Any], chats: dict[int, int]) -> int:
    """The first chat of the conversation a turn belongs to (its parents come before it in the file)."""
    chat, parent = whole_value(row["chat_id"]), whole_value(row.get("parent_chat_id", -1))
    chats[chat] = chats.get(parent, parent) if parent >= 0 else chat
    return chats[chat]

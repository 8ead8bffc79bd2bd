"""A request inside a cluster, and a token that leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from loadtest.backends.instance import Instance

_NOT_YET: Final = float("nan")


class Emission(msgspec.Struct, frozen=True, gc=False):
    """One output token of one request: its absolute time in seconds and its index, 0 for the first."""

    request_id: int
    time: float
    index: int
    finished: bool


class Spans(msgspec.Struct, frozen=True):
    """Where a request spent its time, in seconds; NaN for what it has not reached.

    Together they last from arrival to the last token. A recomputation after a preemption is part of `decode_s`;
    waiting for room in the decode pool is part of `transfer_s`.
    """

    queue_s: float
    prefill_s: float
    transfer_s: float
    decode_s: float


class Request:
    """Token counts and instants of one request; its instance keeps them current."""

    __slots__ = (
        "arrived",
        "blocks",
        "cached",
        "done",
        "first_token",
        "generated",
        "instance",
        "joined",
        "landed",
        "output_tokens",
        "pieces",
        "prefill_ended",
        "prefill_started",
        "prefill_tokens",
        "prefilled",
        "prefix",
        "prompt_tokens",
        "request_id",
        "source",
    )

    def __init__(
        self, request_id: int, prompt_tokens: int, output_tokens: int, arrived: float, prefix: Sequence[int] = ()
    ) -> None:
        self.request_id = request_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.prefix = prefix  # hashes of the blocks its prompt begins with
        self.generated = 0  # tokens out; while decoding, those before it joined the decodes
        self.joined = -1  # the instance's decode tick at which it joined them
        self.prefill_tokens = prompt_tokens  # to compute before its next token; more after a preemption
        self.prefilled = 0
        self.blocks = 0  # KV blocks taken when it was admitted
        self.cached = 0  # how many blocks of its prefix it shares with the prefix cache
        self.instance: Instance | None = None
        self.source: Instance | None = None  # the prefill instance whose KV is still to come over the link
        self.arrived = arrived
        self.prefill_started = self.prefill_ended = self.landed = self.first_token = self.done = _NOT_YET
        # when its tokens came: an instant, or a run of an instance's decode ticks [from, to)
        self.pieces: list[float | tuple[Instance, int, int]] = []

    @property
    def prefill_left(self) -> int:
        """Prompt tokens still to compute."""
        return self.prefill_tokens - self.prefilled

    @property
    def spans(self) -> Spans:
        """Queue, prefill, transfer and decode seconds so far."""
        return Spans(
            self.prefill_started - self.arrived,
            self.prefill_ended - self.prefill_started,
            self.landed - self.prefill_ended,
            self.done - self.landed,
        )

"""KV transfer from a prefill instance to a decode instance: when the decode side can see it.

With x = KV bytes / link rate, L layers and prefill taking p seconds, on an idle link and counted from prefill's end:

    serial:    visible = latency + x
    layerwise: visible = latency + max(x/L, x - p (L-1)/L)    each layer leaves as soon as it is computed
    hybrid:    serial below 512 prompt tokens, else layerwise

Every instance has one link in each direction, first come, first served (`kv_contention=port`); or all transfers of the
cluster share one link (`fabric`), or each has one to itself (`none`). Splitwise (ISCA 2024), section 4.3.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtest.backends.request import Request

if TYPE_CHECKING:
    from loadtest.backends.instance import Instance

HYBRID_TOKENS: Final = 512
LINK_GBPS: Final = {"ib200": 200.0, "ib400": 400.0, "100GbE": 100.0, "25GbE": 25.0}  # nvlink depends on the GPU


@dataclass(frozen=True)
class KvLink:
    """Rate, latency and mode of the links between the pools."""

    bytes_per_s: float
    latency_s: float
    mode: str  # serial, layerwise, hybrid
    layers: int
    kv_bytes_per_token: int

    def overlaps(self, prompt_tokens: int) -> bool:
        """Does the transfer run beside prefill, layer by layer?"""
        return self.mode == "layerwise" or (self.mode == "hybrid" and prompt_tokens >= HYBRID_TOKENS)


class Port:
    """One direction of one instance's link: until when it is taken."""

    def __init__(self) -> None:
        self.free_at = 0.0
        self.last_arrival = 0.0


class Network:
    """Who shares a link with whom."""

    def __init__(self, contention: str) -> None:
        """`contention` is port, fabric or none."""
        self._contention = contention
        self._fabric = Port()
        self._out: defaultdict[Instance, Port] = defaultdict(Port)
        self._into: defaultdict[Instance, Port] = defaultdict(Port)

    def ports(self, source: Instance, target: Instance) -> tuple[Port, Port]:
        """The sender's and the receiver's end of a transfer."""
        if self._contention == "fabric":
            return self._fabric, self._fabric
        if self._contention == "none":
            return Port(), Port()
        return self._out[source], self._into[target]


def transfer(link: KvLink, out: Port, into: Port, request: Request, now: float) -> float:
    """Send a prefilled request's KV; returns the instant the decode side sees it, never before an earlier one's.

    `now` is the end of its prefill, or later if the decode pool had no room then. Room at once means that it was
    reserved before prefill, so layers could leave while the others were computed.
    """
    wire_s = request.prompt_tokens * link.kv_bytes_per_token / link.bytes_per_s
    ready, tail_s = now, wire_s
    if link.overlaps(request.prompt_tokens):
        tail_s = wire_s / link.layers
        if now == request.prefill_ended:
            ready = request.prefill_started + (now - request.prefill_started) / link.layers
    sent = max(ready, out.free_at, into.free_at) + wire_s
    out.free_at = into.free_at = sent
    arrival = max(sent, now + tail_s, out.last_arrival, into.last_arrival)
    out.last_arrival = into.last_arrival = arrival
    return arrival + link.latency_s

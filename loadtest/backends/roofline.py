"""The unified roofline: iteration times of models, GPUs and tensor-parallel degrees that nobody measured.

    t = L (o1 + o2 log2 TP) + oB B + all-reduce + ((compute + attention)^4 + memory^4)^(1/4)
    compute    = 2 active parameters n / (TP FLOPS ec) (1 + h max(0, n - 2048) / n)
    attention  = 4 hidden L pairs / (TP FLOPS ea)
    memory     = (weights + KV bytes of the contexts) / (TP bandwidth em)
    all-reduce = 4 L n hidden 2 (TP - 1) / TP / (NVLink enb)

L layers, n tokens, B decodes, `pairs` attended token pairs. The efficiencies of a measured GPU are one fit over all
models and degrees (docs/backends.md); GPUs that were not measured have H100's. A mixture of experts reads the experts
that its tokens touch: all of them beyond a few tokens.
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Final, NamedTuple

import msgspec

from loadtest.backends.hardware import Hardware, hardware
from loadtest.backends.shape import Shape

KNEE_TOKENS: Final = 2048
ATTENTION_EFFICIENCY: Final = 0.5  # an assumption: 2 % of prefill at 1,000 tokens


class Efficiency(msgspec.Struct, frozen=True):
    """What a GPU and its software reach of the peaks, and the overheads beside them."""

    layer_us: float  # o1
    layer_per_doubling_us: float  # o2
    per_request_ms: float  # oB
    compute: float  # ec
    knee: float  # h
    memory: float  # em
    link: float  # enb


EFFICIENCIES: Final = {
    "a100": Efficiency(196, 74, 0.35, 0.757, 0.68, 0.98, 0.26),
    "h100": Efficiency(118, 59, 0.26, 0.730, 0.51, 0.885, 0.24),
}


class Terms(NamedTuple):
    """Seconds of each term, and the work behind them."""

    overhead_s: float
    link_s: float
    compute_s: float
    memory_s: float
    flops: float
    bytes: float

    @property
    def total_s(self) -> float:
        """The whole iteration."""
        return self.overhead_s + self.link_s + sqrt(sqrt(self.compute_s**4 + self.memory_s**4))

    @property
    def binding(self) -> str:
        """The largest term: overhead, link, compute or memory."""
        terms = {"overhead": self[0], "link": self[1], "compute": self[2], "memory": self[3]}
        return max(terms, key=lambda name: terms[name])


class Roofline:
    """A model on `tp` GPUs of one kind; user-set overheads go into `efficiency`."""

    def __init__(self, shape: Shape, gpu: str, tp: int, efficiency: Efficiency | None = None) -> None:
        self.shape = shape
        self.gpu: Hardware = hardware(gpu)
        self.tp = tp
        self.efficiency = efficiency or EFFICIENCIES.get(gpu, EFFICIENCIES["h100"])

    def prefill(self, tokens: int, attended: int) -> Terms:
        """An iteration of prompt tokens; `attended` is S, twice the token pairs of causal attention."""
        return self._terms(tokens, attended / 2, 1, 0)

    def decode(self, batch: int, context: int) -> Terms:
        """An iteration of `batch` decodes whose contexts add up to `context` tokens."""
        return self._terms(batch, context, batch, context)

    def _terms(self, tokens: int, pairs: float, batch: int, context: int) -> Terms:
        shape, gpu, tp, reached = self.shape, self.gpu, self.tp, self.efficiency
        linear = 2 * shape.active_parameters * tokens
        attention = 4 * shape.hidden * shape.layers * pairs
        read = self._weights(tokens) + shape.kv_bytes_per_token * context
        peak = tp * gpu.tflops * 1e12
        knee = 1 + reached.knee * max(0, tokens - KNEE_TOKENS) / tokens
        sent = 4 * shape.layers * tokens * shape.hidden * 2 * (tp - 1) / tp  # two all-reduces of 2 bytes a layer
        return Terms(
            shape.layers * (reached.layer_us + reached.layer_per_doubling_us * log2(tp)) * 1e-6
            + reached.per_request_ms * 1e-3 * batch,
            sent / (gpu.nvlink_gbps * 1e9 / 8 * reached.link),
            linear * knee / (peak * reached.compute) + attention / (peak * ATTENTION_EFFICIENCY),
            read / (tp * gpu.bandwidth_tb_s * 1e12 * reached.memory),
            linear + attention,
            read,
        )

    def _weights(self, tokens: int) -> float:
        """Bytes of the weights that so many tokens touch: of the experts at most all."""
        shape = self.shape
        routed = shape.parameters - shape.active_parameters
        touched = min(shape.parameters, shape.active_parameters + routed * (1 - (1 - _share(shape)) ** (tokens - 1)))
        return touched * shape.bytes_per_parameter


def _share(shape: Shape) -> float:
    """Share of the weights that one token passes: how many of the others each further token adds."""
    return shape.active_parameters / shape.parameters

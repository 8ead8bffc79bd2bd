"""`Model`: a workload without its data, as `goodput trace fit` makes it and `goodput trace synth` replays it."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from workloads.errors import WorkloadError

SCHEMA: Literal["goodput.workload/1"] = "goodput.workload/1"
BUILTIN = ("azure-conv", "azure-code")

Knots = list[tuple[float, float]]


class OutputGivenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A table of outputs for each band of prompts: band i holds prompts from `edges[i]` up to `edges[i + 1]`."""

    edges: list[float]
    rows: list[Knots]


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """A Poisson process with a rate for each bin of `bin_s` seconds, starting over after the last."""

    bin_s: float
    rates_per_s: list[float]


class Gaps(msgspec.Struct, frozen=True, kw_only=True, tag="gaps"):
    """Gaps from a table; `memory` (0 to 1) is what a gap's rank owes to a level that lasts about `over` requests."""

    gap_s: Knots
    memory: float = 0.0
    over: float = 1.0


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """Kolmogorov-Smirnov distance of generated rows to the data, and of random halves of the data to each other."""

    fitted: float
    floor: float


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the data and of the model (median of generated traces of the same length)."""

    data: float | None
    model: float | None


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """How near the model is to the trace that it was fitted to; `idc` by window in seconds."""

    generated_rows: int
    prompt_tokens: Distance
    output_tokens: Distance
    output_given_prompt: Distance
    gap_s: Distance | None
    gap_cv: Pair
    idc: dict[str, Pair]


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths and arrivals of a workload as tables of (quantile, value)."""

    schema: Literal["goodput.workload/1"] = SCHEMA
    name: str
    source: str
    rows: int
    mean_rate_per_s: float
    prompt_tokens: Knots
    output_tokens: Knots
    output_given_prompt: OutputGivenPrompt | None = None
    arrivals: Profile | Gaps
    quality: Quality | None = None
    warnings: list[str] = []


def is_model(text: str) -> bool:
    """Whether a file that begins like this is a model."""
    return SCHEMA in text[:400]


def load(path: Path) -> Model:
    """Read a model file; WorkloadError `model` when it is damaged."""
    try:
        return _checked(msgspec.json.decode(path.read_bytes(), type=Model), str(path))
    except OSError as error:
        raise WorkloadError(
            f"The model {path} cannot be read: {error.strerror or error}.", code="file", hint="Check the path."
        ) from error
    except msgspec.MsgspecError as error:
        raise WorkloadError(
            f"{path} is no workload model: {error}.", code="model", hint="`goodput trace fit FILE -o MODEL` writes one."
        ) from error


def encode(model: Model) -> bytes:
    """A model as JSON text, a line per part."""
    parts = msgspec.to_builtins(model)
    lines = [f"  {_text(key)}: {_text(value)}" for key, value in parts.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


@cache
def builtin(name: str) -> Model:
    """A model that comes with the program."""
    if name not in BUILTIN:
        raise WorkloadError(
            f"There is no built-in workload {name!r}.",
            code="unknown_workload",
            hint=f"Choose from {', '.join(BUILTIN)}.",
        )
    return msgspec.json.decode(resources.files("workloads").joinpath("data", f"{name}.json").read_bytes(), type=Model)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _checked(model: Model, path: str) -> Model:
    """The model, when its tables can be drawn from: quantiles from 0 to 1, values above 0, both never going back."""
    tables = {"prompt_tokens": model.prompt_tokens, "output_tokens": model.output_tokens}
    if model.output_given_prompt is not None:
        joint = model.output_given_prompt
        tables |= {f"output_given_prompt row {i}": row for i, row in enumerate(joint.rows)}
        if len(joint.edges) != len(joint.rows) + 1 or sorted(joint.edges) != joint.edges:
            raise _bad(path, "output_given_prompt needs growing edges, one more than rows")
    arrivals = model.arrivals
    if isinstance(arrivals, Gaps):
        tables["arrivals.gap_s"] = arrivals.gap_s
        if not 0 <= arrivals.memory <= 1 or not 1 <= arrivals.over < float("inf"):
            raise _bad(path, "the memory of the gaps lies from 0 to 1, over at least 1 request")
    elif not arrivals.bin_s > 0 or min(arrivals.rates_per_s, default=-1) < 0 or not sum(arrivals.rates_per_s) > 0:
        raise _bad(path, "the arrival profile needs rates from 0, not all of them 0")
    for name, knots in tables.items():
        q, values = [at for at, _ in knots], [value for _, value in knots]
        whole = len(knots) > 1 and q[0] == 0 and q[-1] == 1
        if not whole or sorted(q) != q or sorted(values) != values or not 0 < values[0] <= values[-1] < 2**31:
            raise _bad(path, f"the table {name} is no list of (quantile, value) from quantile 0 to 1")
    if model.rows < 1 or not 0 < model.mean_rate_per_s < float("inf"):
        raise _bad(path, "rows and mean_rate_per_s must be above 0")
    return model


def _bad(path: str, what: str) -> WorkloadError:
    return WorkloadError(f"{path} cannot be drawn from: {what}.", code="model", hint="Fit it again.")

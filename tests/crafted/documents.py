"""JSON documents with what a decoder lets through and what it does not, and bytes changed by chance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metrics import rundir
from tests.crafted.base import Craft, crash


def documents() -> Iterator[tuple[str, Craft]]:
    """JSON files with what msgspec lets through and what it does not."""
    odd: dict[str, tuple[Any, ...]] = {
        "gpus": (0, -1, 10**12, 2**70, "two"),
        "workers": (-1, 0, 10**9, 2**70),
        "requests": (-1, 10**18),
        "stopped_at_s": (-1.0, 0.0, 1e308, "x"),
        "duration_s": (0.0, -1.0, 1e308),
        "rate_per_s": (0.0, -1.0, 1e308, 1e-308),
        "warmup_s": (-1.0, 1e308),
        "slo": ("x", "ttft=1s" * 5000, "ttft=1e999s", "\x1b[31m", "ttft=-1s"),
        "name": ("", "\x1b]0;x\x07", "../../x", "n" * 100_000, "\ud7ff"),
        "deployment": ("emulated:", "emulated:nope,tp=99999999999999999999", "a" * 10_000),
        "created_at": ("yesterday", "9999-99-99"),
        "server": (
            {"extrapolated_share": "x"},
            {"extrapolated_share": -5},
            {"prefix_cache_hits": "many"},
            {"usd": "x", "wh": None},
            {"usd": -1.0, "wh": -1.0, "power_model": "x", "idle_share": 2.0},
            {"usd": 1e308, "wh": 1e308, "power_model": 5, "idle_share": "x"},
            {"clock": 5},
            {"measured": "x"},
        ),
        "config": (
            {"master": {"value": []}},
            {"x": {}},
            {"max_in_flight": {"value": "x"}},
            {"a": {"value": ["<script>"]}},
        ),
        "warnings": (["\x1b[2J" * 1000],),
        "tags": ({"\n": "\r::error::x"},),
        "rejected": ({"zero": -5},),
        "state": ("nope", "running", "partial"),
        "versions": ({"goodput": "9" * 10_000},),
        "seed": (2**63, -(2**70)),
        "realtime_minus_monotonic_ns": (2**80, -1),
    }
    for key, values in odd.items():
        for number, value in enumerate(values):
            yield (
                f"run.json: {key} {number}",
                partial(_json, file=rundir.RUN, change=lambda d, k=key, v=value: d | {k: v}),
            )
    for file in (rundir.RUN, rundir.ERRORS, rundir.WORKERS, "prediction.json"):
        for name, content in (
            ("empty", b""),
            ("deep", b"[" * 200_000),
            ("long number", b'{"seed":' + b"1" * 10_000 + b"}"),
            ("nan", b"[NaN]"),
            ("surrogate", b'["\\ud800"]'),
            ("no utf-8", b'["\xff"]'),
            ("another kind", b"17"),
            ("objects", b"[{}]"),
            ("big floats", b"[1e999]"),
        ):
            yield f"{file}: {name}", partial(_whole, file=file, content=content)
    yield "errors.json: none", partial(_whole, file=rundir.ERRORS, content=b"[]")
    yield "errors.json: many", partial(_whole, file=rundir.ERRORS, content=json.dumps(["x" * 1000] * 5000).encode())
    for name, value in (
        ("zero_ns", -1),
        ("zero_ns", 2**63),
        ("cpu_s", -1),
        ("wall_s", 0),
        ("reads", -1),
        ("torn_frames", -3),
        ("worker", 2**40),
        ("clock_steps", -1),
        ("connections_opened", -1),
        ("cached_prompt_tokens", 2**62),
    ):
        yield (
            f"workers.json: {name} {value}",
            partial(_json, file=rundir.WORKERS, change=lambda d, n=name, v=value: [d[0] | {n: v}] * 3),
        )
    for name, odd_value in (
        ("attainment", 1e308),
        ("attainment", -1),
        ("ttft_s", {"n": 0}),
        ("output_tokens_per_s", -1e308),
        ("source", "\x1b[31m"),
        ("notes", ["x"] * 10_000),
    ):
        yield (
            f"prediction.json: {name} {str(odd_value)[:12]}",
            partial(_json, file="prediction.json", change=lambda d, n=name, v=odd_value: d | {n: v}),
        )


def _json(folder: Path, file: str, change: Any) -> None:
    (folder / file).write_text(json.dumps(change(json.loads((folder / file).read_bytes()))))


def _whole(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)


def flips() -> Iterator[tuple[str, Craft]]:
    """Some bytes of any file changed, drawn from a seed."""
    for seed in range(40):
        yield f"flips {seed}", partial(_flip, seed=seed)


def _flip(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if rng.random() < 0.4:
        crash(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    file = files[int(rng.integers(len(files)))]
    data = bytearray(file.read_bytes())
    for _ in range(int(rng.integers(1, 8))):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    file.write_bytes(data)

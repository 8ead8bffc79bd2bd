"""`fit`: a model of a trace whose law is known, its quality, its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from workloads import model
from workloads.errors import WorkloadError
from workloads.fit import conditional_distance, fit
from workloads.model import Gaps, Profile
from workloads.synth import generate
from workloads.trace import Trace


def known(rows: int, *, joint: bool, bursty: bool) -> Trace:
    rng = np.random.default_rng(2)
    gaps = rng.pareto(1.5, rows) + 0.01 if bursty else rng.exponential(0.2, rows)
    prompt = rng.lognormal(6, 1, rows).astype(int) + 1
    output = prompt // 4 + rng.integers(1, 20, rows) if joint else rng.integers(1, 500, rows)
    arrival = np.rint(np.cumsum(gaps) * 1e9).astype(np.int64)
    return Trace("known.csv", arrival - arrival[0], prompt, output)


def test_a_joint_poisson_workload() -> None:
    """Outputs that follow prompts are drawn given them, Poisson arrivals become a profile, all near the floor."""
    trace = known(6000, joint=True, bursty=False)
    found = fit(trace, np.random.default_rng(1))
    assert found.output_given_prompt is not None
    assert isinstance(found.arrivals, Profile)
    assert found.quality is not None
    for distance in (found.quality.prompt_tokens, found.quality.output_tokens):
        assert distance.fitted <= max(0.012, distance.floor)
    assert found.quality.output_given_prompt.fitted < 0.15
    assert ("known", 6000) == (found.name, found.rows)


def test_an_independent_bursty_workload() -> None:
    """Heavy gaps stay a table, independent outputs one table, and the CV is kept."""
    trace = known(3000, joint=False, bursty=True)
    found = fit(trace, np.random.default_rng(1))
    assert found.output_given_prompt is None
    assert isinstance(found.arrivals, Gaps)
    assert found.quality is not None
    assert found.quality.gap_cv.data == pytest.approx(found.quality.gap_cv.model, rel=0.1)


def test_a_model_file(tmp_path: Path) -> None:
    """Written, read and drawn from: the same rows; the same trace and seed give the same bytes."""
    trace = known(500, joint=True, bursty=False)
    found, again = (fit(trace, np.random.default_rng(1)) for _ in range(2))
    assert model.encode(found) == model.encode(again)
    path = tmp_path / "m.json"
    path.write_bytes(model.encode(found))
    loaded = model.load(path)
    assert found == loaded
    drawn = [generate(some, requests=50, rng=np.random.default_rng(3)).content_hash for some in (found, loaded)]
    assert drawn[0] == drawn[1]
    assert model.is_model(path.read_text()[:400])


def test_what_is_not_modelled() -> None:
    """Sessions are named as lost, too short a trace is refused."""
    trace = known(200, joint=False, bursty=False)
    assert ["not_modelled"] == [
        word.split(":")[0] for word in fit(replace(trace, session=np.arange(200)), np.random.default_rng(1)).warnings
    ]
    with pytest.raises(WorkloadError) as caught:
        fit(known(99, joint=False, bursty=False), np.random.default_rng(1))
    assert "too_few_rows" == caught.value.code


def test_conditional_distance() -> None:
    """0 for the same rows, near 1 when a bin's outputs have nothing in common."""
    prompt = np.arange(400, dtype=np.int32)
    low, high = np.ones(400, dtype=np.int32), np.full(400, 9, dtype=np.int32)
    assert 0 == conditional_distance(prompt, low, prompt, low)
    assert 1 == conditional_distance(prompt, low, prompt, high)


BROKEN: list[dict[str, Any]] = [
    {"schema": "goodput.workload/2"},
    {"rows": 0},
    {"mean_rate_per_s": -1.0},
    {"prompt_tokens": [[0, 1.0]]},
    {"prompt_tokens": [[0, 5.0], [1, 1.0]]},
    {"prompt_tokens": [[0, 0.0], [1, 1.0]]},
    {"output_tokens": [[0.1, 1.0], [1, 2.0]]},
    {"arrivals": {"type": "profile", "bin_s": 0, "rates_per_s": [1]}},
    {"arrivals": {"type": "profile", "bin_s": 1, "rates_per_s": [0, 0]}},
    {"arrivals": {"type": "gaps", "gap_s": [[0, 1.0], [1, 2.0]], "memory": 2}},
    {"arrivals": {"type": "weather"}},
    {"output_given_prompt": {"edges": [1, 5], "rows": []}},
]


@pytest.mark.parametrize("change", BROKEN, ids=[str(change)[:40] for change in BROKEN])
def test_models_that_cannot_be_drawn_from(change: dict[str, Any], tmp_path: Path) -> None:
    """A stranger's file is checked before it is used."""
    good = msgspec.to_builtins(model.builtin("azure-code"))
    path = tmp_path / "m.json"
    path.write_bytes(msgspec.json.encode(good | change))
    with pytest.raises(WorkloadError) as caught:
        model.load(path)
    assert "model" == caught.value.code


def test_no_such_file(tmp_path: Path) -> None:
    """The user's error, in words."""
    with pytest.raises(WorkloadError) as caught:
        model.load(tmp_path / "absent.json")
    assert "file" == caught.value.code


@pytest.mark.parametrize("name", model.BUILTIN)
def test_builtin_models_are_in_order(name: str, tmp_path: Path) -> None:
    """They pass the same check as a stranger's, carry their licence and their quality."""
    path = tmp_path / "m.json"
    path.write_bytes(model.encode(model.builtin(name)))
    found = model.load(path)
    assert "CC-BY 4.0" in found.source
    assert found.quality is not None
    assert found.quality.prompt_tokens.fitted <= 0.012

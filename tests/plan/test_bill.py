"""Prices, power, and what is said of designs that nobody measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.plan.bill import at_work, power_model, prices_of, unmeasured, usd_per_hour
from loadtest.search.windows import Windows, without_edges

LLAMA_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}


def test_prices_are_for_all_or_by_name() -> None:
    """Anything else is refused."""
    assert {"h100": 2.5, "a100": 2.5} == prices_of("2.5", ("h100", "a100"))
    assert {"h100": 3.0, "a100": 1.0} == prices_of("h100=3,a100=1", ("h100", "a100"))
    assert {} == prices_of(None, ("h100",))
    for text in ("cheap", "-1", "b200=3", "h100=0", "inf", "nan"):
        with pytest.raises(UsageError, match="is not a price"):
            prices_of(text, ("h100", "a100"))


def test_an_hour_costs_what_its_gpus_cost() -> None:
    """8 H100 at 3 dollars and 8 A100 at the list's 2.21."""
    mixed = Deployment.parse("emulated:disaggregated,prefill_hardware=h100,decode_hardware=a100")
    assert pytest.approx(8 * 3.0 + 8 * 2.21) == usd_per_hour(mixed, {"h100": 3.0})


def test_rows_that_are_compared_have_one_power_model() -> None:
    """GPUs at two levels where all were measured, else every machine at its constant power."""
    assert ["two-level", "constant", "constant"] == [
        power_model(kinds) for kinds in (("a100",), ("a100", "h100"), ("h100",))
    ]


def test_constant_power_is_that_of_the_machines() -> None:
    """10.2 kW for 8 H100, whatever they do; two levels stay between idle and peak, and grow with the load."""
    windows = Windows("azure-conv")
    loads = [without_edges(windows.trace(0, rate, 200)) for rate in (0.2, 2.0)]
    assert 10_200 == pytest.approx(at_work(Deployment.parse("emulated:chunked"), loads[0], "constant").watts)
    a100 = Deployment.parse("emulated:chunked,hardware=a100")
    light, heavy = (at_work(a100, load, "two-level").watts for load in loads)
    assert 0.15 * 8 * 400 < light < heavy < 8 * 400


def test_what_nobody_measured_is_said_once(tmp_path: Path) -> None:
    """A model from its config.json, its GPUs by name, and whose efficiencies are borrowed."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    designs = [f"emulated:chunked,model={path},hardware={kind}" for kind in ("h100", "l40s", "h100")]
    first, second = unmeasured("my-8b", designs)
    assert first.startswith("nobody measured my-8b on h100 or l40s at these degrees")
    assert "efficiencies of l40s are assumed" in second
    assert [] == unmeasured("llama2-70b", ["emulated:chunked"])
    assert (
        1.0
        == at_work(
            Deployment.parse(designs[0]), without_edges(Windows("azure-conv").trace(0, 5.0, 100)), "constant"
        ).extrapolated
    )

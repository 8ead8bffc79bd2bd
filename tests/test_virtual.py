"""Simulations as run directories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.backends.simulator import run_simulation
from loadtest.deployment import Deployment
from loadtest.record import planned_info, record
from loadtest.target import SimulatedTarget
from loadtest.virtual import costs, model_facts, record_simulation, server_facts
from metrics import rundir
from metrics.slo import SLO
from metrics.summary import summarise
from workloads.schedule import Schedule, plan
from workloads.synth import generate

SLO_TEXT = "ttft=1s,tpot=60ms"


def schedule(requests: int = 200, rate_per_s: float = 2.0) -> Schedule:
    trace = generate("azure-conv", requests=requests, rate_per_s=rate_per_s, rng=np.random.default_rng(1))
    return plan(trace, seed=1, salt="")


def test_a_simulation_is_a_run_that_reports_read(tmp_path: Path) -> None:
    """Written, loaded and summarised like a live one; simulated stamps are no reason for doubt."""
    deployment = Deployment.parse("emulated:disaggregated")
    directory = rundir.create(tmp_path / "run")
    run = record_simulation(deployment, schedule(), directory, SLO.parse(SLO_TEXT))
    again = rundir.load(directory)
    assert again.table.rows.tobytes() == run.table.rows.tobytes()
    assert ("complete", "disaggregated", 16, SLO_TEXT) == (
        again.info.state,
        again.info.arrangement,
        again.info.gpus,
        again.info.slo.removesuffix(",share=90%"),
    )
    assert "4-norm" == again.info.server["prefill_form"]
    summary = summarise(again, SLO.parse(SLO_TEXT))
    assert summary.attainment is not None
    assert summary.attainment.share is not None
    assert "valid" == summary.validity.verdict
    assert summary.itl_s is not None


def test_time_outside_the_calibration_is_a_warning_with_its_share(tmp_path: Path) -> None:
    """300 requests wait where at most 64 were measured (case N17): the report says so and how much."""
    deployment = Deployment.parse("emulated:chunked")
    run = record_simulation(deployment, schedule(300, 100.0), rundir.create(tmp_path / "run"))
    share = run.info.server["extrapolated_share"]
    assert isinstance(share, float)
    assert 0.1 < share < 1.0
    (finding,) = [f for f in summarise(run, None).validity.findings if f.code == "extrapolated_model"]
    assert "warning" == finding.level


def test_a_machine_that_nobody_measured_is_extrapolated_all_the_time() -> None:
    """The roofline's answer is marked as a whole."""
    deployment = Deployment.parse("emulated:chunked,hardware=h200")
    facts = server_facts(deployment, run_simulation(deployment, schedule()))
    assert (1.0, False) == (facts["extrapolated_share"], facts["measured"])


def test_every_simulated_target_says_how_far_to_trust_it(tmp_path: Path) -> None:
    """Whoever measures on the simulator, compare and gate too, gets the share and the cost into run.json (N17)."""
    with SimulatedTarget(Deployment.parse("emulated:chunked,hardware=l40s")) as target:
        run = record(target, schedule(20), planned_info(target, schedule(20)), rundir.create(tmp_path / "run"))
    assert (1.0, "virtual") == (run.info.server["extrapolated_share"], run.info.server["clock"])
    assert {"usd", "wh", "power_model", "idle_share"} <= set(run.info.server)


def test_an_emulated_server_is_as_far_from_what_was_measured_as_the_simulator() -> None:
    """Its share of time outside is that of the same schedule simulated; it says nothing of money."""
    deployment = Deployment.parse("emulated:chunked")
    planned = schedule(300, 100.0)
    facts = model_facts(deployment, planned)
    assert run_simulation(deployment, planned).stats.extrapolated_share == facts["extrapolated_share"] != 0
    assert {"performance_model", "prefill_form", "measured", "extrapolated_share"} == facts.keys()


def test_a_summary_holds_the_bill_under_any_slo(tmp_path: Path) -> None:
    """8 GPUs at 4.76 dollars from first arrival to last token, over all 200 requests, or over the good ones."""
    deployment = Deployment.parse("emulated:chunked,max_num_batched_tokens=512")
    run = record_simulation(deployment, schedule(), rundir.create(tmp_path / "run"))
    rows = run.table.rows
    usd = 8 * 4.76 * (rows["done_s"].max() - rows["scheduled_s"].min()) / 3600
    bill = summarise(run).economy
    assert bill is not None
    assert (usd, usd / 200, None) == (
        pytest.approx(bill.usd),
        pytest.approx(bill.usd_per_request),
        bill.usd_per_good_request,
    )
    strict = SLO.parse("ttft=100ms")
    good = int((rows["first_token_s"] - rows["scheduled_s"] <= 0.1).sum())
    judged = summarise(run, strict).economy
    assert 0 < good < 200
    assert judged is not None
    assert usd / good == pytest.approx(judged.usd_per_good_request)
    assert bill.wh / good == pytest.approx(judged.wh_per_good_request)


def test_prices_of_pools_of_different_kinds_add_up() -> None:
    """8 H100 at 4.76 and 8 A100 at 1.5 dollars an hour, from first arrival to last token."""
    text = "emulated:disaggregated,decode_hardware=a100,decode_gpu_hour_usd=1.5"
    deployment, planned = Deployment.parse(text), schedule()
    simulation = run_simulation(deployment, planned)
    rows = simulation.table.rows
    hours = (rows["done_s"].max() - rows["scheduled_s"].min()) / 3600
    cost = costs(deployment, simulation)
    assert cost is not None
    assert 8 * (4.76 + 1.5) * hours == pytest.approx(cost.usd)


def test_a_power_cap_saves_energy_and_costs_time() -> None:
    """350 W less on each of 8 prefill GPUs; prompts take longer."""
    planned = schedule()
    free, capped = (
        (deployment := Deployment.parse(text), run_simulation(deployment, planned))
        for text in ("emulated:disaggregated", "emulated:disaggregated,prefill_power_cap_w=350")
    )
    watts = []
    for deployment, simulation in (free, capped):
        rows = simulation.table.rows
        cost = costs(deployment, simulation)
        assert cost is not None
        watts.append(cost.wh * 3600 / (rows["done_s"].max() - rows["scheduled_s"].min()))
    assert 8 * 350 == pytest.approx(watts[0] - watts[1])
    assert np.median(free[1].table.rows["prefill_s"]) < np.median(capped[1].table.rows["prefill_s"])


def test_nothing_served_costs_nothing_to_divide() -> None:
    """All requests too long: no cost rather than a division by zero."""
    deployment = Deployment.parse("emulated:chunked,max_model_len=2")
    assert costs(deployment, run_simulation(deployment, schedule(5))) is None

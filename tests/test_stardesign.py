"""The star design finds the model it measures: on the virtual clock exactly, over real sockets nearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.server import command
from loadtest.backends.simulator import simulate
from loadtest.calibrate import Group, pinned_ms
from loadtest.deployment import Deployment
from loadtest.errors import TargetError
from loadtest.replay.endpoint import Endpoint
from loadtest.stardesign import QUICK, Design, calibrate_live, measure_with
from loadtest.supervise import Server
from loadtest.target import LiveTarget
from metrics.records import Outcome, RecordTable
from workloads.schedule import Schedule

DEMO = Group("demo-8b", "h100", 1)
FEWEST = Design(prompts=(128, 1024, 4096, 8192), batches=(8, 32), output=16, repeats=1, mixed=())
WHOLE_PROMPTS = "model=demo-8b,max_num_batched_tokens=16384"


@pytest.mark.parametrize("arrangement", ["colocated", "chunked"])
def test_a_simulated_server_gives_its_coefficients_back(arrangement: str) -> None:
    """Prefill and decode to a thousandth; prompts among decodes, which no fit has seen, within 2 %."""
    deployment = Deployment.parse(f"emulated:{arrangement},{WHOLE_PROMPTS}")
    fitted = calibrate_live(DEMO, lambda schedule: simulate(deployment, schedule), Design(), pinned_ms(DEMO))
    true = load_perf_model("demo-8b", "h100", 1).profile
    assert (9, 15) == (fitted.prefill_points, fitted.decode_points)
    assert (9.888, 0.02647, 0.01063) == pytest.approx(
        (
            fitted.profile.prefill.base_ms,
            fitted.profile.prefill.per_token_ms,
            fitted.profile.prefill.per_token_over_2048_ms,
        ),
        rel=2e-3,
    )
    assert true.decode.base_ms == pytest.approx(fitted.profile.decode.base_ms, rel=1e-3)
    assert true.decode.per_request_ms == pytest.approx(fitted.profile.decode.per_request_ms, rel=1e-3)
    assert fitted.mixed_error_percent is not None
    assert fitted.mixed_error_percent < 2


def test_a_late_prompt_that_met_no_decode_is_no_error_of_the_fit() -> None:
    """Its first token came after the last of the decodes: their gaps say nothing of it."""

    def slow_to_begin(schedule: Schedule) -> RecordTable:
        table = simulate(Deployment.parse(f"emulated:chunked,{WHOLE_PROMPTS}"), schedule)
        if table.rows["scheduled_s"][-1] > 0:
            table.rows["first_token_s"][-1] = 1e3
        return table

    assert calibrate_live(DEMO, slow_to_begin, QUICK, None).mixed_error_percent is None


def test_without_knowing_the_machine_context_is_fitted_too() -> None:
    """cK comes out of the long prompts alone."""
    deployment = Deployment.parse(f"emulated:chunked,{WHOLE_PROMPTS}")
    fitted = calibrate_live(Group("x", "y", 1), lambda schedule: simulate(deployment, schedule), Design(), None)
    assert 6.019e-5 == pytest.approx(fitted.profile.decode.per_context_token_ms, rel=1e-2)


def test_the_design_keeps_to_the_servers_context_and_batch() -> None:
    """Prompts that would be refused are not asked for, nor batches that would not all run."""
    assert (32, 64, 128, 256, 512, 1024) == Design().within(2000).prompts
    assert ((2, 4, 8), 7) == (lambda design: (design.batches, design.mixed_batch))(Design().within(None, 8))
    assert Design() == Design().within(None)


def test_a_server_that_fails_cannot_be_calibrated() -> None:
    """One sentence, before hours of measuring."""

    def refuse(schedule: Schedule) -> RecordTable:
        table = simulate(Deployment.parse("emulated:chunked"), schedule)
        table.rows["outcome"] = Outcome.HTTP_ERROR
        return table

    with pytest.raises(TargetError, match="does not stream a request"):
        calibrate_live(DEMO, refuse, QUICK, None)


def test_answers_without_text_are_no_points() -> None:
    """A server whose tokens are half characters shows no steps: one sentence instead of a fit to them."""

    def mute(schedule: Schedule) -> RecordTable:
        table = simulate(Deployment.parse(f"emulated:chunked,{WHOLE_PROMPTS}"), schedule)
        table.rows["token_events"] = table.rows["output_tokens"] // 6
        return table

    with pytest.raises(TargetError, match="0 prefill and 0 decode points"):
        calibrate_live(DEMO, mute, QUICK, None)


def test_a_live_emulated_server_is_measured_over_sockets(tmp_path: Path) -> None:
    """Slopes within 15 %, fixed costs within 3 ms: HTTP and a busy test machine are in what a client sees."""
    with (
        Server(command(f"emulated:chunked,{WHOLE_PROMPTS}"), log=tmp_path / "server.log") as server,
        measure_with(lambda settings: LiveTarget(Endpoint.parse(server.url), settings)) as (measure, max_model_len),
    ):
        assert 16384 == max_model_len
        fitted = calibrate_live(DEMO, measure, FEWEST, pinned_ms(DEMO))
    true = load_perf_model("demo-8b", "h100", 1)
    found = fitted.profile
    assert true.profile.decode.base_ms == pytest.approx(found.decode.base_ms, abs=3)
    assert true.profile.decode.per_request_ms == pytest.approx(found.decode.per_request_ms, rel=0.3)
    ms = (found.prefill.per_token_ms * 8192 + found.prefill.per_token_over_2048_ms * 6144) / 8192
    assert 1e3 * true.prefill_s(8192, 8192**2) / 8192 == pytest.approx(ms, rel=0.15)

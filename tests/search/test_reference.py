"""Times on an idle server: from the model, from measured rows, and the targets made of them."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.backends.simulator import simulate
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.search.reference import measured_unloaded, model_unloaded, reference_deployment, suggest
from metrics.records import RecordTable
from workloads.schedule import plan
from workloads.trace import Trace

CHUNKED = Deployment.parse("emulated:chunked")


def idle(prompts: list[int], output: int) -> RecordTable:
    """Requests a minute apart, so that each is alone."""
    count = len(prompts)
    trace = Trace(
        "idle",
        np.arange(count, dtype=np.int64) * 60_000_000_000,
        np.array(prompts, dtype=np.int32),
        np.full(count, output, dtype=np.int32),
    )
    return simulate(CHUNKED, plan(trace, seed=0, salt=""))


def test_the_model_and_an_idle_server_tell_the_same() -> None:
    """Within 5 % for prompts of one chunk, the token time within 1 %."""
    model = model_unloaded(CHUNKED)
    measured = measured_unloaded(idle([100, 300, 600, 900, 1200, 1500, 1900], 32))
    prompts = np.array([200, 500, 1000, 1800])
    assert np.allclose(model.ttft_s(prompts), measured.ttft_s(prompts), rtol=0.05)
    assert np.allclose(model.tpot_s(prompts), measured.tpot_s(prompts), rtol=0.01)
    assert (False, True) == (model.measured, measured.measured)


def test_the_reference_of_each_row_is_its_own_time_alone() -> None:
    """What the simulator says of a lone request; one token has no TPOT."""
    table = idle([512, 1024], 100)
    reference = model_unloaded(CHUNKED).reference(table.rows)
    perf = resolve(CHUNKED).pools[0].perf
    assert pytest.approx([perf.prefill_s(512, 512**2), perf.prefill_s(1024, 1024**2)], rel=0.01) == reference.ttft_s
    assert pytest.approx(perf.decode_s(1, 562), rel=1e-3) == reference.tpot_s[0]
    assert np.isnan(model_unloaded(CHUNKED).reference(idle([512], 1).rows).tpot_s).all()


def test_splitwise_compares_with_an_a100_machine() -> None:
    """Where the model was measured there."""
    assert "a100" == reference_deployment(CHUNKED).pools[0].hardware
    assert "h100" == reference_deployment(Deployment.parse("emulated:chunked,model=demo-8b")).pools[0].hardware


def test_targets_for_a_user_who_has_none_are_5_and_25_times_the_unloaded_times() -> None:
    """Of the median request, to two digits; they hold on the idle server."""
    unloaded = model_unloaded(CHUNKED)
    found = suggest(unloaded, np.array([1000, 1000, 1000]), np.array([100, 100, 100]))
    assert pytest.approx(float(unloaded.ttft_s(np.array(1000)))) == found.ttft_s
    assert f"ttft={round(found.ttft_s * 5 * 1e3, -1):.0f}ms" == found.strict.split(",")[0]
    assert f"tpot={round(found.tpot_s * 25 * 1e3, -1):.0f}ms" == found.relaxed.split(",")[1]

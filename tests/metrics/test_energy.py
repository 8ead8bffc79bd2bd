from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.energy import PoolUse, alone_usd, alone_wh, economy, prompt_power, told_economy
from metrics.errors import MetricsError


def pool(hardware: str = "a100", **changes: float) -> PoolUse:
    return PoolUse(
        **{  # type: ignore[arg-type]
            "hardware": hardware,
            "instances": 2,
            "gpus_per_instance": 8,
            "gpu_power_w": 400.0,
            "machine_power_w": 13_000.0,
            "gpu_hour_usd": 2.21,
            "prefill_s": 100.0,
            "decode_s": 1000.0,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("e2e_ms", "usd_per_hour", "kw", "cents", "wh"),
    [(856, 17.68, 5.75, 0.420, 1.37), (493, 38.08, 10.0, 0.521, 1.37), (4957, 17.68, 5.75, 2.43, 7.9)],
)
def test_the_cells_of_splitwises_table(e2e_ms: float, usd_per_hour: float, kw: float, cents: float, wh: float) -> None:
    """A request alone on a machine costs its time x the machine's price, in cents, and its time x constant power."""
    assert cents == pytest.approx(100 * alone_usd(e2e_ms / 1e3, usd_per_hour), rel=0.005)
    assert wh == pytest.approx(alone_wh(e2e_ms / 1e3, 1e3 * kw), rel=0.005)


def test_money_is_all_gpus_all_the_time() -> None:
    """16 GPUs for an hour at 2.21 are 35.36, over 1,000 requests or the 500 good ones."""
    cost = economy([pool()], 3600.0, served=1000, good=500)
    assert 35.36 == pytest.approx(cost.usd)
    assert (0.03536, 0.07072) == pytest.approx((cost.usd_per_request, cost.usd_per_good_request))


def test_two_levels_by_hand() -> None:
    """8 GPUs of 400 W: 100 s of prefill at .75 (512 tokens), 1,000 s of decode at .45, 900 s idle at .15."""
    cost = economy([pool()], 1000.0, served=10, good=None)
    assert 8 * 400 * (100 * 0.75 + 1000 * 0.45 + 900 * 0.15) / 3600 == pytest.approx(cost.wh)
    assert "two-level" == cost.power_model
    assert 0.45 == pytest.approx(cost.idle_share)
    assert cost.usd_per_good_request is None


def test_gpus_that_were_not_measured_draw_constant_power() -> None:
    """13 kW for 1,000 s, busy or not."""
    cost = economy([pool("h100")], 1000.0, served=10, good=0)
    assert 13_000 * 1000 / 3600 == pytest.approx(cost.wh)
    assert "constant" == cost.power_model
    assert cost.wh_per_good_request is None


def test_what_a_run_tells_is_shared_out() -> None:
    """10 dollars and 5 kWh over 100 requests of which 40 were good; a run that tells nothing has no bill."""
    told = {"usd": 10.0, "wh": 5000.0, "power_model": "constant", "idle_share": 0.25, "clock": "virtual"}
    bill = told_economy(told, served=100, good=40.0)
    assert bill is not None
    assert (0.1, 0.25, 50.0, 125.0) == (
        bill.usd_per_request,
        bill.usd_per_good_request,
        bill.wh_per_request,
        bill.wh_per_good_request,
    )
    assert ("constant", 0.25) == (bill.power_model, bill.idle_share)
    assert told_economy({"usd": 10.0}, 100) is None
    assert told_economy({}, 100) is None


@given(st.floats(1, 20_000), st.floats(1, 20_000))
def test_prompt_power_climbs_with_the_batch(one: float, other: float) -> None:
    """More tokens never draw less; .46 at 128 tokens, 1.0 at 8,192."""
    low, high = sorted((one, other))
    assert 0.46 <= prompt_power(low) <= prompt_power(high) <= 1.0
    assert (0.46, 0.75, 1.0) == (prompt_power(128), prompt_power(512), prompt_power(8192))


def test_a_run_without_length_has_no_cost() -> None:
    """One sentence instead of a division by zero."""
    with pytest.raises(MetricsError, match="a run of 0 s has no cost"):
        economy([pool()], 0.0, 1, 1)

from __future__ import annotations

import pytest

from loadtest.backends.hardware import hardware, hardware_file
from loadtest.backends.perfmodel import PerfModel, capped_slowdown, load_model, load_perf_model
from loadtest.backends.roofline import Roofline
from loadtest.backends.shape import Shape
from loadtest.errors import UsageError

MEASURED = [
    PerfModel(load_model(name), profile)
    for name in ("llama2-70b", "bloom-176b")
    for profile in load_model(name).profiles
]
EIGHT_B = Shape(32, 4096, 8.03e9, 8.03e9, 131_072, 2)


def test_the_terms_by_hand() -> None:
    """8B on one H100, 1,000 tokens: 3.776 + 0.26 ms of overhead, 16.06e12 FLOP at 73 %, 16.06 GB at 88.5 %."""
    terms = Roofline(EIGHT_B, "h100", 1).prefill(1000, 1_000_000)
    assert 0.004036 == pytest.approx(terms.overhead_s)
    assert 16.06e12 / (989e12 * 0.73) + 4 * 4096 * 32 * 5e5 / (989e12 * 0.5) == pytest.approx(terms.compute_s)
    assert 16.06e9 / (3.35e12 * 0.885) == pytest.approx(terms.memory_s)
    assert (0.0, "compute") == (terms.link_s, terms.binding)


def test_prefill_is_bound_by_compute_and_decode_by_memory() -> None:
    """The claim that disaggregation rests on, on a fast engine without the overheads of 2023."""
    line = Roofline(Shape(80, 8192, 68.98e9, 68.98e9, 327_680, 2), "h100", 2)
    assert "compute" == line.prefill(2048, 2048**2).binding
    assert "memory" == line.decode(8, 8 * 1000).binding


@pytest.mark.parametrize(
    "perf", MEASURED, ids=lambda perf: f"{perf.model.model}-{perf.profile.hardware}-{perf.profile.tp}"
)
def test_the_roofline_is_near_what_was_measured(perf: PerfModel) -> None:
    """Within 30 % for prefill and 15 % for decode of every measured model, GPU and degree."""
    line = Roofline(perf.model.shape, perf.profile.hardware, perf.profile.tp)
    for n in (512, 1024, 2048, 4096):
        assert perf.prefill_s(n, n * n) == pytest.approx(line.prefill(n, n * n).total_s, rel=0.30)
    for batch in (1, 8, 32):
        assert perf.decode_s(batch, batch * 576) == pytest.approx(line.decode(batch, batch * 576).total_s, rel=0.15)


def test_experts_are_read_as_tokens_touch_them() -> None:
    """One token reads the active parameters, many read all."""
    line = Roofline(Shape(32, 4096, 46.7e9, 12.9e9, 131_072, 2), "h100", 2)
    assert 2 * 12.9e9 == pytest.approx(line.decode(1, 0).bytes)
    assert 2 * 46.7e9 == pytest.approx(line.decode(64, 0).bytes, rel=0.01)
    assert 2 * 12.9e9 * 64 == pytest.approx(line.decode(64, 0).flops)


@pytest.mark.parametrize("gpu", list(hardware_file().hardware))
def test_every_gpu_can_be_emulated(gpu: str) -> None:
    """An iteration takes longer than the memory allows; nothing counts as calibrated but a100 and h100."""
    perf = load_perf_model("llama2-70b", gpu, 8)
    floor_s = 2 * 68.98e9 / (8 * hardware(gpu).bandwidth_tb_s * 1e12)
    assert floor_s < perf.decode_s(1, 500) < 0.1
    assert (gpu in ("a100", "h100")) == perf.profile.measured == (perf.calibrated_batch > 0)


@pytest.mark.parametrize("gpu", list(hardware_file().hardware))
def test_every_gpu_has_its_source(gpu: str) -> None:
    """Where its figures come from stands beside them; of a GPU that nobody measured also what could not be verified."""
    source = hardware(gpu).source
    assert source
    assert (gpu in ("a100", "h100")) != ("Not verified: " in source)


def test_faster_memory_decodes_faster() -> None:
    """H200 has H100's arithmetic and 1.43 times its bandwidth."""
    h100, h200 = (Roofline(EIGHT_B, gpu, 1) for gpu in ("h100", "h200"))
    assert h200.decode(8, 8000).total_s < h100.decode(8, 8000).total_s
    assert h100.prefill(4096, 4096**2).compute_s == h200.prefill(4096, 4096**2).compute_s


def test_a_power_cap_slows_prompts_and_not_decodes() -> None:
    """At half the power 1.30 for the arithmetic of prompts, as in Splitwise's simulator."""
    gpu = hardware("h100")
    assert [1.0, 1.15, 1.3] == pytest.approx([capped_slowdown(gpu, cap) for cap in (None, 525, 350)])
    free, capped = load_perf_model("llama2-70b", "h100", 8), load_perf_model("llama2-70b", "h100", 8, 350)
    assert 1.2 < capped.prefill_s(4096, 4096**2) / free.prefill_s(4096, 4096**2) <= 1.3
    assert capped.decode_s(8, 8000) == free.decode_s(8, 8000)
    with pytest.raises(UsageError, match="outside 350 to 700 W"):
        load_perf_model("llama2-70b", "h100", 8, 200)


def test_an_unknown_gpu_names_the_nearest() -> None:
    """A misspelt GPU is a usage error with a suggestion."""
    with pytest.raises(UsageError, match="no hardware 'h1000'; did you mean 'h100'"):
        hardware("h1000")

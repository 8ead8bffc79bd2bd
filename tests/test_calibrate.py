"""Fits of tables: the published one where it is at hand, and made ones with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.backends.hardware import hardware
from loadtest.backends.perfmodel import PerfModel, load_model, load_perf_model, model_of
from loadtest.backends.shape import Shape
from loadtest.calibrate import COLUMNS, TIMES, bounds, calibrate_csv, to_model
from loadtest.deployment import Deployment
from loadtest.errors import UsageError

PUBLISHED = Path(__file__).parents[2] / "shared" / "perf" / "splitwise_perf_model.csv"
LEFT_OUT_ERRORS = {  # prefill and decode per cent, docs/backends.md
    ("bloom-176b", "a100", 8): (11.0, 2.2),
    ("bloom-176b", "h100", 8): (5.6, 1.9),
    ("llama2-70b", "a100", 2): (7.1, 3.6),
    ("llama2-70b", "a100", 4): (11.3, 3.7),
    ("llama2-70b", "a100", 8): (8.2, 3.2),
    ("llama2-70b", "h100", 2): (2.0, 1.9),
    ("llama2-70b", "h100", 4): (2.9, 2.3),
    ("llama2-70b", "h100", 8): (8.0, 2.1),
}


def table(path: Path, rows: list[tuple[object, ...]], columns: tuple[str, ...] = (*COLUMNS, *TIMES)) -> Path:
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def star(scale: float = 1.0, model: str = "llama2-70b", gpu: str = "h100", tp: int = 8) -> list[tuple[object, ...]]:
    """A table that the shipped model would give, three repeats of each cell."""
    perf = load_perf_model("llama2-70b", "h100", 8)
    cells = [(n, 1) for n in (128, 256, 512, 1024, 2048, 4096, 8192)] + [(512, b) for b in (2, 4, 8, 16, 32, 64)]
    rows: list[tuple[object, ...]] = []
    for n, batch in cells:
        prompt_ms = 1e3 * scale * perf.prefill_s(n * batch, batch * n * n)
        token_ms = 1e3 * scale * perf.decode_s(batch, batch * (n + 64))
        rows += [(model, gpu, tp, n, batch, 128, prompt_ms * wobble, token_ms * wobble) for wobble in (0.98, 1, 1.05)]
    return rows


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published table is not beside the project")
def test_the_published_table_gives_the_shipped_coefficients() -> None:
    """Decode to four digits, prefill within 4 %, left-out errors within 0.7 points; copies and broken cells go."""
    found = calibrate_csv(PUBLISHED)
    assert set(LEFT_OUT_ERRORS) == {(fit.model, fit.profile.hardware, fit.profile.tp) for fit in found.fits}
    for fit in found.fits:
        key = (fit.model, fit.profile.hardware, fit.profile.tp)
        shipped = load_perf_model(*key).profile
        assert shipped.decode.base_ms == pytest.approx(fit.profile.decode.base_ms, rel=5e-4)
        assert shipped.decode.per_request_ms == pytest.approx(fit.profile.decode.per_request_ms, rel=5e-4)
        assert shipped.decode.per_context_token_ms == pytest.approx(fit.profile.decode.per_context_token_ms, rel=5e-4)
        assert shipped.prefill.base_ms == pytest.approx(fit.profile.prefill.base_ms, rel=0.04)
        assert shipped.prefill.per_token_ms == pytest.approx(fit.profile.prefill.per_token_ms, rel=0.04)
        errors = (fit.profile.prefill.error_percent, fit.profile.decode.error_percent)
        assert LEFT_OUT_ERRORS[key] == pytest.approx(errors, abs=0.7)
    assert 4 == sum("not measured" in warning for warning in found.warnings)
    assert 2 == sum("64 prompts of 512 tokens" in warning for warning in found.warnings)


def test_a_table_made_from_a_model_gives_it_back(tmp_path: Path) -> None:
    """Medians of the repeats; without error in the data there is none in the fit."""
    (fit,) = calibrate_csv(table(tmp_path / "t.csv", star())).fits
    shipped = load_perf_model("llama2-70b", "h100", 8).profile
    assert (13, 13) == (fit.prefill_points, fit.decode_points)
    assert {"prompt": 8192, "batch": 64} == fit.ranges
    for name in ("base_ms", "per_token_ms", "per_token_over_2048_ms", "per_attended_ms"):
        assert getattr(shipped.prefill, name) == pytest.approx(getattr(fit.profile.prefill, name), rel=1e-3)
    for name in ("base_ms", "per_request_ms", "per_request_over_32_ms", "per_mean_context_ms"):
        assert getattr(shipped.decode, name) == pytest.approx(getattr(fit.profile.decode, name), rel=1e-3)
    assert fit.profile.prefill.error_percent < 0.1


def test_a_calibration_is_a_model_to_deploy(tmp_path: Path) -> None:
    """What `--out` writes is what `model=FILE.json` reads."""
    import msgspec

    fits = calibrate_csv(table(tmp_path / "t.csv", star(1.5))).fits
    path = tmp_path / "mine.json"
    path.write_bytes(msgspec.json.encode(to_model(fits, "t.csv")))
    slower = load_perf_model(str(path), "h100", 8)
    assert 1.5 * load_perf_model("llama2-70b", "h100", 8).decode_s(8, 8000) == pytest.approx(
        slower.decode_s(8, 8000), rel=0.02
    )
    assert (64, 8192) == (slower.calibrated_batch, slower.calibrated_context)
    assert 8 == Deployment.parse(f"emulated:chunked,model={path}").gpus


def test_a_calibration_of_a_cpu_is_deployed_as_one(tmp_path: Path) -> None:
    """Its times are not checked against any peak, it costs nothing, and what was not measured there is refused."""
    import msgspec

    fits = calibrate_csv(table(tmp_path / "t.csv", star(50, model="tiny", gpu="cpu", tp=1))).fits
    base = model_of(Shape(8, 512, 33.6e6, 33.6e6, 16384, 4.0), "tiny", "")
    path = tmp_path / "tiny.json"
    path.write_bytes(msgspec.json.encode(to_model(fits, "t.csv", base)))
    deployment = Deployment.parse(f"emulated:chunked,model={path},hardware=cpu,num_gpu_blocks=4096")
    perf = load_perf_model(str(path), "cpu", 1)
    assert ("tiny", 1, 64) == (perf.model.model, deployment.gpus, perf.calibrated_batch)
    assert 50 * load_perf_model("llama2-70b", "h100", 8).decode_s(8, 8000) == pytest.approx(
        perf.decode_s(8, 8000), rel=0.02
    )
    assert 0 == hardware("cpu").gpu_hour_usd
    with pytest.raises(UsageError, match="demo-8b was not measured with hardware=cpu"):
        load_perf_model("demo-8b", "cpu", 1)
    with pytest.raises(UsageError, match="outside 0 to 0 W"):
        load_perf_model(str(path), "cpu", 1, 100.0)


@pytest.mark.parametrize("scale", [1e-3, 1e3], ids=["seconds", "microseconds"])
def test_a_slip_of_units_is_refused(tmp_path: Path, scale: float) -> None:
    """Times that the machine's memory and arithmetic forbid, or a hundred times more."""
    with pytest.raises(UsageError, match="cannot be true") as caught:
        calibrate_csv(table(tmp_path / "t.csv", star(scale)))
    assert "implausible_table" == caught.value.code


def test_a_model_or_gpu_that_nobody_knows_is_fitted_without_that_check(tmp_path: Path) -> None:
    """There is nothing to compare with, and the cost of context is fitted too."""
    (fit,) = calibrate_csv(table(tmp_path / "t.csv", star(1e-3, model="mystery", gpu="tpu"))).fits
    assert 0.0 == fit.profile.decode.per_mean_context_ms
    assert fit.profile.decode.per_context_token_ms > 0


def test_copied_and_broken_rows_are_left_out_and_said(tmp_path: Path) -> None:
    """A capped GPU whose token times are another's was calculated; a batch that took no time did not run."""
    rows = star()
    copies = [(row[0], "h100-capped", *row[2:6], 1.3 * float(str(row[6])), row[7]) for row in rows]
    broken = [(*row[:6], 60.0, row[7]) if row[3:5] == (512, 64) else row for row in rows]
    found = calibrate_csv(table(tmp_path / "t.csv", [*broken, *copies]))
    assert [12] == [fit.prefill_points for fit in found.fits]
    assert any("not measured" in warning for warning in found.warnings)
    assert any("64 prompts of 512 tokens took 60 ms" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has no column model, hardware"),
        (",".join((*COLUMNS, *TIMES)) + "\n", "has no rows"),
        (",".join((*COLUMNS, *TIMES)) + "\nm,h,8,x,1,128,1,1\n", "line 2: invalid literal"),
        (",".join((*COLUMNS, *TIMES)) + "\nm,h,8,512,1,128,0,1\n", "line 2: counts are at least 1"),
        (",".join((*COLUMNS, *TIMES)) + "\nm,h,8,512,1,128,5,nan\n", "line 2: counts are at least 1"),
        (",".join((*COLUMNS, *TIMES)) + "\nm,h,8,512,1,128,5,1\n", "1 combinations with 128 output tokens"),
    ],
)
def test_what_is_no_table_is_said_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    """File, line, and what was expected."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        calibrate_csv(path)


def test_a_table_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(UsageError, match=r"missing\.csv cannot be read"):
        calibrate_csv(tmp_path / "missing.csv")


def test_work_is_told_as_shares_of_the_peaks() -> None:
    """A prompt of 2,048 tokens: 2 x 68.98e9 x 2,048 FLOP and attention in 144 ms, a quarter of 8 x 989 TFLOP/s."""
    perf: PerfModel = load_perf_model("llama2-70b", "h100", 8)
    found = {bound.what: bound for bound in bounds(perf)}
    seconds = perf.prefill_s(2048, 2048**2)
    flops = 2 * 68.98e9 * 2048 + 4 * 8192 * 80 * 2048**2 / 2
    assert flops / seconds / 1e12 == pytest.approx(found["prefill 2048"].tflops)
    assert 25 == pytest.approx(found["prefill 2048"].tflops_percent, abs=2)
    assert found["decode 1 x 1024"].tflops_percent < 0.1
    assert found["decode 1 x 1024"].tbytes_percent > 10
    assert load_model("llama2-70b").hidden == 8192

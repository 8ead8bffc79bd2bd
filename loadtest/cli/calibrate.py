"""`goodput calibrate`: fit a performance model to a table or to a live server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.output import say
from loadtest.errors import UsageError

if TYPE_CHECKING:
    from loadtest.backends.perfmodel import Model
    from loadtest.calibrate import Bound, Calibration, Fitted
    from loadtest.refconfig import Reference


@click.command(cls=options.Command)
@click.option("--csv", type=click.Path(path_type=Path), metavar="FILE", help="Measured table, splitwise-sim's columns.")
@click.option("--target", metavar="URL", help="Or an idle server, one instance: a star of points is measured.")
@click.option("--model", metavar="NAME|FILE", help="Its model: a known name, a config.json, or a calibration.")
@click.option("--hardware", metavar="GPU", help="Its GPU, e.g. h100.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Its tensor parallelism.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Of each point.")
@click.option("--quick", is_flag=True, help="Fewer and shorter points: a look, not a calibration.")
@click.option("--api-key-env", metavar="VARIABLE", help="Variable that holds the API key.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it for model=FILE; ends in .json.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def calibrate(**given: Any) -> None:
    """Fit iteration times to a table, to a live server, or to nothing but a model's shape.

    With --model and --hardware alone the unified roofline answers, marked as not measured.
    """
    from loadtest.calibrate import Calibration, calibrate_csv
    from loadtest.refconfig import read_reference

    reference = None
    out: Path | None = given["out"]
    if out is not None and (out.suffix != ".json" or out.exists()):
        raise UsageError(f"--out {out} must be a new file that ends in .json", code="output_exists")
    if given["csv"] is not None and given["target"] is not None:
        raise UsageError("give --csv or --target, not both", code="one_of")
    if given["csv"] is not None:
        found = calibrate_csv(given["csv"])
    elif given["target"] is not None:
        reference = read_reference(given["target"])
        found = Calibration([_live(given, reference)], [])
    else:
        found = Calibration([_unmeasured(given)], ["not measured: the unified roofline, which misses by up to 22 %"])
    models = _models(found, str(given["csv"] or given["target"] or given["model"]), reference)
    written = [] if out is None else _write(out, models)
    if given["json"]:
        _print_json(found)
    else:
        _print_text(found)
    for path in written:
        say(f"written: {path}", err=True)
    if out is not None and not models:
        raise UsageError(
            "what was fitted cannot be written: its model is not known",
            hint="say which it is with --model NAME or --model path/to/config.json",
            code="unknown_model",
        )


def _live(given: dict[str, Any], reference: Reference | None) -> Fitted:
    from loadtest.backends.hardware import CPU, hardware
    from loadtest.calibrate import Group, check_times, pinned_ms
    from loadtest.replay.endpoint import Endpoint
    from loadtest.stardesign import QUICK, Design, calibrate_live, measure_with
    from loadtest.target import LiveTarget

    if given["hardware"] is not None:
        hardware(given["hardware"])
    ours = reference is not None and given["model"] is None
    known = reference.model.model if reference is not None else "live"
    machine = CPU if reference is not None and reference.device == CPU else "unknown"
    group = Group(given["model"] or known, given["hardware"] or machine, given["tp"])
    design = QUICK if given["quick"] else Design(repeats=given["repeats"])
    endpoint = Endpoint.parse(given["target"], api_key_env=given["api_key_env"] or "")
    most = reference.max_num_seqs if reference is not None else None
    with measure_with(lambda settings: LiveTarget(endpoint, settings)) as (measure, max_model_len):
        fitted = calibrate_live(group, measure, design.within(max_model_len, most), None if ours else pinned_ms(group))
    check_times(group, fitted.profile)
    return fitted


def _unmeasured(given: dict[str, Any]) -> Fitted:
    from loadtest.backends.perfmodel import load_perf_model
    from loadtest.calibrate import Fitted

    if given["model"] is None or given["hardware"] is None:
        raise UsageError(
            "nothing to fit to",
            hint="give --csv FILE, --target URL, or --model and --hardware for the unified roofline",
            code="one_of",
        )
    perf = load_perf_model(given["model"], given["hardware"], given["tp"])
    return Fitted(given["model"], perf.profile, 0, 0, {"prompt": 0, "batch": 0})


def _models(found: Calibration, source: str, reference: Reference | None) -> list[Model]:
    """One per model that was fitted; none for a live server of which nobody said what it is."""
    from loadtest.calibrate import is_known_model, to_model

    if reference is not None and found.fits[0].model == reference.model.model:
        return [to_model(found.fits, source, reference.model)]
    names = dict.fromkeys(fit.model for fit in found.fits if is_known_model(fit.model))
    return [to_model([fit for fit in found.fits if fit.model == name], source) for name in names]


def _write(out: Path, models: list[Model]) -> list[Path]:
    """A file for each; their paths."""
    from loadtest.cli import output

    paths = [out if len(models) == 1 else out.with_stem(f"{out.stem}-{model.model}") for model in models]
    for path, model in zip(paths, models, strict=True):
        output.write_json(path, model)
    return paths


def _bounds(fit: Fitted) -> list[Bound]:
    from loadtest.backends.hardware import hardware_file
    from loadtest.backends.perfmodel import PerfModel, load_model
    from loadtest.calibrate import bounds, is_known_model

    if not is_known_model(fit.model) or fit.profile.hardware not in hardware_file().hardware:
        return []
    return bounds(PerfModel(load_model(fit.model), fit.profile))


def _print_json(found: Calibration) -> None:
    from loadtest.cli import output
    from loadtest.documents import CalibrationDocument, FitWithBounds

    fits = [FitWithBounds(fit, _bounds(fit)) for fit in found.fits]
    output.print_json(CalibrationDocument(warnings=found.warnings, fits=fits))


def _print_text(found: Calibration) -> None:
    for warning in found.warnings:
        say(f"warning: {warning}", err=True)
    for fit in found.fits:
        prefill, decode = fit.profile.prefill, fit.profile.decode
        say(
            f"{fit.model}, {fit.profile.hardware}, tp {fit.profile.tp}"
            + ("" if fit.prefill_points else ", not measured")
        )
        say(
            f"  prefill  a {prefill.base_ms:.2f}  b {prefill.per_token_ms:.5f}  "
            f"h {prefill.per_token_over_2048_ms:.5f}  d {prefill.per_attended_ms:.3g} ms, {prefill.norm}-norm  "
            + _error(prefill.error_percent, fit.prefill_points)
        )
        say(
            f"  decode   A {(decode.larger or decode).base_ms:.2f}"
            + (f" (alone {decode.base_ms:.2f})" if decode.larger else "")
            + f"  beta {decode.per_request_ms:.4f}  "
            f"beta2 {decode.per_request_over_32_ms:.4f}  cx {decode.per_mean_context_ms:.3g}  "
            f"cK {decode.per_context_token_ms:.4g} ms  " + _error(decode.error_percent, fit.decode_points)
        )
        if fit.mixed_error_percent is not None:
            say(f"  mixed    prompts among decodes, not fitted: off by {fit.mixed_error_percent:.1f} %")
        for bound in _bounds(fit):
            say(
                f"  {bound.what:<17} {bound.ms:8.1f} ms  bound by {bound.binding:<8}"
                f" {bound.tflops:7.0f} TFLOP/s {bound.tflops_percent:4.0f} %"
                f" {bound.tbytes_per_s:6.2f} TB/s {bound.tbytes_percent:4.0f} %"
            )


def _error(percent: float, points: int) -> str:
    return f"left-out error {percent:.1f} % of {points} points" if points else f"{percent:.1f} % off the roofline"

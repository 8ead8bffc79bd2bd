"""Performance models from measured tables: read, look for what cannot be true, fit, say how wrong the fit is.

The table is that of splitwise-sim (`perf_model.csv`): one row per repeat, `model`, `hardware`, `tensor_parallel`,
`prompt_size`, `batch_size`, `token_size`, `prompt_time` and `token_time` in milliseconds. A *cell* is one combination;
its time is the median of its repeats.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from loadtest.backends.fitting import DecodePoint, PrefillPoint, fit_decode, fit_prefill
from loadtest.backends.hardware import hardware, hardware_file
from loadtest.backends.perfmodel import MODELS, Model, PerfModel, Profile, load_model, per_context_token_ms
from loadtest.backends.roofline import Roofline, Terms
from loadtest.errors import UsageError

COLUMNS: Final = ("model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size")
TIMES: Final = ("prompt_time", "token_time")
FIT_OUTPUT_TOKENS: Final = 128  # rows with more often stopped early, and repeat the same prompt times
FEWEST_POINTS: Final = 6
SLOWEST: Final = 100.0  # times the physical floor; 2023's engines are at 5
NOT_MEASURED_DIGITS: Final = 9


class Group(NamedTuple):
    """What was measured together: one model on one kind of GPU at one tensor-parallel degree."""

    model: str
    hardware: str
    tp: int

    def __str__(self) -> str:
        return f"{self.model} on {self.hardware}, tp {self.tp}"


class Cell(NamedTuple):
    """One combination of the design."""

    prompt: int
    batch: int
    output: int


class Times(NamedTuple):
    """Medians of a cell, in milliseconds."""

    prompt_ms: float
    token_ms: float


Table = Mapping[Group, Mapping[Cell, Times]]


class Fitted(msgspec.Struct, frozen=True):
    """One group's fit with the points behind it."""

    model: str
    profile: Profile
    prefill_points: int
    decode_points: int
    ranges: dict[str, int]  # largest prompt and batch that were measured
    mixed_error_percent: float | None = None  # of iterations with prompts and decodes, which no fit has seen
    source: str = ""


class Calibration(msgspec.Struct, frozen=True):
    """Everything a table gave: fits, and what was left out and why."""

    fits: list[Fitted]
    warnings: list[str]


def calibrate_csv(path: Path) -> Calibration:
    """Fit every group of a table; UsageError when it cannot be read or cannot be true."""
    table = read_table(path)
    warnings: list[str] = []
    fits = []
    for group, cells in _without_copies(table, warnings).items():
        kept = _without_broken(group, cells, warnings)
        _check_plausible(group, kept)
        fits.append(_fit(group, kept))
    return Calibration(fits, warnings)


def read_table(path: Path) -> Table:
    """Medians of all cells; rows without a time are ignored, a file without the columns is a UsageError."""
    repeats: dict[Group, dict[Cell, list[Times]]] = defaultdict(lambda: defaultdict(list))
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            _require_columns(path, reader.fieldnames or ())
            for line, row in enumerate(reader, start=2):
                group, cell, times = _read_row(path, line, row)
                repeats[group][cell].append(times)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", code="bad_table") from error
    if not repeats:
        raise UsageError(f"{path} has no rows", code="bad_table")
    return {
        group: {cell: Times(*(median(column) for column in zip(*rows, strict=True))) for cell, rows in cells.items()}
        for group, cells in repeats.items()
    }


def _require_columns(path: Path, found: Iterable[str]) -> None:
    missing = [name for name in (*COLUMNS, *TIMES) if name not in set(found)]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}",
            hint=f"columns: {', '.join((*COLUMNS, *TIMES))}",
            code="bad_table",
        )


def _read_row(path: Path, line: int, row: Mapping[str, str]) -> tuple[Group, Cell, Times]:
    try:
        counts = [int(row[name]) for name in COLUMNS[2:]]
        times = [float(row[name]) for name in TIMES]
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}, line {line}: {error}", code="bad_table") from None
    if min(counts) < 1 or not all(0 < ms < float("inf") for ms in times):
        raise UsageError(f"{path}, line {line}: counts are at least 1 and times above 0 ms", code="bad_table")
    tp, *cell = counts
    return Group(row["model"], row["hardware"].removesuffix("-80gb"), tp), Cell(*cell), Times(*times)


def _without_copies(table: Table, warnings: list[str]) -> Table:
    """Leave out groups whose token times are those of another one: calculated, not measured."""
    kept: dict[Group, Mapping[Cell, Times]] = {}
    seen: dict[tuple[tuple[Cell, float], ...], Group] = {}
    for group in sorted(table, key=lambda group: (len(group.hardware), group)):
        token_times = tuple(sorted((cell, round(t.token_ms, NOT_MEASURED_DIGITS)) for cell, t in table[group].items()))
        if token_times in seen:
            warnings.append(f"{group}: not measured, its token times are those of {seen[token_times]}; left out")
        else:
            seen[token_times] = group
            kept[group] = table[group]
    return {group: kept[group] for group in table if group in kept}


def _without_broken(group: Group, cells: Mapping[Cell, Times], warnings: list[str]) -> Mapping[Cell, Times]:
    """Leave out cells whose prompts took less time than a quarter as many tokens: they did not all run."""
    broken = {
        cell
        for cell, times in cells.items()
        for other, fewer in cells.items()
        if cell.prompt * cell.batch >= 4 * other.prompt * other.batch and times.prompt_ms < 0.8 * fewer.prompt_ms
    }
    for cell in sorted(broken):
        warnings.append(
            f"{group}: {cell.batch} prompts of {cell.prompt} tokens took {cells[cell].prompt_ms:.0f} ms, "
            "less than a quarter as many; left out"
        )
    return {cell: times for cell, times in cells.items() if cell not in broken}


def _check_plausible(group: Group, cells: Mapping[Cell, Times]) -> None:
    """Refuse times that no such machine reaches, or that are off by a factor of a unit."""
    if group.hardware not in hardware_file().hardware or not is_known_model(group.model):
        return
    gpu, shape = hardware(group.hardware), load_model(group.model).shape
    floor_ms = shape.parameters * shape.bytes_per_parameter / (group.tp * gpu.bandwidth_tb_s * 1e12) * 1e3
    for cell, times in cells.items():
        compute_ms = 2 * shape.active_parameters * cell.prompt * cell.batch / (group.tp * gpu.tflops * 1e12) * 1e3
        for what, ms, least in (
            ("token_time", times.token_ms, floor_ms),
            ("prompt_time", times.prompt_ms, max(floor_ms, compute_ms)),
        ):
            if not 0.9 * least <= ms <= SLOWEST * least:
                raise UsageError(
                    f"{group}: {what} of {ms:g} ms for {cell.batch} x {cell.prompt} tokens cannot be true: "
                    f"{least:.3g} ms is what memory and arithmetic allow, {SLOWEST * least:.3g} would be absurd",
                    hint="times are milliseconds of the whole batch: look for seconds or microseconds",
                    code="implausible_table",
                )


def check_times(group: Group, profile: Profile) -> None:
    """Refuse a fit that no such machine can have made; nothing is checked where the machine is not known."""
    perf = PerfModel(load_model(group.model) if is_known_model(group.model) else load_model(MODELS[0]), profile)
    cells = {
        Cell(n, 1, FIT_OUTPUT_TOKENS): Times(perf.prefill_s(n, n * n) * 1e3, perf.decode_s(1, n) * 1e3)
        for n in (512, 2048)
    }
    _check_plausible(group, cells)


def _fit(group: Group, cells: Mapping[Cell, Times]) -> Fitted:
    prompts: dict[tuple[int, int], float] = {}
    decodes: dict[Cell, float] = {}
    for cell, times in cells.items():
        if cell.output == FIT_OUTPUT_TOKENS:
            prompts[cell.prompt, cell.batch] = times.prompt_ms
            decodes[cell] = times.token_ms
    if len(prompts) < FEWEST_POINTS:
        raise UsageError(
            f"{group}: {len(prompts)} combinations with {FIT_OUTPUT_TOKENS} output tokens are too few to fit",
            hint=f"measure at least {FEWEST_POINTS}: prompts at batch 1, batches at one prompt",
            code="bad_table",
        )
    prefill = [PrefillPoint(n * batch, batch * n * n, ms) for (n, batch), ms in prompts.items()]
    decode = [DecodePoint(cell.batch, cell.batch * (cell.prompt + cell.output / 2), ms) for cell, ms in decodes.items()]
    largest = {"prompt": max(n for n, _ in prompts), "batch": max(batch for _, batch in prompts)}
    profile = Profile(group.hardware, group.tp, fit_prefill(prefill), fit_decode(decode, pinned_ms(group)))
    return Fitted(group.model, profile, len(prefill), len(decode), largest)


def pinned_ms(group: Group) -> float | None:
    """cK of a known model on a known GPU, else None: it is then fitted."""
    known = is_known_model(group.model) and group.hardware in hardware_file().hardware
    if not known:
        return None
    return per_context_token_ms(load_model(group.model).kv_bytes_per_token, hardware(group.hardware), group.tp)


def is_known_model(name: str) -> bool:
    """A model of data/, or a .json file."""
    return name in MODELS or name.endswith(".json")


def to_model(fits: Sequence[Fitted], source: str, base: Model | None = None) -> Model:
    """A file for `model=FILE.json`: the known model's facts (or `base`) with these profiles; fits are of one model."""
    base = base or load_model(fits[0].model)
    return msgspec.structs.replace(
        base,
        source=f"goodput calibrate: {source}",
        profiles=tuple(fit.profile for fit in fits),
        default_tp=fits[-1].profile.tp,
        calibrated_batch=min(fit.ranges["batch"] for fit in fits),
        calibrated_context=max(fit.ranges["prompt"] for fit in fits),
    )


class Bound(msgspec.Struct, frozen=True):
    """What an iteration does of the machine's peaks, and the roofline term that binds it."""

    what: str
    ms: float
    binding: str
    tflops: float  # reached, of all GPUs
    tflops_percent: float
    tbytes_per_s: float
    tbytes_percent: float


def bounds(perf: PerfModel) -> list[Bound]:
    """Prompts of 512 to 8,192 tokens and batches of 1 to 64: time by the fit, work by the roofline."""
    model, profile = perf.model, perf.profile
    line = Roofline(model.shape, profile.hardware, profile.tp)
    found = []
    for n in (512, 2048, 8192):
        found.append(_bound(f"prefill {n}", perf.prefill_s(n, n * n), line.prefill(n, n * n), line))
    for batch in (1, 16, 64):
        context = batch * 1024
        found.append(_bound(f"decode {batch} x 1024", perf.decode_s(batch, context), line.decode(batch, context), line))
    return found


def _bound(what: str, seconds: float, terms: Terms, line: Roofline) -> Bound:
    flops, read = terms.flops / seconds, terms.bytes / seconds
    peak, bandwidth = line.tp * line.gpu.tflops * 1e12, line.tp * line.gpu.bandwidth_tb_s * 1e12
    return Bound(
        what, seconds * 1e3, terms.binding, flops / 1e12, 100 * flops / peak, read / 1e12, 100 * read / bandwidth
    )

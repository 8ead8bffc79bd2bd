"""What a model said of the same schedule, kept small enough to stand beside what was measured."""

from __future__ import annotations

from pathlib import Path

import msgspec

from metrics.latency import counted, e2e_s, select, tpot_s, ttft_s
from metrics.rates import rates
from metrics.records import RecordTable
from metrics.slo import SLO, attain
from metrics.stats import Stat, describe
from metrics.storage import read_document, write_atomically
from metrics.summary import Summary

PREDICTION = "prediction.json"
_LATENCIES = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"))
_QUANTILES = ("p50", "p90")


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment and latencies of a simulated replay; `source` names the model in a few words.

    `slo` is what the attainment is about; `notes` say where the simulation is not quite the same run.
    """

    source: str
    attainment: float | None
    ttft_s: Stat | None
    tpot_s: Stat | None
    e2e_s: Stat | None
    output_tokens_per_s: float | None = None
    slo: str = ""
    notes: list[str] = []


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity measured and predicted; `unit` is share, s or tokens/s."""

    quantity: str
    unit: str
    measured: float | None
    predicted: float | None

    @property
    def error(self) -> float | None:
        """Of shares the difference, of everything else that relative to what was measured; None where unknown."""
        if self.measured is None or self.predicted is None:
            return None
        if self.unit == "share":
            return self.predicted - self.measured
        return self.predicted / self.measured - 1 if self.measured > 0 else None


def prediction(
    table: RecordTable,
    slo: SLO | None,
    source: str = "the simulator",
    *,
    stopped_at_s: float | None = None,
    notes: list[str] | None = None,
) -> Prediction:
    """From the table a simulation of the schedule gave, of the rows that a run stopped then is about."""
    of = counted(table.rows, stopped_at_s)
    rows = select(table.rows, of)
    return Prediction(
        source=source,
        attainment=None if slo is None else attain(table, slo, stopped_at_s).share,
        ttft_s=describe(ttft_s(rows)),
        tpot_s=describe(tpot_s(rows)),
        e2e_s=describe(e2e_s(rows)),
        output_tokens_per_s=rates(table.rows, None, of, None, None).output_tokens_per_s,
        slo="" if slo is None else str(slo),
        notes=notes or [],
    )


def beside(summary: Summary, predicted: Prediction) -> list[Beside]:
    """Measured and predicted, the quantities that at least one side has."""
    attainment = None if summary.attainment is None else summary.attainment.share
    lines = [("attainment", "share", attainment, predicted.attainment)]
    for name, field in _LATENCIES:
        measured, modelled = getattr(summary, field), getattr(predicted, field)
        lines += [(f"{name} {q}", "s", getattr(measured, q, None), getattr(modelled, q, None)) for q in _QUANTILES]
    lines.append(("output", "tokens/s", summary.rates.output_tokens_per_s, predicted.output_tokens_per_s))
    found = [Beside(quantity=name, unit=unit, measured=a, predicted=b) for name, unit, a, b in lines]
    return [line for line in found if line.measured is not None or line.predicted is not None]


def save(directory: Path, predicted: Prediction) -> None:
    """Write prediction.json into a run directory."""
    write_atomically(directory / PREDICTION, msgspec.json.format(msgspec.json.encode(predicted), indent=2) + b"\n")


def load(directory: Path, slo: SLO | None) -> Prediction | None:
    """Read prediction.json; None when the run has none. Under another SLO its attainment says nothing."""
    file = directory / PREDICTION
    if not file.exists():
        return None
    found: Prediction = read_document(file, Prediction)
    same = found.slo == ("" if slo is None else str(slo))
    return found if same else msgspec.structs.replace(found, attainment=None)

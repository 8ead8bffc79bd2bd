"""`--predict DEPLOYMENT`: the simulator's word on the same schedule beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.cli.output import say

if TYPE_CHECKING:
    from metrics.prediction import Beside, Prediction
    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.summary import Summary


def foretell(text: str | None, run: Run, directory: Path, slo: SLO | None) -> Prediction | None:
    """Simulate and write prediction.json; None when nobody asked."""
    if text is None:
        return None
    from loadtest.predict import model_of, predict
    from metrics.prediction import save

    predicted = predict(model_of(text), run, directory, slo)
    save(directory, predicted)
    return predicted


def print_beside(summary: Summary, predicted: Prediction | None) -> None:
    """Measured, predicted and the error on stdout, in columns, then what an error does not say."""
    if predicted is None:
        return
    from loadtest.cli.output import print_columns
    from metrics.prediction import beside

    lines = [["", "measured", "predicted", "error"], *(_cells(line) for line in beside(summary, predicted))]
    print_columns(f"predicted by {predicted.source}", lines)
    for note in predicted.notes:
        say(f"  {note}")


def _cells(line: Beside) -> list[str]:
    unknown, error = line.error is None, line.error or 0.0
    told = "-" if unknown else f"{error * 100:+.1f} pp" if line.unit == "share" else f"{error:+.1%}"
    return [line.quantity, _cell(line.measured, line.unit), _cell(line.predicted, line.unit), told]


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return f"{value * 1e3:.4g} ms"
    return f"{value:.1%}" if unit == "share" else f"{value:,.1f} {unit}"

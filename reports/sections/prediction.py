"""Predicted against measured: what the simulator said of the same schedule, on one axis with what happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metrics.prediction import Prediction
from metrics.stats import Stat
from reports.figures.predicted import Both, predicted
from reports.numbers import THIN, digits, percent, seconds
from reports.page import RunView
from reports.sections.section import WIDTHS, Panel, Section, panel, series
from reports.tables import Table

WHAT = {"ttft_s": "Time to first token", "tpot_s": "Time per output token"}
QUANTILES = ("p50", "p90", "p99")


def prediction_section(runs: Sequence[RunView]) -> Section | None:
    """Quantiles of TTFT and TPOT of every run that has a prediction."""
    known = [(run, run.predicted) for run in runs if run.predicted is not None]
    if not known:
        return None
    labels = [run.label for run in runs]
    panels: list[Panel] = []
    rows: list[list[str]] = []
    for what, title in WHAT.items():
        pairs = [both for run, foretold in known for both in _pairs(run, foretold, what)]
        if not pairs:
            continue
        tells = _words(pairs)
        limit = getattr(known[0][0].bins.targets, what)
        chart = predicted(pairs, labels, limit, description=tells)
        panels.append(panel("prediction", len(panels) + 1, chart, tells, caption=title, width=WIDTHS[2]))
        rows += [
            [both.run, title.lower(), both.name, seconds(both.measured_s), seconds(both.predicted_s), _off(both)]
            for both in pairs
        ]
    if not panels:
        return None
    for run, foretold in known:
        attained = run.summary.attainment
        if attained is not None and attained.share is not None and foretold.attainment is not None:
            off = f"{(foretold.attainment - attained.share) * 100:+.1f} pp"
            shares = [percent(share, attained.target_share) for share in (attained.share, foretold.attainment)]
            rows.append([run.label, "attainment", "", *shares, off])
        measured, modelled = run.summary.rates.output_tokens_per_s, foretold.output_tokens_per_s
        if measured and modelled is not None:
            off = _percent_off(modelled / measured)
            rows.append([run.label, "output tokens/s", "", digits(measured), digits(modelled), off])
    return Section(
        "prediction",
        "Predicted against measured",
        "Filled: measured. Hollow: predicted for the same arrivals. The closer, the more the model can be believed.",
        panels,
        Table(["run", "what", "at", "measured", "predicted", "off by"], rows),
        key=series(labels),
        columns=2,
        note=" ".join(f"{text}." for text in dict.fromkeys(_notes(known))),
    )


def _notes(known: Sequence[tuple[RunView, Prediction]]) -> Iterator[str]:
    """Who predicted, and what an error does not say."""
    for run, foretold in known:
        yield f"Predicted by {foretold.source}"
        yield from (f"{run.label}: {note}" for note in foretold.notes)


def _pairs(run: RunView, foretold: Prediction, what: str) -> list[Both]:
    measured: Stat | None = getattr(run.summary, what)
    modelled: Stat | None = getattr(foretold, what)
    if measured is None or modelled is None:
        return []
    return [Both(run.label, name, getattr(measured, name), getattr(modelled, name)) for name in QUANTILES]


def _off(both: Both) -> str:
    return "" if both.measured_s <= 0 else _percent_off(both.predicted_s / both.measured_s)


def _percent_off(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.0f}{THIN}%".replace("-", "\N{MINUS SIGN}")


def _words(pairs: Sequence[Both]) -> str:
    """The largest error."""
    worst = max(pairs, key=lambda both: abs(both.predicted_s / both.measured_s - 1) if both.measured_s > 0 else 0.0)
    return (
        f"Farthest apart: {worst.run} at {worst.name}, measured {seconds(worst.measured_s)}, "
        f"predicted {seconds(worst.predicted_s)} ({_off(worst)})."
    )

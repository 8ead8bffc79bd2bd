"""What a comparison comes to, in words: metrics by their names, and for each side where it is better and worse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from metrics.compare import Contrast

NAMES: Final = {
    "ttft": "TTFT",
    "ttft_from_sent": "TTFT from sent",
    "tpot": "TPOT",
    "itl": "token gap",
    "second_token_gap": "second token gap",
    "e2e": "end to end",
    "attainment": "attainment",
    "failed": "failed requests",
    "goodput": "goodput",
    "completed_per_s": "completed requests/s",
    "slo_throughput": "good requests/s",
    "tokens_per_s": "output tokens/s",
}
RATES: Final = ("goodput", "completed_per_s", "slo_throughput", "tokens_per_s")
TELLING: Final = ("attainment", "failed", "ttft.p90", "tpot.p90", "tokens_per_s")  # said before all others
ALIKE: Final = ("completed_per_s", "slo_throughput")  # say what the output tokens say already
SLIGHT: Final = 0.01  # changes below this come last, however sure they are
MOST_NAMED: Final = 2


def metric_name(key: str, *, per_gpu: bool = False) -> str:
    """`ttft.p90` as `TTFT p90`, `itl.max` as `longest token gap`, a rate with what it is divided by."""
    name, _, stat = key.partition(".")
    known = NAMES.get(name, name)
    if stat == "max":
        return f"longest {known}"
    each = " per GPU" if per_gpu and name in RATES else ""
    return f"{known}{each} {stat}".rstrip()


def verdict(side: str, contrasts: Sequence[Contrast], *, runs: int, per_gpu: bool) -> str:
    """Where one side is better and worse than the first, the most telling metrics by name and the rest as a number."""
    every = [c for c in contrasts if c.label == side and c.paired_by == "run"]
    mine = sorted((c for c in every if c.metric not in ALIKE) if len(every) > len(ALIKE) else every, key=_place)
    sure = {standing: [c for c in mine if c.standing == standing] for standing in ("better", "worse")}
    parts = [f"{standing} in {_named(found, per_gpu)}" for standing, found in sure.items() if found]
    if not parts and runs == 1:
        return f"{side}: one run says nothing about the next; compare several"
    return f"{side} is {' and '.join(parts)}" if parts else f"{side} cannot be told apart"


def _place(contrast: Contrast) -> tuple[bool, int]:
    telling = TELLING.index(contrast.metric) if contrast.metric in TELLING else len(TELLING)
    return abs(contrast.effect or 0.0) < SLIGHT, telling


def _named(found: Sequence[Contrast], per_gpu: bool) -> str:
    """The first of them; a single one more is named, not counted."""
    shown = found if len(found) <= MOST_NAMED + 1 else found[:MOST_NAMED]
    names = [_effect(contrast, per_gpu) for contrast in shown]
    rest = len(found) - len(shown)
    return ", ".join(names) + (f" and {rest} more" if rest else "")


def _effect(contrast: Contrast, per_gpu: bool) -> str:
    """`TTFT p90 (+42 %)`."""
    name = metric_name(contrast.metric, per_gpu=per_gpu)
    if contrast.effect is None:
        return name
    unit, number = "points" if contrast.kind == "share" else "%", contrast.effect * 100
    shown = f"{number:+.2g}" if abs(number) < 99.5 else f"{number:+,.0f}"
    return f"{name} ({shown}\N{NO-BREAK SPACE}{unit})".replace("-", "\N{MINUS SIGN}")

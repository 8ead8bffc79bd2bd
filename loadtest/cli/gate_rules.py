"""The rules of a gate: those asked for, or the defaults that its workload can measure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loadtest.cli.output import say
from loadtest.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loadtest.pairs import Probe
    from loadtest.sides import Side, StoredSide
    from metrics.gate.defaults import LeftOut
    from metrics.gate.rules import Rule
    from metrics.slo import SLO


def asked_rules(given: dict[str, Any], slo: SLO | None) -> list[Rule]:
    """The rules of `--rule`, `--ladder` or `--metric`; none where a replay is to be judged by the defaults."""
    from loadtest.ladder import RULES
    from metrics.gate.rules import parse_rules

    named = [re.split(r"\W", text.strip())[0] for text in given["rules"]]
    if ("goodput" in named) != bool(given["metric"]) and given["rules"]:
        raise UsageError("rules on goodput and --metric goodput belong together", code="metric_goodput")
    if given["metric"] and given["ladder"]:
        raise UsageError("--ladder and --metric goodput are different gates", code="one_of")
    judged = [*filter(None, [given["metric"]]), *(name for name in named if name in ("attainment", "slo_throughput"))]
    if slo is None and judged:
        raise UsageError(f"{judged[0]} is defined by an SLO", hint="give --slo", code="no_slo")
    fixed = ["goodput drop < 5%"] if given["metric"] else list(RULES) if given["ladder"] else []
    texts = list(given["rules"]) or fixed
    rules = parse_rules(texts) if texts else []
    _check_rungs(rules, ladder=given["ladder"])
    return rules


def default_rules(slo: SLO | None, baseline: Side | StoredSide, probe: Probe) -> tuple[list[Rule], list[LeftOut]]:
    """The defaults that the planned requests can measure; which are left out is said before anything is sent."""
    from metrics.gate import defaults

    rules, left_out = defaults.default_rules(_max_tokens(baseline, probe), slo=slo is not None)
    for rule in left_out:
        say(f"left out: {rule.rule!r}: {rule.why}", err=True)
    return rules, left_out


def _max_tokens(baseline: Side | StoredSide, probe: Probe) -> NDArray[np.integer] | None:
    """What each counted request asks for: as the baseline's stored run recorded it, or as it is planned."""
    import numpy as np

    from loadtest.pairs import Replay
    from loadtest.sides import StoredSide
    from metrics import rundir

    if isinstance(baseline, StoredSide):
        planned = rundir.read_plan(baseline.folders[0])
        return np.asarray(planned["max_tokens"][~planned["warmup"]])
    return probe.max_tokens() if isinstance(probe, Replay) else None


def _check_rungs(rules: list[Rule], *, ladder: bool) -> None:
    """A ladder measures its rungs and failures, everything else no rung."""
    wrong = next(
        (rule for rule in rules if ("@" in rule.key) != ladder and not (ladder and rule.key == "failed")), None
    )
    if wrong is not None:
        what = "the ladder measures rungs only" if ladder else "rungs are measured with --ladder"
        raise UsageError(f"{what} (rule {wrong.text!r})", hint="a rung is tpot@8.p50 or ttft@2048.p50", code="bad_rule")

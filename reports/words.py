"""What the numbers say, in sentences: the headline, validity, and a description under each figure."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.bins import SHARES, Curve, Density, Quadrants, Timeline
from metrics.certainty import Certainty
from metrics.decision import Decision
from metrics.errors import MetricsError
from metrics.slo import SLO, Attainment
from metrics.summary import Summary
from metrics.tokengaps import Interference, WorstGap
from reports.numbers import THIN, count, digits, of, percent, plural, rate, seconds, target

LIMIT_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
MISSED = {
    "ttft": "late first tokens",
    "tpot": "slow tokens",
    "e2e": "late ends",
    "failures": "failures",
    "unmeasurable": "answers that could not be measured",
}
LONGEST_NAME = 100
NOT_MEASURED = {
    "ttft_not_measurable": "answers came in one piece, so token times were not measurable",
    "tpot_not_measurable": "the tokens of each answer came together, so the time between them was not measurable",
    "no_requests": "no request was due after the warm-up",
    "undecided": "the run ended before anything was known of any request",
}


def targets(limits_s: dict[str, float]) -> str:
    """`TTFT ≤ 200 ms and TPOT ≤ 50 ms`."""
    asked = [f"{LIMIT_NAMES[name]} ≤ {seconds(limit, trim=True)}" for name, limit in limits_s.items()]
    return listed([text.replace(" ", THIN) for text in asked])


def of_slo(text: str) -> str:
    """`TTFT ≤ 1 s and TPOT ≤ 45 ms for 90 % of requests`, from its text form; a family of limits as it was written."""
    try:
        slo = SLO.parse(text)
    except MetricsError:
        return text
    return f"{targets(slo.limits)} for {target(slo.share)} of requests"


def arrangement(name: str) -> str:
    """A plan's name of an arrangement as people say it: `colocated, prefill first`."""
    first, _, rest = name.partition("_")
    return f"{first}, {rest.replace('_', ' ')}" if rest else first


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def simulated(summary: Summary) -> bool:
    """Whether no server was asked: the figures are a model's."""
    return summary.run.server.get("clock") == "virtual"


def headline(summary: Summary, sure: Certainty | None = None) -> str:
    """A run in one sentence, with its interval where that is known; an unsound run says that and nothing better."""
    unsound = [finding for finding in summary.validity.findings if finding.level == "invalid"]
    if unsound:
        return f"This measurement is not sound. {unsound[0].message}"
    attained, outcomes = summary.attainment, summary.requests.by_outcome
    if outcomes and not outcomes.get("ok"):
        told = listed([f"{count(n)} {outcome(name)}" for name, n in outcomes.items()])
        return f"No request was answered: {told}."
    if attained is None:
        return _served(summary)
    if attained.share is None:
        return f"Attainment is not known: {NOT_MEASURED.get(attained.reason or '', attained.reason or 'not measured')}."
    verdict = "met" if attained.meets else "missed"
    share = percent(attained.share, attained.target_share)
    ends = f" ({_between(sure)})" if sure is not None and 0 < attained.share < 1 else ""
    asked = targets(attained.limits_s)
    offered = summary.rates.offered_per_s
    at = "" if offered is None else f"At {rate(offered, 'requests/s')}, "
    told = f"{target(attained.target_share)} target {verdict}{_loose(attained)}"
    return f"{at}{share}{ends} of requests met {asked}: {told}."


def _loose(attained: Attainment) -> str:
    """What the undecided could change, where they are more than a few."""
    if attained.bounds is None:
        return ""
    low, high = attained.bounds
    open_ = low < attained.target_share <= high
    return f"{' by those decided' if open_ else ''}; with the undecided {percent(low)} to {percent(high)}"


def clipped(text: str) -> str:
    """A name without its middle where it is longer than a line; Method has all of it."""
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:half]}…{text[-half:]}"


def outcome(name: str) -> str:
    """`http_503` as `HTTP 503`, `not_sent` as `not sent`."""
    first, _, rest = name.partition("_")
    return f"{first.upper() if first == 'http' else first} {rest.replace('_', ' ')}".rstrip()


def _between(sure: Certainty) -> str:
    return f"{sure.low * 100:.1f} to {sure.high * 100:.1f}"


def _served(summary: Summary) -> str:
    done = summary.requests.by_outcome.get("ok", 0)
    first = summary.ttft_s
    half = f"; half had their first token within {seconds(first.p50)}" if first else ""
    return f"{of(done, summary.requests.planned)} requests were answered{half}. No targets were set."


def headline_of_several(labels: Sequence[str], summaries: Sequence[Summary]) -> str:
    """Several runs without a decision: the attainment of each, and no ranking."""
    known = [
        f"{label} {percent(s.attainment.share, s.attainment.target_share)}"
        for label, s in zip(labels, summaries, strict=True)
        if s.attainment is not None and s.attainment.share is not None
    ]
    if not known:
        return f"{plural(len(labels), 'run')} side by side."
    return f"Requests within targets: {listed(known)}."


def subline(summary: Summary, sure: Certainty | None = None) -> str:
    """What stands behind the headline: counts, what was missed most, how it was loaded."""
    attained, parts = summary.attainment, []
    if attained is not None and attained.good is not None:
        parts.append(f"{of(attained.good, attained.total)} requests were good{_binding(attained)}")
    if attained is not None and attained.undecided:
        parts.append(f"{count(attained.undecided)} more undecided when the run ended")
    if sure is not None and attained is not None and 0 < (attained.share or 0) < 1:
        parts.append("the interval is 95 %, from inside this run only")
    told = headline(summary, sure)
    if summary.rates.offered_per_s is not None and not told.startswith("At "):
        parts.append(f"{rate(summary.rates.offered_per_s)} offered")
    names = (summary.run.trace_name, summary.run.deployment or summary.run.target_url)
    parts += [clipped(name) for name in names if name]
    if simulated(summary):
        parts.append("simulated")
    if summary.run.gpus is not None:
        parts.append(plural(summary.run.gpus, "GPU"))
    if summary.run.state == "partial":
        parts.append("stopped early: results are about the requests due before the stop")
    return " · ".join(parts)


def _binding(attained: Attainment) -> str:
    if not attained.good and attained.binding == "failures":
        return ""  # the headline says it
    return f"; most misses are {MISSED[attained.binding]}" if attained.binding else ""


def soundness(summary: Summary) -> str:
    """The verdict on the measurement itself; of a simulation, that it is one."""
    if simulated(summary) and summary.validity.verdict == "valid":
        return "Simulated: these are a performance model's figures, within the range it was fitted on."
    verdicts = {
        "valid": "Nothing speaks against this measurement.",
        "warning": "The measurement stands, with these reservations.",
        "invalid": "Do not use these figures.",
    }
    return verdicts[summary.validity.verdict]


def of_each(told: Sequence[tuple[str, str]]) -> str:
    """A sentence per run, each after its run's name when there are several."""
    return " ".join(f"{label}: {text}" if len(told) > 1 else capital(text) for label, text in told)


def capital(text: str) -> str:
    """The text with a capital letter at its start, unless a name stands there: `vllm-chunked`, `http://...`, `tp=8`."""
    first = text.split(" ", 1)[0].rstrip(",.;:")
    return text[:1].upper() + text[1:] if first.isalpha() else text


def outcomes(found: Quadrants) -> str:
    """What the bar of one run shows."""
    parts = [
        (found.ok, "good"),
        (found.late_first_token, "with a late first token"),
        (found.slow_tokens, "with slow tokens"),
        (found.both, "with both"),
        (found.late_end, "with a late end"),
        (found.unmeasurable, "not measurable"),
        (found.failed, "failed"),
    ]
    told = listed([f"{count(n)} {name}" for n, name in parts if n])
    apart = f"; {count(found.undecided)} more were undecided when the run ended" if found.undecided else ""
    return f"{told}, of {plural(found.total, 'planned request')}{apart}."


def density(found: Density) -> str:
    """What the plane of one run shows."""
    alone = (
        f" {plural(found.without_tpot, 'answer')} of one token, or with all tokens at once, have no place here."
        if found.without_tpot
        else ""
    )
    return f"{plural(sum(found.count), 'answered request')}; the stronger the colour, the more of them.{alone}"


def distribution(curves: Sequence[tuple[str, Curve]], target_s: float | None) -> str:
    """Median and p99 of each run, and the share within the target."""
    told = []
    for label, curve in curves:
        within = f"; {percent(curve.within_target)} meet {seconds(target_s, trim=True)}" if target_s is not None else ""
        half, most = (seconds(curve.quantile_s[SHARES.index(share)]) for share in (0.5, 0.99))
        told.append((label, f"half within {half}, 99 % within {most}{within}."))
    return of_each(told)


def timeline(found: Timeline) -> str:
    """The busiest moment of a run."""
    peak = max(range(len(found.in_flight)), key=lambda i: found.in_flight[i])
    failed = sum(found.failed)
    lost = f", {plural(failed, 'request')} did not end well" if failed else ""
    most = digits(found.in_flight[peak], trim=True)
    return f"at most {most} request{'' if most == '1' else 's'} in flight (at {found.start_s[peak]:g} s){lost}."


def interference(found: Interference) -> str:
    """Gaps before and after an arrival."""
    alone = " with no other such in the second before" if found.isolated else ""
    who = f"{plural(found.arrivals, 'prompt')} of at least {plural(found.min_prompt_tokens, 'token')}{alone}"
    if found.before is None or found.after is None:
        return f"Around {who}."
    before, after = found.before, found.after
    return (
        f"Around {who}: p99 token gap of the others {seconds(before.p99_s)} in the second before, "
        f"{seconds(after.p99_s)} in the second after; median {seconds(before.p50_s)} and {seconds(after.p50_s)}."
    )


def worst_gap(found: WorstGap) -> str:
    """The worst stall of a run."""
    ordinal = "second token" if found.index == 1 else f"token {found.index + 1}"
    hint = (
        "; in a disaggregated server this is where the KV hand-off and the wait for the decode pool show"
        if found.index == 1
        else ""
    )
    near = found.longest_prompt
    meanwhile = (
        f" The longest prompt sent shortly before or meanwhile had {plural(near, 'token')}."
        if near
        else " No prompt was sent shortly before or meanwhile."
    )
    more = f" {plural(found.arrivals_left_out, 'shorter prompt')} not drawn." if found.arrivals_left_out else ""
    return f"Request {found.request_id} waited {seconds(found.gap_s)} for its {ordinal}{hint}.{meanwhile}{more}"


def goodput(decision: Decision) -> str:
    """Each deployment's goodput with its interval."""
    told = []
    for row in decision.rows:
        found = row.goodput_per_gpu
        if found is None:
            told.append(f"{row.label} not known")
        elif found.bound == "estimate" and found.low is not None and found.high is not None:
            told.append(f"{row.label} {digits(found.rate)} ({digits(found.low)} to {digits(found.high)})")
        else:
            told.append(f"{row.label} {found.bound.replace('_', ' ')} {digits(found.rate)}")
    return f"Requests per second per GPU: {'; '.join(told)}."


def leader(decision: Decision) -> str:
    """What the winner serves, behind the sentence that says by how much it wins; nothing where nobody does."""
    found = decision.rows[0] if decision.standing == "winner" else None
    rate = None if found is None else found.goodput_per_gpu or found.goodput_per_s
    if found is None or rate is None or rate.bound != "estimate":
        return ""
    sure = "" if rate.low is None or rate.high is None else f" ({digits(rate.low)} to {digits(rate.high)})"
    each = "" if found.goodput_per_gpu is None else " per GPU"
    return f" It serves {digits(rate.rate)}{sure} requests/s{each}."


def common(decision: Decision | None, summaries: Sequence[Summary]) -> str:
    """What the compared runs share: the targets behind the word goodput, the trace and the rate."""
    parts = []
    limits = [s.attainment for s in summaries if s.attainment is not None]
    if limits and all(a.limits_s == limits[0].limits_s for a in limits):
        share = target(limits[0].target_share)
        asked = targets(limits[0].limits_s)
        goodput_is = f"Goodput: the highest rate at which {share} of requests meet {asked}"
        parts.append(goodput_is if decision else f"Targets: {asked} for {share}")
    traces = {s.run.trace_name for s in summaries if s.run.trace_name}
    if len(traces) == 1:
        offered = [s.rates.offered_per_s for s in summaries if s.rates.offered_per_s is not None]
        same = offered and max(offered) < min(offered) * 1.01
        parts.append(f"{traces.pop()}" + (f", live runs at {rate(offered[0])}" if same and offered else ""))
    return " · ".join(parts)

"""A run as a block of fixed width, plain ASCII, to paste into an issue or a mail."""

from __future__ import annotations

from metrics.stats import Stat
from metrics.summary import Summary
from reports.escape import log

WIDTH = 72
LATENCIES = {
    "ttft_s": "TTFT",
    "ttft_from_sent_s": "TTFT from sent",
    "tpot_s": "TPOT",
    "itl_s": "token gap (ITL)",
    "second_token_gap_s": "2nd token gap",
    "e2e_s": "end to end",
}


def render_block(summary: Summary) -> str:
    """What a reader of an issue needs: what was run, whether it is sound, and the figures."""
    lines = [_rule(f"goodput {summary.run.versions.get('goodput', '')}".rstrip(), "=")]
    lines += [_line(name, told) for name, told in _facts(summary) if told]
    lines += [_rule("latency, ms", "-"), _cells("", ("n", "p50", "p90", "p99", "max"))]
    for key, name in LATENCIES.items():
        stat: Stat | None = getattr(summary, key)
        if stat is not None:
            values = [f"{value * 1e3:.2f}" for value in (stat.p50, stat.p90, stat.p99, stat.max)]
            lines.append(_cells(name, (str(stat.n), *values)))
    lines += [_rule("per second", "-")]
    rates = summary.rates
    for name, value in (
        ("offered requests", rates.offered_per_s),
        ("completed requests", rates.completed_per_s),
        ("good requests", rates.slo_throughput_per_s),
        ("output tokens", rates.output_tokens_per_s),
        ("output tokens per GPU", rates.output_tokens_per_s_per_gpu),
        ("output tokens, peak second", rates.peak_tokens_per_s),
    ):
        if value is not None:
            lines.append(_line(name, f"{value:.2f}"))
    return log("\n".join([*lines, "=" * WIDTH, ""]))


def _facts(summary: Summary) -> list[tuple[str, str]]:
    run, attained = summary.run, summary.attainment
    good = ""
    if attained is not None and attained.share is not None:
        verdict = "met" if attained.meets else "missed"
        share = f"{attained.share:.2%} ({attained.good} of {attained.total})"
        good = f"{share}, target {attained.target_share * 100:.4g}% {verdict}"
        if attained.undecided:
            good += f"; {attained.undecided} undecided"
        if attained.bounds is not None:
            good += f", with them {attained.bounds[0]:.2%} to {attained.bounds[1]:.2%}"
    lag = summary.validity.client_lag_s
    findings = ", ".join(finding.code for finding in summary.validity.findings)
    return [
        ("target", (run.deployment or run.target_url).replace(",", ", ")),
        ("model", run.model),
        ("trace", run.trace_name),
        ("seed, salt", f"{run.seed}, {run.salt}"),
        ("slo", run.slo.replace(",", ", ")),
        ("measurement", summary.validity.verdict + (f": {findings}" if findings else "")),
        ("client lag", "" if lag is None else f"p99 {lag.p99 * 1e3:.2f} ms, max {lag.max * 1e3:.2f} ms"),
        ("requests", ", ".join(f"{n} {name}" for name, n in summary.requests.by_outcome.items())),
        ("attainment", good),
    ]


def _rule(title: str, sign: str) -> str:
    return f" {title} ".center(WIDTH, sign)


def _line(name: str, told: str) -> str:
    """A name and a value; what is too long goes on under the value."""
    import textwrap

    text = "".join(c if " " <= c <= "~" else "?" for c in told)
    first, *rest = textwrap.wrap(text, WIDTH - 28, break_on_hyphens=False) or [""]
    return "\n".join([f"{name:<28}{first}", *(" " * 28 + line for line in rest)])


def _cells(name: str, cells: tuple[str, ...]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, (8, 11, 11, 11, 11), strict=True))

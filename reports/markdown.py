"""A gate as a Markdown table, for a job's summary page or a merge request."""

from __future__ import annotations

from metrics.gate.report import GateReport
from reports import gate_words as words
from reports.escape import markdown, printable
from reports.numbers import plural

MOST_BYTES = 1 << 20  # GitHub drops a step's summary that is larger
_CUT = "\n\n(cut: the whole report is in gate.json)\n"


def render_markdown(report: GateReport, most_bytes: int = MOST_BYTES) -> str:
    """Verdict, reasons, table of rules, cost; never longer than `most_bytes` in UTF-8."""
    mark = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️"}[report.verdict]
    lines = [f"## {mark} goodput gate: {report.verdict}", "", markdown(report.sentence + words.outcome(report)), ""]
    lines += [f"- **{reason.code}** ({reason.side}): {markdown(reason.message)}" for reason in report.invalid]
    lines += [f"- warning: {markdown(warning)}" for warning in report.warnings]
    lines += [f"- left out: {markdown(rule.rule)} ({markdown(rule.why)})" for rule in report.left_out]
    lines += ["", "| rule | baseline | candidate | effect | interval | margin | verdict | by |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
    for result in report.rules:
        sign = words.SIGNS[result.verdict]
        cells = [
            f"`{result.rule}`",
            words.value(result, result.baseline) if result.unit != "value" else "",
            words.value(result, result.candidate),
            words.effect(result),
            words.interval(result),
            words.margin(result),
            f"{sign} {result.verdict}{' (warn)' if result.warn else ''}",
            words.based_on(result),
        ]
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    lines += ["", *(f"- {markdown(line)}" for line in report.advice), ""]
    lines.append(f"{plural(len(report.pairs), 'pair')} of runs, {words.cost(report)}; {markdown(words.sides(report))}.")
    return _capped("\n".join(lines) + "\n", most_bytes)


def _capped(text: str, most_bytes: int) -> str:
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    return data[: most_bytes - len(_CUT.encode())].decode(errors="ignore") + _CUT


def _cell(text: str) -> str:
    return printable(text.replace("\n", " ")).replace("|", "\\|")

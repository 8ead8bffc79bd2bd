"""How `vllm bench serve`, AIPerf and GuideLLM would print this run, and why their figures differ from ours."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.peers import PeerFigures, Peers, Spread
from metrics.summary import Summary

VLLM_WIDTH = 50
AIPERF_COLUMNS = ("avg", "min", "max", "p99", "p90", "p50", "std")


def render_peers(found: Peers, summary: Summary) -> str:
    """Three tables in the tools' own shapes, then the definitions side by side; plain text, 100 columns at most."""
    parts = [
        "What other tools would print of this run, from the same records. Their clients' own errors are not imitated.",
        _vllm(found.vllm),
        _aiperf(found.aiperf),
        _guidellm(found.guidellm),
        _side_by_side(found, summary),
    ]
    return "\n\n".join(parts) + "\n"


def _vllm(found: PeerFigures) -> str:
    lines = ["{:=^50}".format(" Serving Benchmark Result ")]
    whole: list[tuple[str, float | int | None]] = [
        ("Successful requests:", found.common.completed),
        ("Failed requests:", found.common.failed),
        ("Benchmark duration (s):", found.common.duration_s),
        ("Total input tokens:", found.common.prompt_tokens),
        ("Total generated tokens:", found.common.output_tokens),
        ("Request throughput (req/s):", found.common.requests_per_s),
        ("Request goodput (req/s):", found.good[0]),
        ("Output token throughput (tok/s):", found.common.output_tokens_per_s),
        ("Peak output token throughput (tok/s):", found.peak_tokens_per_s),
        ("Peak concurrent requests:", None if found.peak_concurrent is None else float(found.peak_concurrent)),
        ("Total token throughput (tok/s):", _total(found)),
    ]
    lines += [_vllm_line(name, value) for name, value in whole if value is not None]
    for title, short, values in (
        ("Time to First Token", "TTFT", found.ttft_s),
        ("Time per Output Token (excl. 1st token)", "TPOT", found.tpot_s),
        ("Inter-token Latency", "ITL", found.itl_s),
    ):
        if values is not None:
            lines.append(f"{title:-^50}")
            told = (("Mean", values.mean), ("Median", values.median), ("P99", values.p99))
            lines += [_vllm_line(f"{name} {short} (ms):", seconds * 1e3) for name, seconds in told]
    return "\n".join([*lines, "=" * VLLM_WIDTH])


def _total(found: PeerFigures) -> float | None:
    return (
        (found.common.prompt_tokens + found.common.output_tokens) / found.common.duration_s
        if found.common.duration_s
        else None
    )


def _vllm_line(name: str, value: float) -> str:
    return f"{name:<40} {value:<10}" if isinstance(value, int) else f"{name:<40} {value:<10.2f}"


def _aiperf(found: PeerFigures) -> str:
    rows = [
        ("Time to First Token (ms)", found.ttft_s, 1e3),
        ("Time to Second Token (ms)", found.second_token_s, 1e3),
        ("Request Latency (ms)", found.latency_s, 1e3),
        ("Inter Token Latency (ms)", found.itl_s, 1e3),
    ]
    table: list[tuple[str, ...]] = [("Metric", *AIPERF_COLUMNS)]
    table += [(name, *_aiperf_cells(values, by)) for name, values, by in rows if values is not None]
    single = [
        ("Output Token Throughput (tokens/sec)", found.common.output_tokens_per_s),
        ("Request Throughput (requests/sec)", found.common.requests_per_s),
        ("Goodput (requests/sec)", found.good[0]),
        ("Request Count (requests)", float(found.common.completed)),
    ]
    rest = ["N/A"] * (len(AIPERF_COLUMNS) - 1)
    table += [(name, f"{value:,.2f}", *rest) for name, value in single if value is not None]
    return "NVIDIA AIPerf | LLM Metrics\n" + _aligned(table)


def _aiperf_cells(values: Spread, by: float) -> list[str]:
    told = (values.mean, values.least, values.most, values.p99, values.p90, values.median, values.std)
    return [f"{value * by:,.2f}" for value in told]


def _guidellm(found: PeerFigures) -> str:
    table: list[tuple[str, ...]] = [("GuideLLM", "mean", "median", "p99")]
    for name, values, by in (
        ("Request Latency (s)", found.latency_s, 1.0),
        ("TTFT (ms)", found.ttft_s, 1e3),
        ("ITL (ms)", found.itl_s, 1e3),
        ("TPOT (ms), first token included", found.tpot_s, 1e3),
    ):
        if values is not None:
            table.append((name, *(f"{value * by:,.1f}" for value in (values.mean, values.median, values.p99))))
    for name, value in (
        ("Requests/s", found.common.requests_per_s),
        ("Output tokens/s", found.common.output_tokens_per_s),
    ):
        if value is not None:
            table.append((name, f"{value:,.1f}", "", ""))
    if found.good[1] is not None:
        table.append(("SLO attainment", f"{found.good[1]:.1%}", "", ""))
    return _aligned(table)


def _side_by_side(found: Peers, summary: Summary) -> str:
    """The figures whose names are the same and whose meanings are not."""
    attained = summary.attainment
    table: list[tuple[str, ...]] = [("The same words, different meanings", "goodput", "vllm", "aiperf", "guidellm")]
    tools = (found.vllm, found.aiperf, found.guidellm)
    ours = summary.ttft_s.p50 if summary.ttft_s else None
    table.append(("TTFT p50 (ms)", _ms(ours), *(_ms(t.ttft_s.median if t.ttft_s else None) for t in tools)))
    ours = summary.tpot_s.p50 if summary.tpot_s else None
    told = [t.tpot_s or t.itl_s for t in tools]
    table.append(("per output token p50 (ms)", _ms(ours), *(_ms(s.median if s else None) for s in told)))
    ours = summary.itl_s.p99 if summary.itl_s else None
    table.append(("ITL p99 (ms)", _ms(ours), *(_ms(t.itl_s.p99 if t.itl_s else None) for t in tools)))
    good = summary.rates.slo_throughput_per_s
    table.append(("good requests per second", _two(good), *(_two(t.good[0]) for t in tools)))
    share = attained.share if attained is not None else None
    table.append(("share that was good", _percent(share), "-", "-", _percent(found.guidellm.good[1])))
    return "\n".join([_aligned(table), "", *_why(found)])


def _why(found: Peers) -> list[str]:
    lines = [
        "TTFT      goodput counts from the scheduled instant; the others from the actual send, so a late client is "
        "invisible.",
        "TPOT      GuideLLM divides the whole time, first token included, by all tokens; vLLM and goodput do not.",
        "ITL       vLLM and goodput pool the gaps between events; AIPerf and GuideLLM give one mean per request, which "
        "hides stalls.",
        "good      TTFT alone decides on a one-token answer in goodput and vLLM; one with no TPOT fails it elsewhere.",
        "goodput   of vLLM and AIPerf is good requests per second at this load; goodput's own is the highest rate that "
        "holds.",
        "tokens    All from the server's usage here. AIPerf by default counts with a tokenizer of its own, which may "
        "differ.",
        "peak      vLLM counts token events, not tokens, and requests alive in any second as concurrent.",
    ]
    if found.role_chunk and found.headers_s is not None:
        early = found.headers_s.median * 1e3
        lines.append(
            "role      On this chat endpoint vLLM takes the empty role chunk for the first token: its TTFT may be as "
            f"low as {early:.1f} ms (p50), its ITL and TPOT accordingly higher."
        )
    return [_wrapped(line) for line in lines]


def _wrapped(line: str) -> str:
    import textwrap

    return textwrap.fill(line, 98, subsequent_indent=" " * 10)


def _aligned(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "  ".join(cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in table
    ]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([lines[0], rule, *lines[1:]])


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.2f}"


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"

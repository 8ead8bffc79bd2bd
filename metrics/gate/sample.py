"""One run as a gate sees it: the value behind every rule's key, what it may be compared with, and its soundness."""

from __future__ import annotations

import math

import msgspec

from metrics.gate.rules import STATS
from metrics.runinfo import Scalar
from metrics.stats import Stat
from metrics.summary import Summary
from metrics.validity import Finding

_TIMES = ("ttft", "ttft_from_sent", "tpot", "itl", "second_token_gap", "e2e")
_NOT_OURS = ("not_sent", "skipped_late", "lost_worker", "interrupted")


class Sample(msgspec.Struct, kw_only=True):
    """Values in seconds, shares and rates per second; a key that could not be measured is absent.

    When every request failed, times are infinite: an answer that never comes is the slowest of all.
    `requests` and `failed` are counts behind the shares. Empty identities compare equal to anything.
    """

    values: dict[str, float] = {}
    few: list[str] = []  # keys with too few samples behind them
    requests: int = 0
    failed: int = 0
    good: int | None = None
    judged: int | None = None  # requests that attainment is about
    gpus: int | None = None
    trace: str = ""  # hash of its content
    trace_name: str = ""
    recipe: str = ""
    slo: str = ""
    model: str = ""
    deployment: str = ""
    salt: str = ""
    host: dict[str, Scalar] = {}
    server: dict[str, Scalar] = {}
    versions: dict[str, str] = {}
    findings: list[Finding] = []
    duration_s: float | None = None

    @property
    def unsound(self) -> list[Finding]:
        """What makes this run no evidence at all."""
        return [finding for finding in self.findings if finding.level == "invalid"]


def sample_of(summary: Summary) -> Sample:
    """What a gate needs of a run; latencies are of answers that came through, shares of all planned requests."""
    run, counted = summary.run, summary.requests.counted
    outcomes = {error.outcome: 0 for error in summary.errors}
    for error in summary.errors:
        outcomes[error.outcome] += error.count
    failed = sum(count for name, count in outcomes.items() if name not in _NOT_OURS)
    attained = summary.attainment
    values = {
        "failed": failed / counted if counted else None,
        "attainment": attained.share if attained is not None else None,
        "slo_throughput": summary.rates.slo_throughput_per_s,
        "completed_per_s": summary.rates.completed_per_s,
        "tokens_per_s": summary.rates.output_tokens_per_s,
    }
    found = {key: value for key, value in values.items() if value is not None}
    few: list[str] = []
    for name in _TIMES:
        _add_times(found, few, name, getattr(summary, f"{name}_s"), all_failed=bool(failed) and failed == counted)
    return Sample(
        values=found,
        few=few,
        requests=counted,
        failed=failed,
        good=attained.good if attained is not None else None,
        judged=attained.total if attained is not None else None,
        gpus=run.gpus,
        trace=run.trace_hash,
        trace_name=run.trace_name,
        recipe=run.recipe_hash,
        slo=run.slo,
        model=run.model,
        deployment=run.deployment or run.target_url,
        salt=run.salt,
        host=run.host,
        server=run.server,
        versions=run.versions,
        findings=summary.validity.findings,
        duration_s=summary.rates.duration_s,
    )


def _add_times(found: dict[str, float], few: list[str], name: str, stat: Stat | None, *, all_failed: bool) -> None:
    for statistic in STATS:
        key = f"{name}.{statistic}"
        if stat is not None:
            found[key] = getattr(stat, statistic)
            few += [key] if statistic in stat.few else []
        elif all_failed:
            found[key] = math.inf


def per_gpu(baseline: Sample, candidate: Sample) -> bool:
    """Whether rates of the two must be divided by their GPUs to be comparable."""
    return None not in (baseline.gpus, candidate.gpus) and baseline.gpus != candidate.gpus

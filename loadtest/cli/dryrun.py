"""`goodput run --dry-run`: what would be sent, how long it would take and what it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from loadtest.workload import Workload

_HOUR_S = 3600.0
_MILLION = 1e6


def dry_run(workload: Workload, given: dict[str, Any]) -> int:
    """Print the plan; nothing is connected to."""
    import msgspec

    from loadtest.cli import output
    from loadtest.workload import rejections
    from workloads.describe import describe

    trace = workload.read()
    schedule, figures = workload.schedule(trace), describe(trace)
    prompt, out = (int(column.sum(dtype="i8")) for column in (schedule.prompt_tokens, schedule.max_tokens))
    plan: dict[str, Any] = {
        "trace": schedule.trace_name,
        "reading": trace.reading,
        "requests": len(schedule),
        "sessions": figures.sessions,
        "waiting_turns": int(schedule.waits.sum()),
        "duration_s": schedule.duration_s,
        "rate_per_s": schedule.offered_rate_per_s,
        "peak_rate_per_s": figures.largest_window["1"],
        "peak_rate_10s_per_s": figures.largest_window["10"] / 10,
        "prompt_tokens": prompt,
        "output_tokens": out,
        "longest_tokens": int((schedule.prompt_tokens.astype("i8") + schedule.max_tokens).max()),
        "shared_prompt_share": figures.shared_prompt_share,
        "rejected": rejections(trace),
        "warnings": [*trace.warnings],
        "findings": [str(finding) for finding in workload.findings(trace)],
        "cost": cost(given, schedule.duration_s, prompt, out),
    }
    if given["json"]:
        output.print_json(plan)
    else:
        plan["reading"] = None if trace.reading is None else str(trace.reading)
        lines = [(key, value) for key, value in plan.items() if value not in (None, [], {}, 0)]
        say("\n".join(f"{key:<20} {_shown(msgspec.to_builtins(value))}" for key, value in lines))
    return ExitCode.OK


def cost(given: dict[str, Any], duration_s: float, prompt_tokens: int, output_tokens: int) -> dict[str, float]:
    """GPU hours of the schedule (without start-up and drain) and dollars, as far as prices are given."""
    gpus = given["gpus"] or _gpus_of(given["backend"])
    found: dict[str, float] = {}
    if gpus:
        found["gpu_hours"] = gpus * duration_s / _HOUR_S
    hourly = given["gpu_hour_usd"]
    if hourly is not None:
        if not gpus:
            raise UsageError("--gpu-hour-usd needs to know how many", hint="say --gpus N", code="gpus")
        found["gpu_usd"] = found["gpu_hours"] * hourly
    if given["token_usd"] is not None:
        per_prompt, per_output = prices(given["token_usd"])
        found["token_usd"] = (prompt_tokens * per_prompt + output_tokens * per_output) / _MILLION
    return {name: round(value, 6) for name, value in found.items()}


def prices(text: str) -> tuple[float, float]:
    """Dollars for a million prompt and a million output tokens of `2.50,10`."""
    try:
        prompt, output = (float(part) for part in text.split(","))
    except ValueError:
        prompt = output = -1.0
    if not (0 <= prompt < float("inf") and 0 <= output < float("inf")):
        raise UsageError(
            f"--token-usd {text!r} is not PROMPT,OUTPUT", hint="dollars per million tokens, as in 2.50,10", code="price"
        )
    return prompt, output


def _gpus_of(backend: str | None) -> int | None:
    from loadtest.deployment import Deployment

    return Deployment.parse(backend).gpus if backend else None


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)

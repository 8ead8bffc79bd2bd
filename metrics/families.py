"""SLO families of the literature as data: whose limits, how many, and on what.

Numbers and their places: docs/goodput.md. Joint SLOs of the DistServe paper are here too, by application.
"""

from __future__ import annotations

from metrics.objective import Family, Limit, Objective
from metrics.slo import SLO

_SPLITWISE = "Splitwise (ISCA 2024), table VI: slowdown of each request against the same request alone on a DGX-A100"
_SARATHI = "Sarathi-Serve (OSDI 2024), section 5.1: P99 token gap, and a median scheduling delay of at most 2 s"
_MLPERF = "MLPerf Inference, Server scenario: 99th percentiles of TTFT and TPOT"

_PERCENTILES = (0.50, 0.90, 0.99)
_TTFT_SLOWDOWN = (2.0, 3.0, 6.0)
_OTHER_SLOWDOWN = (1.25, 1.5, 5.0)

# P99 token gap in seconds, strict and relaxed: 5 and 25 times a decode iteration with 4k context and batch 32.
_SARATHI_GAPS = {
    "mistral-7b": (0.1, 0.5),
    "yi-34b": (0.2, 1.0),
    "llama2-70b": (1.0, 5.0),
    "falcon-180b": (1.0, 5.0),
}

# P99 TTFT and TPOT in milliseconds: server, interactive.
_MLPERF_MS: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    "llama2-70b": ((2000, 200), (450, 40)),
    "mixtral-8x7b": ((2000, 200), None),
    "llama3.1-8b": ((2000, 100), (500, 30)),
    "llama3.1-405b": ((6000, 175), (4500, 80)),
    "deepseek-r1": ((2000, 80), (1500, 15)),
    "gpt-oss-120b": ((3000, 80), (2000, 15)),
}

# TTFT and TPOT in seconds, 90 %: the published (OSDI) version.
_DISTSERVE = {
    "opt-13b-sharegpt": (0.25, 0.1),
    "opt-66b-sharegpt": (2.5, 0.15),
    "opt-175b-sharegpt": (4.0, 0.2),
    "opt-66b-humaneval": (0.125, 0.2),
    "opt-66b-longbench": (15.0, 0.15),
}


def sarathi(gap_s: float, name: str = "") -> Family:
    """Sarathi's capacity for a P99 token gap of `gap_s` seconds."""
    return Family(name=name, source=_SARATHI, limits=(Limit("itl", gap_s, 0.99), Limit("queue", 2.0, 0.5)))


def _splitwise() -> Family:
    limits = [
        Limit(f"{quantity}_slowdown", limit, share)
        for quantity, allowed in (("ttft", _TTFT_SLOWDOWN), ("tpot", _OTHER_SLOWDOWN), ("e2e", _OTHER_SLOWDOWN))
        for limit, share in zip(allowed, _PERCENTILES, strict=True)
    ]
    return Family(name="splitwise", source=_SPLITWISE, limits=tuple(limits))


def _mlperf(name: str, ttft_ms: int, tpot_ms: int) -> Family:
    limits = (Limit("ttft", ttft_ms / 1e3, 0.99), Limit("tpot", tpot_ms / 1e3, 0.99))
    return Family(name=name, source=_MLPERF, limits=limits)


def _all() -> dict[str, Objective]:
    found: dict[str, Objective] = {"splitwise": _splitwise()}
    for model, gaps in _SARATHI_GAPS.items():
        for kind, gap_s in zip(("strict", "relaxed"), gaps, strict=True):
            name = f"sarathi:{model}-{kind}"
            found[name] = sarathi(gap_s, name)
    for model, (server, interactive) in _MLPERF_MS.items():
        found[f"mlperf:{model}"] = _mlperf(f"mlperf:{model}", *server)
        if interactive is not None:
            found[f"mlperf:{model}-interactive"] = _mlperf(f"mlperf:{model}-interactive", *interactive)
    for name, (ttft_s, tpot_s) in _DISTSERVE.items():
        found[f"distserve:{name}"] = SLO(ttft_s=ttft_s, tpot_s=tpot_s)
    return found


FAMILIES: dict[str, Objective] = _all()

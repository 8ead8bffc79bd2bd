"""Sample the server's Prometheus pages while a load runs: in a child process, so that no page delays a request.

    python -P -m loadtest.probe OUT POOL=URL...     a line per page and second into OUT, until TERM
"""

from __future__ import annotations

import http.client
import math
import re
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec
import numpy as np

from loadtest import clock
from loadtest.errors import UsageError
from loadtest.supervise import Server, announce_ready, die_with_parent, python_module
from metrics.probes import METRICS, Probes

EVERY_S = 1.0
TIMEOUT_S = 2.0
PAGE_BYTES = 8 << 20

# For each of our names what the servers call it: vLLM and ours, SGLang, llama.cpp. All samples of a name are added up.
NAMES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "llamacpp:prompt_tokens_cached_total"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "output_tokens": (
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
    ),
    "transferred_bytes": ("vllm:nixl_bytes_transferred_total", "vllm:nixl_bytes_transferred_sum"),
    "ttft": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "queue": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds"),
    "prefill": ("vllm:request_prefill_time_seconds",),
    "transfer": ("vllm:nixl_xfer_time_seconds",),
}
_HISTOGRAMS = ("ttft", "queue", "prefill", "transfer")
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)")


class Sample(msgspec.Struct, frozen=True):
    """One page at one instant of this machine's monotonic clock."""

    mono_ns: int
    source: int
    values: dict[str, float]


class Source(msgspec.Struct, frozen=True):
    """A page and the name of the pool it speaks for."""

    pool: str
    url: str

    @staticmethod
    def parse(text: str) -> Source:
        """`http://HOST:PORT/metrics`, or with the pool's name before: `prefill=http://...`."""
        pool, equals, url = text.partition("=")
        if not equals or "/" in pool:
            pool, url = "server", text
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(
                f"the metrics page {text!r} is not an http URL",
                hint="write [POOL=]http://HOST:PORT/metrics",
                code="metrics_url",
            )
        return Source(pool, url if parts.path not in ("", "/") else url.rstrip("/") + "/metrics")


def sources_of(texts: Iterable[str]) -> list[Source]:
    """All of them; UsageError when two have one name."""
    found = [Source.parse(part) for text in texts for part in text.split(",")]
    if len({source.pool for source in found}) < len(found):
        raise UsageError(
            "two metrics pages have one name", hint="give each its own: prefill=URL, decode=URL", code="metrics_url"
        )
    return found


def page_values(text: str) -> dict[str, float]:
    """Our metrics out of a Prometheus text page; samples of one name (several engines, labels) are added up."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or (match := _SAMPLE.match(line)) is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            totals[match[1]] = totals.get(match[1], 0.0) + value
    found = {}
    for name, theirs in NAMES.items():
        for suffix in ("_sum", "_count") if name in _HISTOGRAMS else ("",):
            told = next((totals[their + suffix] for their in theirs if their + suffix in totals), None)
            if told is not None:
                found[name + suffix] = told
    return found


class Probing:
    """Samples from entering the block until `stop`; pages that do not answer leave gaps and never end a run."""

    def __init__(self, sources: Sequence[Source], directory: Path) -> None:
        self._sources = list(sources)
        self._raw = directory / "probes.jsonl"
        words = [f"{source.pool}={source.url}" for source in self._sources]
        self._child = Server(
            python_module("loadtest.probe", str(self._raw), *words), log=directory / "probe.log", name="probe"
        )

    def __enter__(self) -> Self:
        self._child.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stop()

    def stop(self, zero_ns: int) -> Probes:
        """A last sample, then all of them on the clock whose zero is `zero_ns`; the raw file is removed."""
        self._child.stop()
        lines = self._raw.read_bytes().splitlines() if self._raw.exists() else []
        samples = [msgspec.json.decode(line, type=Sample) for line in lines]
        self._raw.unlink(missing_ok=True)
        if not self._child.log.stat().st_size:
            self._child.log.unlink()
        zero_ns = zero_ns or (samples[0].mono_ns if samples else 0)
        return Probes(
            np.array([(sample.mono_ns - zero_ns) / 1e9 for sample in samples]),
            np.array([sample.source for sample in samples], dtype=np.int64),
            np.array([[s.values.get(name, np.nan) for name in METRICS] for s in samples]).reshape(-1, len(METRICS)),
            [source.pool for source in self._sources],
        )


# --- the child ---------------------------------------------------------------------------------------------


def fetch(url: str) -> str:
    """The page's text; OSError or HTTPException when it cannot be had."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
        answer = connection.getresponse()
        text = answer.read(PAGE_BYTES).decode(errors="replace")
    finally:
        connection.close()
    if answer.status != 200:
        raise http.client.HTTPException(f"status {answer.status}")
    return text


def _sample_into(file: Path, sources: Sequence[Source], complained: set[int]) -> None:
    with file.open("ab") as out:
        for index, source in enumerate(sources):
            before_ns = clock.monotonic_ns()
            try:
                text = fetch(source.url)
            except (OSError, http.client.HTTPException) as error:
                if index not in complained:
                    complained.add(index)
                    sys.stderr.write(f"{source.pool}: {source.url}: {error}\n")
                continue
            at_ns = (before_ns + clock.monotonic_ns()) // 2
            out.write(msgspec.json.encode(Sample(at_ns, index, page_values(text))) + b"\n")


def main(words: list[str]) -> None:
    """Sample at whole seconds of our own until TERM; once more at the end."""
    die_with_parent()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    file, sources = Path(words[0]), sources_of(words[1:])
    complained: set[int] = set()
    _sample_into(file, sources, complained)
    announce_ready()
    due_ns = clock.monotonic_ns()
    while not over.is_set():
        due_ns += int(EVERY_S * 1e9)
        over.wait(max(due_ns - clock.monotonic_ns(), 0) / 1e9)
        _sample_into(file, sources, complained)


if __name__ == "__main__":
    main(sys.argv[1:])

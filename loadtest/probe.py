"""Sample the server's Prometheus pages while a load runs: in a child process, so that no page delays a request.

The child is `python -P -m loadtest.probe OUT`: a line per page and second into OUT, until TERM. Its pages are in its
environment, not in its arguments: everybody on the machine may read those, and a page's URL may hold a token.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import urljoin, urlsplit

import msgspec
import numpy as np

from loadtest import clock, secrets
from loadtest.errors import UsageError
from loadtest.serverpage import page_values
from loadtest.supervise import Server, announce_ready, die_with_parent, python_module
from loadtest.weburl import split_url
from metrics.probes import METRICS, Probes

PAGES_VARIABLE = "GOODPUT_METRICS_PAGES"
EVERY_S = 1.0
TIMEOUT_S = 2.0
PATIENCE_S = 2 * TIMEOUT_S  # with all pages, at the beginning and at the end
PAGE_BYTES = 8 << 20
MOST_HOPS = 4
_MOVED = (301, 302, 303, 307, 308)


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
        try:
            parts = split_url(url, ("http",))
        except ValueError as error:
            raise UsageError(
                f"the metrics page {text!r} {error}", hint="write [POOL=]http://HOST:PORT/metrics", code="metrics_url"
            ) from None
        if parts.username or parts.password:
            raise UsageError(
                f"the metrics page of {pool!r} carries a password, which would end up in records",
                hint="let the page be read without one on this network",
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


class Probing:
    """Samples from entering the block until `stop`; pages that do not answer leave gaps and never end a run."""

    def __init__(self, sources: Sequence[Source], directory: Path) -> None:
        self._sources = list(sources)
        self._raw = directory / "probes.jsonl"
        pages = msgspec.json.encode([f"{source.pool}={source.url}" for source in self._sources]).decode()
        for source in self._sources:
            secrets.hold_query(source.url)
        self._child = Server(
            python_module("loadtest.probe", str(self._raw)),
            log=directory / "probe.log",
            name="probe",
            env={PAGES_VARIABLE: pages},
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
        samples = [sample for line in lines if (sample := _sample_of(line)) is not None]
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


def _sample_of(line: bytes) -> Sample | None:
    """A line of the raw file; None of one that a full disk cut short."""
    try:
        return msgspec.json.decode(line, type=Sample)
    except msgspec.MsgspecError:
        return None


# --- the child ---------------------------------------------------------------------------------------------


def fetch(url: str) -> str:
    """The page's text, along redirects; OSError or HTTPException when it cannot be had, or not in TIMEOUT_S."""
    give_up_ns = clock.monotonic_ns() + int(TIMEOUT_S * 1e9)
    for _ in range(MOST_HOPS):
        text, url = _exchange(url, give_up_ns)
        if not url:
            return text
    raise http.client.HTTPException("redirected again and again")


def _exchange(url: str, give_up_ns: int) -> tuple[str, str]:
    """The text, or where it is instead."""
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise http.client.HTTPException(f"redirected to {url[:200]}, which is not http")
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path + (f"?{parts.query}" if parts.query else ""))
        answer = connection.getresponse()
        if answer.status in _MOVED and (place := answer.headers.get("location")):
            return "", urljoin(url, place)
        if answer.status != 200:
            raise http.client.HTTPException(f"status {answer.status}")
        return _body(answer, give_up_ns).decode(errors="replace"), ""
    finally:
        connection.close()


def _body(answer: http.client.HTTPResponse, give_up_ns: int) -> bytes:
    """All of it: half a page would be half of a sum."""
    body = b""
    while data := answer.read1(1 << 20):
        body += data
        if len(body) > PAGE_BYTES:
            raise http.client.HTTPException(f"larger than {PAGE_BYTES >> 20} MiB")
        if clock.monotonic_ns() > give_up_ns:
            raise TimeoutError(f"not complete within {TIMEOUT_S:g} s")
    if answer.length:
        raise http.client.IncompleteRead(body, answer.length)
    return body


class Sampler:
    """One page, asked each second in a thread of its own, so that no page holds up another."""

    def __init__(self, index: int, source: Source, out: BinaryIO, over: threading.Event) -> None:
        self.first = threading.Event()  # set after the first attempt
        self._index, self._source, self._out, self._over = index, source, out, over
        self._complained = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._sample()
        self.first.set()
        due_ns = clock.monotonic_ns()
        while not self._over.is_set():
            due_ns = max(due_ns + int(EVERY_S * 1e9), clock.monotonic_ns())
            self._over.wait((due_ns - clock.monotonic_ns()) / 1e9)
            self._sample()

    def _sample(self) -> None:
        before_ns = clock.monotonic_ns()
        try:
            values = page_values(fetch(self._source.url))
            if not values:
                raise http.client.HTTPException("holds none of the metrics that are known")
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: of a redirect's odd URL
            if not self._complained:
                self._complained = True
                told = f"{self._source.pool}: {self._source.url}: {error or type(error).__name__}\n"
                sys.stderr.write(secrets.mask(told))
            return
        at_ns = (before_ns + clock.monotonic_ns()) // 2
        with contextlib.suppress(OSError):  # a full disk leaves a gap, as a silent page does
            self._out.write(msgspec.json.encode(Sample(at_ns, self._index, values)) + b"\n")


def main(words: list[str]) -> None:
    """Sample at whole seconds of our own until TERM; once more at the end. Whoever is too slow is not waited for."""
    die_with_parent()
    pages = msgspec.json.decode(os.environ.pop(PAGES_VARIABLE), type=list[str])
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with Path(words[0]).open("ab", buffering=0) as out:  # a line is one write
        samplers = [Sampler(index, source, out, over) for index, source in enumerate(sources_of(pages))]
        _until(PATIENCE_S, [sampler.first.wait for sampler in samplers])
        announce_ready()
        over.wait()
        _until(PATIENCE_S, [sampler.thread.join for sampler in samplers])


def _until(seconds: float, waits: Sequence[Callable[[float], object]]) -> None:
    """Wait for all of them, for no longer than that altogether."""
    give_up_ns = clock.monotonic_ns() + int(seconds * 1e9)
    for wait in waits:
        wait(max(give_up_ns - clock.monotonic_ns(), 0) / 1e9)


if __name__ == "__main__":
    main(sys.argv[1:])

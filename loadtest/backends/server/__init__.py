"""The OpenAI face of the bundled backends, always in an interpreter of its own.

face.py      HTTP: routes, streams, errors (aiohttp)
protocol.py  what a client may ask, and the sentence it gets when it may not
frames.py    the bytes of an answer, prepared once per stream
engine.py    what the face needs from a backend
alarm.py     wake the event loop at an instant, to well under a millisecond
meters.py    counters and histograms under vLLM's Prometheus names
arrivals.py  when each request reached us
"""

from __future__ import annotations

from pathlib import Path

from loadtest.supervise import python_module

_READY_S = {"torch": 600.0}  # a checkpoint is read, or billions of random weights are made


def ready_timeout_s(backend: str) -> float:
    """How long a server of that kind may take to be ready."""
    return _READY_S.get(backend, 30.0)


def command(deployment: str, *, host: str = "127.0.0.1", port: int = 0, arrival_log: Path | None = None) -> list[str]:
    """Argument list that serves `deployment` (its text form), for `supervise.Server`; port 0 takes a free one."""
    arguments = ["--deployment", deployment, "--host", host, "--port", str(port)]
    if arrival_log is not None:
        arguments += ["--arrival-log", str(arrival_log)]
    return python_module(__name__, *arguments)

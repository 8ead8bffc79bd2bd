"""`goodput serve`, as a process for what it promises on Ctrl-C, in-process for what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadtest.cli.serve import serve
from loadtest.errors import UsageError

ROOT = Path(__file__).parents[2]
DEPLOYMENT = "emulated:chunked,model=demo-8b"


@contextmanager
def started(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    code = "from loadtest.cli.serve import serve; serve(prog_name='goodput serve')"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, DEPLOYMENT, "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_a_signal_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """--json prints where it listens; the signal ends it with exit 0, and its folder is gone."""
    with started(tmp_path, "--json") as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        with urllib.request.urlopen(document["url"] + "/v1/models", timeout=60) as page:
            assert "demo-8b" == json.load(page)["data"][0]["id"]
        process.send_signal(number)
        assert (b"", b"stopped\n") == process.communicate()
    assert 0 == process.returncode
    assert {"url", "model", "deployment"} == set(document)
    assert (DEPLOYMENT, "demo-8b") == (document["deployment"], document["model"])
    assert [] == list(tmp_path.iterdir())


@pytest.mark.live
def test_text_names_the_url_and_a_request_to_try(tmp_path: Path) -> None:
    """The first thing a newcomer can paste."""
    with started(tmp_path) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        process.wait()
    assert lines[0].startswith("demo-8b at http://127.0.0.1:")
    assert "curl -N http://127.0.0.1:" in lines[2]
    assert '"stream": true' in lines[3]


@pytest.mark.parametrize("deployment", ["http://127.0.0.1:8000", "emulated:chunky", "nonsense"])
def test_what_cannot_be_served_is_a_usage_error(deployment: str) -> None:
    """Before anything is started."""
    result = CliRunner().invoke(serve, [deployment])
    assert isinstance(result.exception, UsageError)
    assert deployment in result.exception.message

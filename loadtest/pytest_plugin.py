"""pytest plugin: the fixture `goodput` and the marker `slo`, which make an objective of a server a test.

    @pytest.mark.slo("ttft=200ms,tpot=50ms,share=90%", require=["failed < 1%"])
    def test_chat_is_fast_enough(goodput):
        goodput.run(target="http://127.0.0.1:8000", trace="azure-conv", rate=4, duration="60s")

    def test_no_slower_than_main(goodput):
        goodput.gate(baseline="http://main:8000", candidate="http://branch:8000", rule=["tpot.p90 rise < 5%"])

Everything runs in a child process: the load generator patches sockets, which must not happen to the user's tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

MARKER = "slo(targets, require=(), on_inconclusive='fail'): what goodput.run() must show, e.g. 'ttft=1s,tpot=50ms'"
FAILED, INCONCLUSIVE, INVALID = 1, 3, 4


@dataclass(frozen=True)
class Measured:
    """What one `goodput` command said: its exit code, its JSON document, and where its files are."""

    exit_code: int
    document: dict[str, Any]
    directory: Path
    stderr: str = field(repr=False, default="")

    @property
    def attainment(self) -> float | None:
        """The share of good requests of a run; None without an SLO."""
        attained = self.document.get("attainment")
        return attained["share"] if attained else None

    @property
    def verdict(self) -> str:
        """PASS, FAIL, INCONCLUSIVE or INVALID of a gate; the validity verdict of a run."""
        return str(self.document.get("verdict") or self.document["validity"]["verdict"])


class Goodput:
    """Runs `goodput` as a child; a missed requirement fails the test with the reason."""

    def __init__(self, folder: Path, slo: str, require: Sequence[str], on_inconclusive: str) -> None:
        self._folder, self._slo, self._require, self._on_inconclusive = folder, slo, tuple(require), on_inconclusive
        self._calls = 0

    def run(self, check: bool = True, **options: Any) -> Measured:
        """`goodput run` with these options (`max_lateness="5s"` is `--max-lateness 5s`).

        Under the marker `slo` its attainment must reach the share; `check=False` only measures.
        """
        if self._slo:
            options.setdefault("slo", self._slo)
        required = [*self._attained(options), *self._require, *_listed(options.pop("require", ()))]
        return self._call("run", {**options, "require": required}, check)

    def gate(self, check: bool = True, **options: Any) -> Measured:
        """`goodput gate` with these options; `check=False` only measures."""
        if self._slo:
            options.setdefault("slo", self._slo)
        return self._call("gate", options, check)

    def _attained(self, options: dict[str, Any]) -> list[str]:
        """The requirement behind the marker: the share that its targets name."""
        if not self._slo:
            return []
        parts = dict(part.strip().split("=") for part in str(options["slo"]).split(",") if "=" in part)
        return [f"attainment > {parts.get('share', '90%').strip()}"]

    def _call(self, command: str, options: dict[str, Any], check: bool) -> Measured:
        self._calls += 1
        directory = Path(options.pop("out", self._folder / f"{command}-{self._calls}"))
        words = [sys.executable, "-P", "-m", "loadtest.cli.main", command, "--json", "--out", str(directory)]
        words += _words(options)
        done = subprocess.run(words, capture_output=True, text=True, env=_environment(), check=False)
        document = json.loads(done.stdout) if done.stdout.strip() else {}
        measured = Measured(done.returncode, document, directory, done.stderr)
        if "error" in document or not document:
            pytest.fail(f"goodput {command}: {_error(document, done.stderr)}", pytrace=False)
        if check and done.returncode:
            self._judge(command, measured)
        return measured

    def _judge(self, command: str, measured: Measured) -> None:
        told = measured.document.get("sentence") or _last(measured.stderr)
        if measured.exit_code == INCONCLUSIVE and self._on_inconclusive != "fail":
            if self._on_inconclusive == "skip":
                pytest.skip(f"goodput {command}: {told}")
            return
        kind = {FAILED: "failed", INCONCLUSIVE: "is inconclusive", INVALID: "is invalid"}
        what = kind.get(measured.exit_code, f"ended with exit code {measured.exit_code}")
        pytest.fail(f"goodput {command} {what}: {told}\nits files are in {measured.directory}", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that --strict-markers accepts it."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def goodput(request: pytest.FixtureRequest, tmp_path: Path) -> Goodput:
    """Load servers and judge what they deliver; see the marker `slo`."""
    marker = request.node.get_closest_marker("slo")
    if marker is None:
        return Goodput(tmp_path, "", (), "fail")
    targets = marker.args[0] if marker.args else marker.kwargs.get("targets", "")
    required = _listed(marker.kwargs.get("require", ()))
    return Goodput(tmp_path, str(targets), required, str(marker.kwargs.get("on_inconclusive", "fail")))


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _words(options: dict[str, Any]) -> list[str]:
    """Options as a command line has them."""
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list | tuple):
            words += [word for item in value for word in (flag, str(item))]
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words


def _environment() -> dict[str, str]:
    """The child finds the same packages as this process, also in a checkout that is not installed."""
    place = Path(__file__).parents[1]
    if place.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))}


def _error(document: dict[str, Any], stderr: str) -> str:
    error = document.get("error", {})
    return " ".join(filter(None, [error.get("message"), error.get("hint")])) or _last(stderr)


def _last(text: str) -> str:
    """The last line of ours on stderr."""
    lines = [line for line in text.splitlines() if line.startswith("goodput: ")]
    return lines[-1].removeprefix("goodput: ") if lines else text.strip()[-500:]

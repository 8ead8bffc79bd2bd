"""Command cases: command lines as a user types them, against servers of the case; what they say, write and send.

    case.json      servers      name -> arguments of server.py, which listens at {name}; or {"arguments", "port"}
                   commands     name -> the words after `goodput`, or {"words", "environment", "uid"}: they run in
                                order, in the folder {out}; {case} is the case's own
                   environment  for all of them; null takes a variable away
    expected.json  commands     name -> exit_code, stdout, stderr, output (both), document (of --json)
                   files        path below {out} -> what its document or its text must be
                   requests     server -> [{"where": ..., "count": ...}]: how many requests like that came
                   nowhere      secrets that no output and no file may hold

What is expected is a value, an object whose keys are all expected (`requests.planned` leads into one), or demands:
see _DEMANDS. Texts are compared with their line breaks as blanks.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loadtest.supervise import python_module
from tests.cases.kinds import undisturbed
from tests.cases.kinds._records import COMMENTS
from tests.cases.kinds._server import CaseServer
from tests.golden import differences

ROOT = Path(__file__).parents[3]
LIMIT_S = 100
SHOWN_CHARACTERS = 300
STDERR_SHOWN = 2000
MISSING = "(missing)"

# demand -> whether what was found meets it
_DEMANDS: dict[str, Callable[[Any, Any], bool]] = {
    "at_least": lambda found, wanted: found != MISSING and found is not None and found >= wanted,
    "at_most": lambda found, wanted: found != MISSING and found is not None and found <= wanted,
    "one_of": lambda found, wanted: any(not _misses(each, found) for each in wanted),
    "contains": lambda found, wanted: all(text in str(found) for text in _listed(wanted)),
    "lacks": lambda found, wanted: found != MISSING and not any(text in str(found) for text in _listed(wanted)),
    "some": lambda found, wanted: any(not _misses(wanted, each) for each in found),
    "none": lambda found, wanted: found != MISSING and all(_misses(wanted, each) for each in found),
}


@dataclass
class Done:
    """A finished command."""

    exit_code: int
    stdout: str
    stderr: str

    def found(self) -> dict[str, Any]:
        """What expected.json may ask for."""
        return {
            "exit_code": self.exit_code,
            "document": _document(self.stdout),
            "stdout": _one_line(self.stdout),
            "stderr": _one_line(self.stderr),
            "output": _one_line(self.stdout + self.stderr),
        }


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Play the case and compare everything that expected.json names."""
    undisturbed(lambda: _play_and_compare(case_dir, case, expected))


def _play_and_compare(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="goodput-case-") as folder, ExitStack() as stack:
        out = Path(folder).resolve()
        servers = {name: _started(stack, case_dir, given) for name, given in case.get("servers", {}).items()}
        places = {name: f"http://127.0.0.1:{server.port}" for name, server in servers.items()}
        places |= {"out": str(out), "case": str(case_dir.resolve())}
        done = {name: _run(given, case.get("environment", {}), places) for name, given in case["commands"].items()}
        found = {
            "commands": {name: each.found() for name, each in done.items()},
            "requests": {name: server.requests for name, server in servers.items()},
        }
        said = _compare(expected, found, out)
    if said:
        ends = [f"--- {name}: exit {each.exit_code}\n{each.stderr[-STDERR_SHOWN:]}" for name, each in done.items()]
        raise AssertionError("\n".join([*said, *ends]))


def _started(stack: ExitStack, case_dir: Path, given: Any) -> CaseServer:
    wanted = given if isinstance(given, dict) else {"arguments": given}
    port = wanted.get("port", 0)
    server = CaseServer(case_dir / "server.py", wanted["arguments"], port=port)
    try:
        return stack.enter_context(server)
    except OSError as error:
        if not port:
            raise
        pytest.skip(f"nothing can listen at port {port} here: {error.strerror}")


def _run(given: Any, environment: dict[str, str | None], places: dict[str, str]) -> Done:
    """One command line in a process of its own, as another user where the case asks for it."""
    given = given if isinstance(given, dict) else {"words": given}
    words = shlex.split(given["words"])
    for name, place in places.items():
        words = [word.replace(f"{{{name}}}", place) for word in words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment, **given.get("environment", {})}
    before, options = _as_user(given["uid"], Path(places["out"])) if "uid" in given else ([], {})
    done = subprocess.run(
        [*before, *python_module("loadtest.cli.main", *words)],
        cwd=places["out"],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=LIMIT_S,
        check=False,
        **options,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _as_user(uid: int, out: Path) -> tuple[list[str], dict[str, Any]]:
    """Words and options that make a command that of a user nobody knows; skips where that cannot be.

    In a namespace of its own a process only looks like that user: what it may read stays as it is.
    """
    out.chmod(0o777)
    ways: list[tuple[list[str], dict[str, Any]]] = [(["unshare", "--user", f"--map-user={uid}", "--map-group=0"], {})]
    if not os.geteuid():
        ways.append(([], {"user": uid, "group": 0, "extra_groups": []}))
    for before, options in ways:
        with suppress(OSError):
            check = [*before, sys.executable, "-c", "import loadtest"]
            if not subprocess.run(check, cwd=ROOT, capture_output=True, check=False, **options).returncode:
                return before, options
    pytest.skip("neither `unshare --user` nor root can run a command as another user here")


def _compare(expected: dict[str, Any], found: dict[str, Any], out: Path) -> list[str]:
    """What is not as expected, a line each."""
    unknown = expected.keys() - {"commands", "files", "requests", "nowhere"} - COMMENTS
    assert not unknown, f"keys this kind does not check: {sorted(unknown)}"
    said = _misses(expected.get("commands", {}), found["commands"])
    for name, wanted in expected.get("files", {}).items():
        path = out / name
        text = path.read_text(encoding="utf-8") if path.exists() else MISSING
        said += _misses(wanted, _document(text) if path.suffix == ".json" else _one_line(text), name)
    for name, wanted in expected.get("requests", {}).items():
        for each in wanted:
            count = sum(not _misses(each["where"], request) for request in found["requests"][name])
            said += _misses(each["count"], count, f"requests to {name} with {each['where']}")
    return said + [
        f"{secret} stands in {place}"
        for secret in expected.get("nowhere", [])
        for place in _places_of(secret, found["commands"], out)
    ]


def _places_of(secret: str, commands: dict[str, Any], out: Path) -> Iterator[str]:
    """Outputs and files that hold a secret."""
    for name, command in commands.items():
        yield from (f"{stream} of {name}" for stream in ("stdout", "stderr") if secret in command[stream])
    for path in sorted(out.rglob("*")):
        if path.is_file() and secret.encode() in path.read_bytes():
            yield str(path.relative_to(out))


def _misses(expected: Any, found: Any, where: str = "") -> list[str]:
    """How what was found is not what is expected."""
    if not isinstance(expected, dict):
        return differences(expected, found, absolute=2e-6, where=where)
    if expected.keys() & _DEMANDS.keys():
        unmet = {name: wanted for name, wanted in expected.items() if not _DEMANDS[name](found, wanted)}
        return [f"{where}: expected {unmet}, found {str(found)[:SHOWN_CHARACTERS]}"] if unmet else []
    return [
        miss
        for key, wanted in expected.items()
        if key not in COMMENTS
        for miss in _misses(wanted, _at(found, key), f"{where}.{key}" if where else key)
    ]


def _at(document: Any, key: str) -> Any:
    """What stands at a key, or at the end of a dotted path."""
    for part in [key] if isinstance(document, dict) and key in document else key.split("."):
        document = document.get(part, MISSING) if isinstance(document, dict) else MISSING
    return document


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return MISSING


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]

"""The documentation names everything a user can type or read, and none of it is out of date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest

import loadtest
from loadtest.cli.main import cli
from loadtest.deployment import ARRANGEMENTS, OPTIONS
from loadtest.errors import ExitCode
from metrics.records import Flag, Outcome
from metrics.summary import summary_schema
from workloads.synth import BUILTIN

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def page(name: str) -> str:
    """The text of one documentation page."""
    return (ROOT / name).read_text(encoding="utf-8")


def missing(names: list[str], text: str) -> list[str]:
    """Those of `names` that `text` does not hold as a whole word."""
    words = set(re.findall(r"[A-Za-z0-9_.:-]+", text)) | set(re.findall(r"\w+", text))
    return [name for name in names if name not in words]


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below this one, with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(found, f"{name} {child}")


COMMANDS = list(commands(cli, "goodput"))


def test_the_cli_reference_is_current() -> None:
    """docs/cli.md is what `scripts/docs` would write now."""
    done = subprocess.run(
        [sys.executable, "scripts/cli_reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_and_option_explains_itself(name: str, command: click.Command) -> None:
    """A command has a purpose, an option a sentence, and both are in the reference."""
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert command.help, name
    assert [] == [option.name for option in options if not option.help]
    assert f"## {name}\n" in page("docs/cli.md")
    assert [] == missing([max(option.opts, key=len) for option in options], page("docs/cli.md"))


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/architecture.md"])
def test_every_exit_code_is_documented(name: str) -> None:
    """A script author finds number and name of each exit code."""
    assert [] == [code.name for code in ExitCode if f"| {code.value} | {code.name} | " not in page(name)]


def test_every_variable_is_documented() -> None:
    """What the program reads from the environment by a name of its own is in docs/cli.md."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "loadtest").rglob("*.py")]
    names = {name for text in sources for name in re.findall(r"\"(GOODPUT_[A-Z_]+)\"", text)}
    assert {"GOODPUT_CONFIG"} <= names
    internal = {"GOODPUT_PARENT_PID", "GOODPUT_WORKER_TOKEN", "GOODPUT_METRICS_PAGES"}  # set for children of ours
    assert [] == missing(sorted(names - internal), page("docs/cli.md"))


def schema_keys(schema: dict[str, Any]) -> set[str]:
    """Every key that a document of this JSON schema can hold."""
    return {key for part in schema["$defs"].values() for key in part.get("properties", {})}


def test_every_key_of_the_json_summary_is_defined() -> None:
    """What `--json` prints is explained by name."""
    assert [] == missing(sorted(schema_keys(summary_schema())), page("docs/definitions.md"))


@pytest.mark.parametrize("names", [Outcome, Flag], ids=["outcomes", "flags"])
def test_every_outcome_and_flag_is_defined(names: type[Outcome] | type[Flag]) -> None:
    """A row's marks are explained by name; an HTTP error is printed with its status."""
    printed = ["http_" if name == "HTTP_ERROR" else name.lower() for name in names.__members__]
    text = page("docs/definitions.md")
    assert [] == [name for name in printed if name not in text]


def finding_codes() -> list[str]:
    """The codes that a run's verdict can hold, read from the sources that make findings."""
    trees = [ast.parse(page(f"metrics/{name}.py")) for name in ("validity", "evidence", "unjudged")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    firsts = [call.args[0] for call in calls if ast.unparse(call.func) in {"invalid", "warning"} and call.args]
    firsts += [word.value for call in calls for word in call.keywords if word.arg == "code"]
    firsts += [node.elts[0] for node in nodes if isinstance(node, ast.Tuple) and len(node.elts) == 4]
    return [node.value for node in firsts if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/definitions.md"])
def test_every_validity_finding_is_documented(name: str) -> None:
    """Each reason to doubt a run can be looked up by its code."""
    codes = finding_codes()
    assert {"limited_by_client", "failures", "buffered_stream"} <= set(codes)
    assert [] == missing(codes, page(name))


def test_every_deployment_key_is_documented() -> None:
    """What may stand in a deployment's text is in docs/backends.md."""
    assert [] == missing([*ARRANGEMENTS, *OPTIONS], page("docs/backends.md"))


def test_every_builtin_workload_is_documented() -> None:
    """The names that `--trace` takes beside files are in docs/traces.md."""
    assert [] == missing(list(BUILTIN), page("docs/traces.md"))


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_relative_links_lead_somewhere(path: Path) -> None:
    """No link or picture of a page is dead."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [] == [target for target in local if not (path.parent / target).exists()]


def test_every_page_is_listed() -> None:
    """docs/index.md leads to each page beside it."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert set() == {name for name in pages if f"({name})" not in page("docs/index.md")}


def test_the_readme_opens_with_the_two_commands_that_ci_runs() -> None:
    """A newcomer sees both without scrolling, and what CI proves is what the README promises."""
    first_screen = "\n".join(page("README.md").splitlines()[:30])
    assert "./scripts/install && .venv/bin/goodput demo" in first_screen
    assert "./scripts/test" in first_screen
    assert "**Goodput** is" in first_screen
    assert {"scripts/check", "scripts/test"} <= set(page(".ci/run").split())


def test_the_version_is_the_same_everywhere() -> None:
    """Package, installed metadata and citation agree."""
    assert loadtest.__version__ == version("slo-goodput")
    assert f"version: {loadtest.__version__}\n" in page("CITATION.cff")

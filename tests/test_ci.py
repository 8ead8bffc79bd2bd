"""The GitHub Action and the GitLab template: their own commands, run as the services would."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from loadtest.errors import ExitCode

ROOT = Path(__file__).parent.parent
SAME = "emulated:chunked,model=demo-8b"
WORSE = f"{SAME},max_num_batched_tokens=128"
SLO = "ttft=500ms,tpot=20ms"
MORE = "--virtual --requests 30"
BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="the commands are bash")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A job's working directory with `goodput` on its path."""
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "goodput"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m loadtest.cli.main "$@"\n')
    command.chmod(0o755)
    (tmp_path / "job").mkdir()
    return tmp_path


def job(place: Path, script: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script as a job does: bash, -e, the job's variables."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GATE_", "GITHUB_", "GOODPUT_", "CI_"))
    }
    environment |= {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=place / "job",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return found


def judged(place: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's own step `Judge`, with its expressions filled in as GitHub does."""
    found = action()
    values = {name: inputs.get(name.replace("-", "_"), given["default"]) for name, given in found["inputs"].items()}
    assert not inputs.keys() - {name.replace("-", "_") for name in values}
    (step,) = [step for step in found["runs"]["steps"] if step.get("id") == "gate"]
    filled = {f"${{{{ inputs.{name} }}}}": value for name, value in values.items()}
    filled["${{ github.action_path }}"] = str(ROOT)
    variables = {name: filled[expression] for name, expression in step["env"].items()}
    service = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
        "GITHUB_OUTPUT": str(place / "output"),
    }
    assert "bash" == step["shell"]
    return job(place, step["run"], {**variables, **service})


def test_the_action_passes_equal_servers(place: Path) -> None:
    """Exit 0; files, step summary and output are where a workflow finds them."""
    done = judged(place, baseline=SAME, candidate=SAME, slo=SLO, rate="4", pairs="3", args=MORE)
    assert 0 == done.returncode, done.stderr
    out = place / "job" / "gate"
    assert "PASS" == json.loads((out / "gate.json").read_text())["verdict"]
    assert {"junit.xml", "metrics.txt", "runs"} <= {path.name for path in out.iterdir()}
    assert "goodput gate: PASS" in (place / "summary.md").read_text()
    assert "exit-code=0\n" == (place / "output").read_text()


def test_the_action_fails_a_worse_one(place: Path) -> None:
    """Exit 1, annotated, the exit code still an output; rules one a line."""
    rules = "ttft.p90 rise < 10%\n\nfailed < 50%\n"
    done = judged(place, baseline=SAME, candidate=WORSE, slo=SLO, rate="4", pairs="3", rules=rules, args=MORE)
    assert ExitCode.FAILED == done.returncode, done.stderr
    assert "::error title=goodput gate%3A FAIL::ttft.p90" in done.stderr
    assert "exit-code=1\n" == (place / "output").read_text()
    document = json.loads((place / "job" / "gate" / "gate.json").read_text())
    assert ["ttft.p90 rise < 10%", "failed < 50%"] == [result["rule"] for result in document["rules"]]


def test_the_action_takes_launch_files(place: Path) -> None:
    """Two names in one input; what cannot be used is exit 2."""
    done = judged(place, launch="base.toml cand.toml", slo=SLO, rate="4", pairs="3", args=MORE)
    assert ExitCode.USAGE == done.returncode
    assert "base.toml" in done.stderr


def test_every_input_reaches_the_command() -> None:
    """Each input is an environment variable of the step, and each of those is read by the script."""
    found = action()
    (step,) = [step for step in found["runs"]["steps"] if step.get("id") == "gate"]
    expressions = " ".join(step["env"].values())
    unused = [name for name in found["inputs"] if name != "install" and f"inputs.{name} " not in expressions]
    assert [] == unused
    script = (ROOT / "ci" / "gate").read_text() + step["run"]
    assert [] == [name for name in step["env"] if f"${name}" not in script and f"${{{name}" not in script]
    assert "steps.gate.outputs.exit-code" in found["outputs"]["exit-code"]["value"]


def test_the_gitlab_job_leaves_its_reports(place: Path) -> None:
    """Its own script; the artefacts it declares exist also when the gate fails."""
    template = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".goodput-gate"]
    variables = {
        **template["variables"],
        "GATE_BASELINE": SAME,
        "GATE_CANDIDATE": WORSE,
        "GATE_SLO": SLO,
        "GATE_RULES": "ttft.p90 rise < 10%\nfailed < 50%\n",
        "GATE_ARGS": f"{MORE} --rate 4 --pairs 3",
    }
    done = job(place, "\n".join(template["script"]), variables)
    assert ExitCode.FAILED == done.returncode, done.stderr
    reports = template["artifacts"]["reports"]
    assert "always" == template["artifacts"]["when"]
    suite = Xml.parse(place / "job" / reports["junit"]).getroot()[0]
    assert ("2", "1") == (suite.attrib["tests"], suite.attrib["failures"])
    assert (place / "job" / reports["metrics"]).read_text().endswith("# EOF\n")


RULES = 'rules = ["failed < 99%"]\n'


@pytest.mark.parametrize(("config", "rules"), [("", 5), ("mine.toml", 1)])
def test_a_checkout_does_not_choose_the_rules(config: str, rules: int, place: Path) -> None:
    """Its goodput.toml is left unread; one that the workflow names is read, and said."""
    for name in ("goodput.toml", "mine.toml"):
        (place / "job" / name).write_text(f"[gate]\n{RULES}")
    done = judged(place, baseline=SAME, candidate=SAME, slo=SLO, rate="4", pairs="3", args=MORE, config=config)
    assert 0 == done.returncode, done.stderr
    document = json.loads((place / "job" / "gate" / "gate.json").read_text())
    assert rules == len(document["rules"])
    assert bool(config) == ("mine.toml gives --rule" in done.stderr)


def template() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())[".goodput-gate"]
    return found


def installed(place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The template's own steps before the gate, with a `python` that only says what it was asked."""
    stub = place / "bin" / "python"
    stub.write_text('#!/bin/sh\necho "$@"\nfor last; do :; done\ncat "$last/version"\n')
    stub.chmod(0o755)
    return job(place, "\n".join(template()["before_script"]), {**template()["variables"], **variables})


@pytest.mark.parametrize("given", [{}, {"GOODPUT_REPOSITORY": "/x"}, {"GOODPUT_REF": "v1"}])
def test_the_gitlab_job_wants_a_repository_and_a_ref(given: dict[str, str], place: Path) -> None:
    """It installs no name from a public index, where anybody could have taken it."""
    done = installed(place, **given)
    assert 2 == done.returncode
    assert "set GOODPUT_REPOSITORY to a clone URL of goodput, and GOODPUT_REF" in done.stderr
    assert "" == done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="the template clones with git")
def test_the_gitlab_job_installs_the_pinned_ref(place: Path) -> None:
    """The tag's files, not those of the newest commit; with the pinned versions of all that comes with it."""
    there = place / "goodput.git"
    name = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", str(there)], check=True)
    for version in ("v1", "v2"):
        (there / "version").write_text(version)
        subprocess.run(["git", "-C", str(there), "add", "-A"], check=True)
        subprocess.run(["git", "-C", str(there), *name, "commit", "--quiet", "-m", version], check=True)
        subprocess.run(["git", "-C", str(there), "tag", version], check=True)
    done = installed(place, GOODPUT_REPOSITORY=str(there), GOODPUT_REF="v1")
    assert 0 == done.returncode, done.stderr
    asked, version = done.stdout.splitlines()
    source = asked.split()[-1]
    assert f"-m pip install --quiet --constraint {source}/ci/constraints.txt {source}" == asked
    assert "v1" == version
    assert 0 != installed(place, GOODPUT_REPOSITORY=str(there), GOODPUT_REF="v3").returncode


def test_every_requirement_has_one_version_within_its_bounds() -> None:
    """ci/constraints.txt names what setup.cfg asks for, and all that comes with it here."""
    lines = [line for line in (ROOT / "ci" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert len(lines) == len(pinned)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    texts = f"{setup['options']['install_requires']}\n{extras['test']}\n{extras['dev']}".strip().splitlines()
    for asked in map(Requirement, filter(None, texts)):
        if asked.name != "slo-goodput":
            assert asked.specifier.contains(pinned[canonicalize_name(asked.name)]), str(asked)
    assert set() == {"torch", "pip", "setuptools", "slo-goodput"} & pinned.keys()


def test_everything_that_installs_uses_those_versions() -> None:
    """The action, the template, and our own continuous integration."""
    (step,) = [step for step in action()["runs"]["steps"] if step["name"] == "Install goodput"]
    assert '--constraint "$ACTION/ci/constraints.txt" "$ACTION"' in step["run"]
    assert "PIP_CONSTRAINT=$PWD/ci/constraints.txt scripts/install dev" in (ROOT / ".ci" / "run").read_text()

"""What a goodput.toml decides is said, is read as if it were typed, and can be shut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode

CHEAP = "emulated:chunked,model=demo-8b"
GATE = [
    *("gate", "--baseline", CHEAP, "--candidate", CHEAP, "--virtual", "--requests", "30", "--rate", "5"),
    *("--pairs", "1", "--out", "g"),
]


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The goodput.toml of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOODPUT_CONFIG", raising=False)
    return tmp_path / "goodput.toml"


def test_a_checkout_that_changes_the_rules_of_a_gate_is_named(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rule is the only one asked for: stderr, gate.json and the table say where it came from."""
    toml.write_text('[gate]\nrules = ["failed < 99%"]\non-inconclusive = "pass"\n')
    assert ExitCode.OK == run(GATE)
    printed = capsys.readouterr()
    said = f"{toml} gives --rule, --on-inconclusive"
    assert f"goodput: {said}" == printed.err.splitlines()[0]
    assert "gives --rule, --on-inconclusive" in printed.out.replace("\n", " ")
    document = json.loads(Path("g/gate.json").read_text())
    assert ["failed < 99%"] == [result["rule"] for result in document["rules"]]
    assert said in document["warnings"]
    origins = {name: setting["origin"] for name, setting in document["config"].items()}
    assert ("goodput.toml", "flag", "default") == (origins["rules"], origins["pairs"], origins["order"])


def test_an_empty_variable_leaves_the_file_unread(
    toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even one that nobody could read."""
    toml.write_text("[gate\n")
    monkeypatch.setenv("GOODPUT_CONFIG", "")
    assert run(GATE) in (ExitCode.OK, ExitCode.INCONCLUSIVE)
    assert "goodput.toml" not in capsys.readouterr().err
    assert len(json.loads(Path("g/gate.json").read_text())["rules"]) > 1


def test_a_named_file_is_named_as_the_origin(
    toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GOODPUT_CONFIG=ci.toml."""
    toml.with_name("ci.toml").write_text('[gate]\nrules = ["failed < 99%"]\n')
    monkeypatch.setenv("GOODPUT_CONFIG", "ci.toml")
    assert ExitCode.INTERNAL != run(GATE)
    assert "goodput: ci.toml gives --rule" == capsys.readouterr().err.splitlines()[0]
    assert "ci.toml" == json.loads(Path("g/gate.json").read_text())["config"]["rules"]["origin"]


def test_what_a_flag_decides_is_not_the_files(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was overruled everywhere goes without mention."""
    toml.write_text("[trace]\nseed = 4\n")
    assert ExitCode.OK == run(["trace", "info", "azure-conv", "--seed", "1"])
    assert "" == capsys.readouterr().err
    assert ExitCode.OK == run(["trace", "info", "azure-conv"])
    assert f"goodput: {toml} gives --seed\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requests = true", "[run] requests must be a text or a number, not true"),
        ("virtual = 1", "[run] virtual must be true or false, not 1"),
        ('virtual = ["x"]', "[run] virtual must be true or false, not a list"),
        ("out = 1979-05-27", "[run] out must be a text or a number, not datetime.date(1979, 5, 27)"),
        ("out = {a = 1}", "[run] out must be a text or a number, not a table"),
        ("tag = [[1]]", "[run] tag must be a text or a number, not a list"),
        ('out = "a\\u0000b"', "[run] out holds a zero byte"),
        (f"seed = 0x{'f' * 4000}", "[run] seed must be a text or a number, not so large a number"),
        (f"seed = {'9' * 5000}", "cannot be read: Exceeds the limit (4300 digits) for integer string conversion"),
        (f"tag = {'[' * 5000}", "cannot be read: its values are nested too deeply"),
        ("rate = nan", "--rate must be above 0, not nan"),
        ("slo = 5", "'5' in the SLO '5' is not KEY=VALUE"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(
    text: str, said: str, toml: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever TOML can hold."""
    toml.write_text(f"[run]\n{text}\n")
    assert ExitCode.USAGE == run(["run", "--backend", CHEAP, "--dry-run"])
    assert said in capsys.readouterr().err


def test_values_are_read_as_if_they_were_typed(toml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number where a text belongs, one text where several may stand, a list where commas would stand."""
    toml.write_text('[run]\nout = 5\ntag = "a=1"\nsalt = 7\n[gate]\npairs = [1]\n')
    words = ["run", "--backend", CHEAP, "--virtual", "--requests", "3", "--rate", "5"]
    assert ExitCode.OK == run(words)
    info = json.loads(Path("5/run.json").read_text())
    assert ({"a": "1"}, "7") == (info["tags"], info["salt"])
    assert ExitCode.INTERNAL != run([word for word in GATE if word not in ("--pairs", "1")])
    assert [1] == json.loads(Path("g/gate.json").read_text())["looks"]
    capsys.readouterr()

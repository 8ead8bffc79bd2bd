"""Option types, and where a value comes from: flag, variable, file, default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from loadtest.cli import options
from loadtest.cli.main import cli
from loadtest.cli.options import DURATION, HEADER, TAG
from loadtest.errors import UsageError
from loadtest.secrets import without_secret


@click.command("run", cls=options.Command)
@click.option("--rate", type=float, default=1.0)
@click.option("--duration", type=DURATION)
@click.option("--header", type=HEADER, multiple=True)
@click.option("--tag", type=TAG, multiple=True)
@click.option("--dry-run", is_flag=True)
@click.option("--json", "json", is_flag=True)
@click.pass_context
def command(context: click.Context, /, **_: Any) -> None:
    context.obj.update(
        params=dict(context.params),
        settings=options.resolved(context),
        words=options.command_line(context, seed="7"),
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No goodput.toml but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOODPUT_CONFIG", raising=False)
    return tmp_path


def parse(*words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    result = CliRunner().invoke(command, list(words), obj=seen, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return seen | {"code": result.exit_code, "output": result.output}


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("1.5m", 90.0), ("200ms", 0.2), (".5s", 0.5), ("1h", 3600.0), ("2 s", 2.0)]
)
def test_durations_carry_their_unit(text: str, seconds: float) -> None:
    """ms, s, m and h become seconds."""
    assert seconds == pytest.approx(parse("--duration", text)["params"]["duration"])


@pytest.mark.parametrize("text", ["60", "s", "-5s", "1e3s", "nan", "60 sec", ""])
def test_a_duration_without_unit_is_refused(text: str) -> None:
    """A bare number could mean anything."""
    seen = parse("--duration", text)
    assert 2 == seen["code"]
    assert "like 60s" in seen["output"]


def test_the_order_is_flag_variable_file_default(elsewhere: Path) -> None:
    """Each origin wins over those after it, and is recorded."""
    (elsewhere / "goodput.toml").write_text("[run]\nrate = 4.0\n")
    variable = {"GOODPUT_RATE": "3"}

    def rate(*words: str, env: dict[str, str] | None = None) -> tuple[float, str]:
        setting = parse(*words, env=env)["settings"]["rate"]
        return setting.value, setting.origin

    assert (2.0, "flag") == rate("--rate", "2", env=variable)
    assert (3.0, "GOODPUT_RATE") == rate(env=variable)
    assert (4.0, "goodput.toml") == rate()
    (elsewhere / "goodput.toml").unlink()
    assert (1.0, "default") == rate()


def test_every_option_has_a_twin_in_the_file(elsewhere: Path) -> None:
    """Dashes or underscores, lists for repeated options, durations as text."""
    (elsewhere / "goodput.toml").write_text('[run]\ndry-run = true\nduration = "2m"\ntag = ["a=1", "b=2"]\n')
    params = parse()["params"]
    assert (True, 120.0, (("a", "1"), ("b", "2"))) == (params["dry_run"], params["duration"], params["tag"])


def test_a_typo_in_the_file_is_named(elsewhere: Path) -> None:
    """An unknown setting, or a setting outside a table, is an error with the nearest known one."""
    (elsewhere / "goodput.toml").write_text("[run]\nrat = 4.0\n")
    with pytest.raises(UsageError, match="did you mean 'rate'"):
        parse()


def test_the_command_to_repeat_a_run() -> None:
    """What was given stays, defaults are left out, pinned options come last, output options go."""
    words = parse("--rate", "2", "--duration", "90s", "--tag", "a=1", "--json")["words"]
    assert ["run", "--rate", "2", "--duration", "90s", "--tag", "a=1", "--seed", "7"] == words


def test_secrets_are_not_recorded() -> None:
    """A header that carries a key is kept by name only, in settings and in the command."""
    seen = parse("--header", "Authorization: Bearer abc", "--header", "X-Team: red")
    assert ["Authorization: ***", "X-Team: red"] == seen["settings"]["header"].value
    assert "Bearer abc" not in " ".join(seen["words"])
    assert ("Authorization: Bearer abc", "X-Team: red") == seen["params"]["header"]


def test_several_headers_in_one_variable_are_lines() -> None:
    """A header has spaces, so lines separate them."""
    params = parse(env={"GOODPUT_HEADER": "A: b c\nD: e"})["params"]
    assert ("A: b c", "D: e") == params["header"]


@pytest.mark.parametrize("given", [{"--a": None, "--b": None}, {"--a": 1, "--b": 2}])
def test_exactly_one_of_two(given: dict[str, object]) -> None:
    """Neither and both are refused; one is fine."""
    with pytest.raises(UsageError, match="exactly one"):
        options.require_one(given)
    options.require_one({"--a": 1, "--b": None})


def test_a_nested_command_reads_its_groups_table(elsewhere: Path) -> None:
    """`goodput trace info` is set in [trace]."""
    seen: dict[str, Any] = {}

    @click.group()
    def goodput() -> None:
        pass

    @goodput.group()
    def trace() -> None:
        pass

    @trace.command(cls=options.Command)
    @click.option("--seed", type=int, default=0)
    def info(seed: int) -> None:
        seen["seed"] = seed

    (elsewhere / "goodput.toml").write_text("[trace]\nseed = 4\n")
    assert 0 == CliRunner().invoke(goodput, ["trace", "info"]).exit_code
    assert 4 == seen["seed"]


COMMANDS = ("run", "search", "plan", "compare", "gate", "launch", "worker", "calibrate", "serve", "report", "demo")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_knows_a_place_for_every_option(name: str) -> None:
    """What stands under `Other` is the help itself."""
    shown = CliRunner().invoke(cli, [name, "--help"], env={"COLUMNS": "80"}).output
    assert 80 >= max(len(line) for line in shown.splitlines())
    other = shown.partition("\nOther:\n")[2].split()
    assert other in ([], ["-h,", "--help", "Show", "this", "message", "and", "exit."])


def test_the_first_screen_of_a_long_help_is_what_everybody_needs() -> None:
    """Server, trace, rate, length, targets and output within 30 lines, under headings."""
    screen = CliRunner().invoke(cli, ["run", "--help"], env={"COLUMNS": "80"}).output.splitlines()[:30]
    flags = ("--target", "--backend", "--trace", "--rate", "--duration", "--slo", "--require", "--out", "--json")
    assert [] == [flag for flag in flags if not any(line.startswith(f"  {flag}") for line in screen)]
    assert "What is measured:" in screen


# --- options that take several words -------------------------------------------------------------------------------


@click.command("search", cls=options.Command)
@click.option("--launch", "launches", cls=options.SeveralOption)
@click.option("--rate", type=float)
def several(launches: tuple[str, ...], rate: float | None) -> None:
    click.echo(f"{' '.join(launches)} {rate}")


@click.command("compare", cls=options.Command)
@click.argument("sides", nargs=-1)
@click.option("--launch", cls=options.SeveralOption, as_argument=True)
@click.option("--rate", type=float)
@click.pass_context
def sided(context: click.Context, sides: tuple[str, ...], launch: tuple[str, ...], rate: float | None) -> None:
    click.echo(f"{' '.join(sides)}|{' '.join(launch)}|{rate}|{' '.join(options.command_line(context))}")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--launch c a b", "c a b None"),
        ("--launch c --launch a b --rate 2", "c a b 2.0"),
        ("--rate 2 --launch=c a", "c a 2.0"),
        ("", " None"),
    ],
)
def test_what_a_glob_makes_of_an_option(words: str, found: str) -> None:
    """All words up to the next option, in the order typed."""
    assert found == CliRunner().invoke(several, words.split()).output.rstrip("\n")


@pytest.mark.parametrize(
    "words",
    ["--launch c a b --rate 2", "c --launch a --rate 2 b", "--launch c --rate 2 a --launch b", "c a --rate 2 b"],
)
def test_sides_keep_the_order_typed(words: str) -> None:
    """However they are named: the first is what the others are compared with. The recorded command has them too."""
    result = CliRunner().invoke(sided, words.split())
    assert "c a b||2.0|compare c a b --rate 2" == result.output.strip()


@pytest.mark.parametrize("words", ["--launch", "--launch --rate 2", "--rate 2 --launch"])
def test_several_is_at_least_one(words: str) -> None:
    """No word is a mistake, and named; nothing else is taken for one."""
    for asked in (several, sided):
        result = CliRunner().invoke(asked, words.split())
        assert 2 == result.exit_code
        assert "'--launch' requires an argument" in result.output


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        ("api_key=sk-1", "api_key=***"),
        ("hf_token=hf_1=2", "hf_token=***"),
        ("PASSWORD=", "PASSWORD=***"),
        ("x-auth=1", "x-auth=***"),
        ("max_num_batched_tokens=512", "max_num_batched_tokens=512"),
        ("ignore_eos", "ignore_eos"),
        ("keyboard=1", "keyboard=1"),
    ],
)
def test_a_value_with_a_secrets_name_is_not_recorded(text: str, recorded: str) -> None:
    """`--set` and `--extra-body` values reach run.json and labels; a number of tokens is none."""
    assert recorded == without_secret(text)

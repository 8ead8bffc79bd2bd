"""What the commands share: option types, and a command class that reads variables and goodput.toml."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from loadtest import config, secrets
from loadtest.cli import config_file
from loadtest.errors import UsageError

COMMANDS = (
    *("demo", "run", "worker", "search", "plan", "compare", "gate"),
    *("calibrate", "launch", "serve", "report", "trace"),
)

FEW = 16  # options that need no headings
# Where an option stands in a long --help: the same place in every command, what everybody needs first.
HEADINGS = {
    "What is measured": (
        *("target", "backend", "backends", "launch", "launches", "baseline", "candidate"),
        *("set_", "virtual", "gpus", "keep", "predict"),
    ),
    "Load": ("trace", "rate", "speed", "duration", "requests", "warmup", "slo"),
    "Search": ("rates", "sweep", "over", "slo_scale", "precision", "budget", "resume"),
    "Verdict": (
        *("rules", "require", "abort_on", "metric", "metrics", "pairs", "order", "on_inconclusive"),
        *("noise_floor", "noise", "ladder", "bisect"),
    ),
    "Output": ("out", "json", "tag", "junit", "summary", "annotations", "openmetrics", "definitions"),
    "Price, without sending": ("dry_run", "gpu_hour_usd", "token_usd"),
    "What the trace is turned into": (
        *(
            "seed",
            "salt",
            "format",
            "columns",
            "time_unit",
            "block_tokens",
            "zero_tokens",
            "spread_ticks",
            "shape",
            "arrivals",
        ),
        *("think", "tokenizer"),
    ),
    "How the server is asked": (
        *("model", "api", "path", "extra_body", "rename_field", "drop_field", "no_stream", "header"),
        *("api_key_env", "api_key_file", "ca_file", "no_verify", "metrics_url"),
    ),
    "How the load is sent": ("timeout", "drain", "max_lateness", "max_in_flight", "spin_us", "reactor"),
    "Who sends": ("workers", "master", "expect_workers", "master_bind", "token_file", "wait"),
}

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = 20 * 86400.0  # a poll counts milliseconds in 31 bits
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h)")


class DurationType(click.ParamType[float]):
    """`90s`, `1.5m`, `200ms` in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration; write it with its unit, like 60s, 200ms or 2m", param, ctx)
        seconds = float(match[1]) * _UNITS_S[match[2]]
        if seconds > _LONGEST_S:
            self.fail(f"{value!r} is longer than 20 days, the longest wait there is", param, ctx)
        return seconds


class HeaderType(click.ParamType[str]):
    """`Name: value`; several in one variable stand on lines of their own."""

    name = "header"
    envvar_list_splitter: ClassVar[str] = "\n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.partition(":")[1]:
            self.fail("a header is written 'Name: value'", param, ctx)
        return text


class TagType(click.ParamType[tuple[str, str]]):
    """`key=value`, or a word alone."""

    name = "tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, _, text = str(value).partition("=")
        if not key:
            self.fail(f"{value!r} is not a tag; write KEY=VALUE", param, ctx)
        return key, text


class RuleType(click.ParamType[str]):
    """A gate rule's text; several in one variable stand on lines of their own."""

    name = "rule"
    envvar_list_splitter: ClassVar[str] = "\n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)


DURATION, HEADER, RULE, TAG = DurationType(), HeaderType(), RuleType(), TagType()


class SeveralOption(click.Option):
    """An option that takes all words up to the next option: what a shell makes of `--launch *.toml`.

    Of a command with sides as arguments each word becomes a side, so that their order is the order typed.
    """

    def __init__(self, *args: Any, as_argument: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True})
        self.as_argument = as_argument

    def spread(self, words: list[str]) -> list[str]:
        """The words with this option's values one by one."""
        spread: list[str] = []
        taking = valued = False
        for word in words:
            flag, equals, value = word.partition("=")
            if flag in self.opts:
                spread += [] if not equals else [value] if self.as_argument else [word]
                taking, valued = True, bool(equals)
            elif word.startswith("-"):
                if taking and not valued:
                    break
                spread.append(word)
                taking = False
            else:
                spread += [self.opts[0], word] if taking and not self.as_argument else [word]
                valued = True
        if taking and not valued:
            raise click.BadOptionUsage(self.opts[0], f"Option '{self.opts[0]}' requires an argument.")
        return spread


class Command(click.Command):
    """A command whose every option also has a variable and a place in goodput.toml."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for option in self.params:
            if isinstance(option, click.Option) and option.name and option.envvar is None:
                option.envvar = config.variable_of(option.name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Under headings, when there are more than a few."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        shown = [(option, record) for option in options if (record := option.get_help_record(ctx))]
        if len(shown) <= FEW:
            super().format_options(ctx, formatter)
            return
        records = {option.name or "": record for option, record in shown}
        placed = {name for names in HEADINGS.values() for name in names}
        rest = tuple(name for name in records if name not in placed)
        for heading, names in {**HEADINGS, "Other": rest}.items():
            if found := [records[name] for name in names if name in records]:
                with formatter.section(heading):
                    formatter.write_dl(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options that take several words first."""
        for option in self.params:
            args = option.spread(args) if isinstance(option, SeveralOption) else args
        return super().parse_args(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the file before the flags are parsed, so that it only fills what they leave open."""
        path = config.find_file(_here(), os.environ)
        if path is not None and self.name:
            nested = parent is not None and parent.parent is not None  # `goodput trace info` reads [trace]
            section = (parent.info_name if parent is not None and nested else None) or self.name
            extra["default_map"] = config_file.settings(path, section, self.params, COMMANDS)
        context = super().make_context(info_name, args, parent, **extra)
        if path is not None:
            config_file.tell(context, path)
        return context


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory is no longer there", hint="cd somewhere else", code="no_cwd") from None


def resolved(context: click.Context) -> dict[str, Any]:
    """Every option's value with its origin, as RunInfo keeps them; secrets blacked out."""
    from metrics.runinfo import Setting

    return {
        name: Setting(_recorded(name, value), _origin(context, name))
        for name, value in sorted(context.params.items())
        if name != "json"
    }


def command_line(context: click.Context, **pinned: str) -> list[str]:
    """The command that repeats this run: what was not left to the default, and `pinned` options."""
    words = context.command_path.split()
    for option in context.command.params:
        name = option.name or ""
        value = context.params.get(name)
        if isinstance(option, click.Argument) and value is not None:
            words += map(secrets.mask, [str(value)] if option.nargs == 1 else map(str, value))
        if name in pinned or name in ("out", "json", "dry_run") or not isinstance(option, click.Option):
            continue
        if context.get_parameter_source(name) is ParameterSource.DEFAULT or value is None:
            continue
        words += _words(option, name, value)
    for name, text in pinned.items():
        words += [f"--{name.replace('_', '-')}", text]
    return words


def _words(option: click.Option, name: str, value: Any) -> list[str]:
    flag = max(option.opts, key=len)
    if option.is_flag:
        return [flag] if value else []
    if option.multiple:
        return [word for item in _recorded(name, value) for word in (flag, item)]
    if isinstance(option.type, DurationType):
        return [flag, f"{value:g}s"]
    if isinstance(value, tuple) and option.nargs == 1:  # one word that was read as several numbers
        return [flag, ",".join(map(str, value))]
    return [flag, f"{value:g}" if isinstance(value, float) else secrets.mask(str(value))]


def _recorded(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_black_out(name, "=".join(item) if isinstance(item, tuple) else str(item)) for item in value]
    return value if value is None or isinstance(value, (int, float, bool)) else secrets.mask(str(value))


def _black_out(name: str, text: str) -> str:
    """A header, or a value for a launch file or the body, that may be a secret keeps its name only."""
    known = {"header": secrets.without_value, "set_": secrets.without_secret, "extra_body": secrets.without_secrets}
    return known.get(name, secrets.mask)(text)


def _origin(context: click.Context, name: str) -> str:
    match context.get_parameter_source(name):
        case ParameterSource.COMMANDLINE:
            return "flag"
        case ParameterSource.ENVIRONMENT:
            return config.variable_of(name)
        case ParameterSource.DEFAULT_MAP:
            return config_file.origin(context)
        case _:
            return "default"


def parse_slo(text: str | None) -> Any:
    """The joint SLO of `--slo`, None when there is none."""
    from metrics.families import FAMILIES
    from metrics.slo import SLO

    if text and (text.strip().lower() in FAMILIES or ".p" in text):
        raise UsageError(
            f"--slo {text!r} has limits that are judged over many requests at once: search and plan take it",
            hint="here every request is judged: write joint limits, like ttft=200ms,tpot=50ms",
            code="joint_slo",
        )
    return SLO.parse(text) if text else None


def require_one(given: dict[str, object]) -> None:
    """Exactly one of these options; UsageError otherwise."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        both = " and ".join(names) if names else "neither"
        raise UsageError(f"give exactly one of {' and '.join(given)}, not {both}", code="one_of")


def require_positive(given: dict[str, Any], *names: str) -> None:
    """UsageError for an option of these that is given and not above 0; nan and inf are not."""
    for name in names:
        if given[name] is not None and not 0 < given[name] < float("inf"):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} must be above 0, not {given[name]:g}", code="not_positive")


def require_writable(*paths: Path | None) -> None:
    """UsageError for a file that could not be written when the work is done; its folder is made now."""
    for path in paths:
        if path is None:
            continue
        existed = path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}", code="output_unusable") from None
        if not existed:
            path.unlink()

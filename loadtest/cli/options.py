"""What the commands share: option types, and a command class that reads variables and goodput.toml."""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from loadtest import config
from loadtest.errors import UsageError

COMMANDS = (
    *("demo", "run", "worker", "search", "plan", "compare", "gate"),
    *("calibrate", "launch", "serve", "report", "trace"),
)

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h)")
_SECRET = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class DurationType(click.ParamType[float]):
    """`90s`, `1.5m`, `200ms` in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration; write it with its unit, like 60s, 200ms or 2m", param, ctx)
        return float(match[1]) * _UNITS_S[match[2]]


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


class Command(click.Command):
    """A command whose every option also has a variable and a place in goodput.toml."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for option in self.params:
            if isinstance(option, click.Option) and option.name and option.envvar is None:
                option.envvar = config.variable_of(option.name)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the file before the flags are parsed, so that it only fills what they leave open."""
        path = config.find_file(Path.cwd(), os.environ)
        if path is not None and self.name:
            document = config.read_file(path, COMMANDS)
            nested = parent is not None and parent.parent is not None  # `goodput trace info` reads [trace]
            section = (parent.info_name if parent is not None and nested else None) or self.name
            names = [option.name for option in self.params if isinstance(option, click.Option) and option.name]
            extra["default_map"] = config.settings_of(path, document, section, names)
        return super().make_context(info_name, args, parent, **extra)


def resolved(context: click.Context) -> MutableMapping[str, Any]:
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
        if isinstance(option, click.Argument) and option.nargs == 1 and value is not None:
            words.append(str(value))
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
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def _recorded(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_black_out(name, "=".join(item) if isinstance(item, tuple) else str(item)) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _black_out(name: str, text: str) -> str:
    """A header that may carry a secret keeps its name only."""
    head, colon, _ = text.partition(":")
    return f"{head}: ***" if name == "header" and colon and _SECRET.search(head) else text


def _origin(context: click.Context, name: str) -> str:
    match context.get_parameter_source(name):
        case ParameterSource.COMMANDLINE:
            return "flag"
        case ParameterSource.ENVIRONMENT:
            return config.variable_of(name)
        case ParameterSource.DEFAULT_MAP:
            return config.FILE_NAME
        case _:
            return "default"


def parse_slo(text: str | None) -> Any:
    """The SLO of `--slo`, None when there is none."""
    from metrics.slo import SLO

    return SLO.parse(text) if text else None


def require_one(given: dict[str, object]) -> None:
    """Exactly one of these options; UsageError otherwise."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        both = " and ".join(names) if names else "neither"
        raise UsageError(f"give exactly one of {' and '.join(given)}, not {both}", code="one_of")

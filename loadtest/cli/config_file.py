"""What goodput.toml gives a command: read as if it had been typed, and never without saying so."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from loadtest import config
from loadtest.cli.output import say
from loadtest.errors import UsageError

_GAVE = "goodput.config_file"  # in a context's meta: (file, flags that it gave)
_INT64 = range(-(1 << 63), 1 << 63)


def settings(
    path: Path, section: str, params: Sequence[click.Parameter], commands: Collection[str]
) -> dict[str, str | bool | list[str]]:
    """One command's table of the file, each value in the form that a flag or a command line has."""
    options = {option.name: option for option in params if isinstance(option, click.Option) and option.name}
    found = config.settings_of(path, config.read_file(path, commands), section, list(options))
    return {name: _as_typed(f"{path}: [{section}] {name}", options[name], value) for name, value in found.items()}


def tell(context: click.Context, path: Path) -> None:
    """A line on stderr with what the file decided; nothing where it decided nothing."""
    flags = [
        max(option.opts, key=len)
        for option in context.command.params
        if context.get_parameter_source(option.name or "") is ParameterSource.DEFAULT_MAP
    ]
    if flags and not context.resilient_parsing:
        context.meta[_GAVE] = (path, flags)
        say(f"goodput: {said(context)}", err=True)


def said(context: click.Context) -> str:
    """`/x/goodput.toml gives --rule, --pairs`, or nothing."""
    path, flags = context.meta.get(_GAVE, ("", []))
    return f"{path} gives {', '.join(flags)}" if flags else ""


def origin(context: click.Context) -> str:
    """What run.json calls the file: `goodput.toml` where it is the folder's own, else its path."""
    path, _ = context.meta.get(_GAVE, (Path(config.FILE_NAME), []))
    return str(path) if os.environ.get(config.FILE_VARIABLE) else path.name


def _as_typed(place: str, option: click.Option, value: Any) -> str | bool | list[str]:
    """Several values of an option that takes one are joined by commas, as in pairs = [3, 5, 8]."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{place} must be true or false, not {_shown(value)}", code="bad_config")
        return value
    words = [_word(place, item) for item in (value if isinstance(value, list) else [value])]
    return words if option.multiple or option.nargs != 1 else ",".join(words)


def _word(place: str, value: Any) -> str:
    number = isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and value in _INT64)
    if not number and not isinstance(value, str):
        raise UsageError(f"{place} must be a text or a number, not {_shown(value)}", code="bad_config")
    text = str(value)
    if "\0" in text:
        raise UsageError(f"{place} holds a zero byte", code="bad_config")
    return text


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value not in _INT64:
        return "so large a number"
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)[:60]

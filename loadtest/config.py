"""Where a setting's value comes from: flag, then `GOODPUT_*` variable, then `goodput.toml`, then the default.

The file has one table per command, and in it the command's flags without the dashes:

    [run]
    slo = "ttft=1s,tpot=60ms"
    rate = 4.0
    tag = ["cluster=a", "night"]
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError

FILE_NAME = "goodput.toml"
FILE_VARIABLE = "GOODPUT_CONFIG"

Document = dict[str, dict[str, Any]]


def variable_of(option: str) -> str:
    """The environment variable that sets an option: `max_lateness` -> `GOODPUT_MAX_LATENESS`."""
    return f"GOODPUT_{option.upper().replace('-', '_')}"


def find_file(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The file `GOODPUT_CONFIG` names, none where it is there and empty, else `goodput.toml` of `directory`."""
    named = environ.get(FILE_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    path = directory / FILE_NAME
    return path if os.path.isfile(path) else None  # Path.is_file raises in a folder that is closed to us


def read_file(path: Path, commands: Collection[str]) -> Document:
    """The tables of a configuration file; raises UsageError for a file that is not one."""
    try:
        document = read_toml(path)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}", code="bad_config") from None
    for name, table in document.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name!r} stands outside a table", hint="put it under [run]", code="bad_config")
        if name not in commands:
            raise UsageError(f"{path}: there is no command {name!r}{nearest(name, commands)}", code="bad_config")
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML document; ValueError says why a file is none, whatever stands in it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of more digits than Python reads
        raise ValueError(str(error).partition(";")[0]) from None


def settings_of(path: Path, document: Document, command: str, options: Collection[str]) -> dict[str, Any]:
    """The settings of one command by option name (underscores); an unknown one raises UsageError."""
    settings = {}
    for key, value in document.get(command, {}).items():
        option = key.replace("-", "_")
        if option not in options:
            raise UsageError(f"{path}: [{command}] has no setting {key!r}{nearest(option, options)}", code="bad_config")
        settings[option] = value
    return settings


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'rate'?`, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

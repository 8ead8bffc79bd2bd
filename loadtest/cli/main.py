"""The `goodput` command: finds the command's module, and turns every error into one sentence and an exit code."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from loadtest import __version__, secrets
from loadtest.cli import bug
from loadtest.errors import ExitCode, GoodputError

PACKAGES = ("loadtest", "workloads", "metrics", "reports")
PROJECT = "slo-goodput"

# name: (module, what it is for); help is here so that `goodput --help` loads no command
COMMANDS = {
    "demo": ("loadtest.cli.demo", "Compare the three arrangements here, in a minute and a half."),
    "run": ("loadtest.cli.run", "Replay a trace against a server and report what it delivered."),
    "search": ("loadtest.cli.search", "Find goodput: the highest rate that keeps the objectives."),
    "plan": ("loadtest.cli.plan", "Simulate designs for a workload, an SLO and a number of GPUs."),
    "worker": ("loadtest.cli.worker", "Offer a part of a run from this machine."),
    "compare": ("loadtest.cli.compare", "Compare run sets or deployments, paired."),
    "gate": ("loadtest.cli.gate", "Judge a candidate against a baseline: pass, fail or undecided."),
    "calibrate": ("loadtest.cli.calibrate", "Fit a performance model to a table or a live server."),
    "launch": ("loadtest.cli.launch", "Start a deployment, load it, stop it."),
    "serve": ("loadtest.cli.serve", "Start a bundled backend and keep it running."),
    "report": ("loadtest.cli.report", "Rebuild the report of one or several runs."),
    "trace": ("loadtest.cli.trace", "Look at traces and built-in workloads."),
}


class LazyGroup(click.Group):
    """Imports a command's module when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, purpose) for name, (_, purpose) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="goodput")
def cli() -> None:
    """Replay real LLM traffic on time, and find the goodput of a deployment: the highest request rate at which the
    objectives for first-token and per-token latency are met."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point: runs the command and leaves with its exit code."""
    from loadtest.cli import streams

    words = sys.argv[1:] if arguments is None else arguments
    stdout_failed = streams.install()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # `kill` is as clean as Ctrl-C: servers are stopped
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run(words)
    if (error := stdout_failed()) is not None:
        click.echo(f"goodput: stdout could not take all that was printed: {error.strerror}", err=True)
        code = code or ExitCode.USAGE
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C while we leave: no traceback
    sys.exit(code)


def run(words: list[str]) -> int:
    """Run one command line; its exit code. Errors are printed here and nowhere else."""
    secrets.forget()
    try:
        check_installation()
        result = cli.main(words, prog_name="goodput", standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, as_json="--json" in words)


def check_installation() -> None:
    """The four packages have common names: make sure that all are ours and from one place."""
    home = Path(__file__).parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
        ours = origin is not None and Path(origin).parent.parent == home
        if not ours or getattr(importlib.import_module(name), "PROJECT", "") != PROJECT:
            raise GoodputError(
                f"the package {name!r} is not goodput's: it was found at {origin or 'no place at all'}, not in {home}",
                hint="install slo-goodput in an environment of its own (pipx or uvx do)",
                code="foreign_package",
            )


def _report(error: BaseException, *, as_json: bool) -> int:
    from loadtest.cli.output import say

    code, name, message, hint = _described(error)
    message, hint = secrets.mask(message), secrets.mask(hint)
    if as_json:
        _print_json({"error": {"code": name, "message": message, "hint": hint}})
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(message, err=True)
    elif message:
        lines = [f"goodput: {message}", *([f"         {hint}"] if hint else [])]
        say("\n".join(lines), err=True)
    return code


def _described(error: BaseException) -> tuple[int, str, str, str]:
    """(exit code, code for machines, sentence, hint)."""
    if isinstance(error, GoodputError):
        return error.exit_code, error.code, error.message, error.hint
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code, "exit", "", ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return ExitCode.USAGE, "usage", error.format_message(), ""
    if isinstance(error, click.ClickException):
        return ExitCode.USAGE, "usage", error.format_message(), _usage_hint(error)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return ExitCode.INTERRUPTED, "interrupted", "stopped", ""
    if isinstance(error, OSError) and (error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT)):
        place = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        return ExitCode.USAGE, "unusable_file", f"{place}{error.strerror}", "check the path, its rights and the disk"
    if isinstance(error, MemoryError):
        return ExitCode.USAGE, "memory", f"this machine has too little memory for that: {error}", "ask for less"
    if isinstance(error, RecursionError) and "deserializing" in str(error):
        return ExitCode.USAGE, "nested", "a document is nested too deeply to be read", ""
    if _is_user_error(error):
        return ExitCode.USAGE, error.code, error.message, error.hint  # type: ignore[attr-defined]
    return ExitCode.INTERNAL, "internal", bug.told(error), "please report it with that file"


def _usage_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see {context.command_path} --help" if context is not None else ""


def _is_user_error(error: BaseException) -> bool:
    """WorkloadError or MetricsError; looked up by name of module so that `--help` needs no import."""
    for module, name in (("workloads.errors", "WorkloadError"), ("metrics.errors", "MetricsError")):
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return True
    return False


def _print_json(document: dict[str, Any]) -> None:
    import msgspec

    from reports.escape import json_document

    click.echo(json_document(msgspec.json.encode(document).decode()).encode())


if __name__ == "__main__":
    main()

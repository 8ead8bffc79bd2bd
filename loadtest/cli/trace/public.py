"""`goodput trace list` and `goodput trace fetch`: the catalogue of public traces."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from workloads.catalog import Entry

_JSON = click.option("--json", "json", is_flag=True, help="Print one JSON document.")


@click.command("list", cls=options.Command)
@_JSON
def list_(json: bool) -> int:
    """List built-in workloads and public traces, and which of them are here."""
    import msgspec

    from loadtest import fetch as fetching
    from loadtest.cli import output
    from workloads import catalog
    from workloads.model import BUILTIN, builtin

    here = {entry.name: fetching.cached(entry.name) for entry in catalog.entries()}
    if json:
        from loadtest.documents import BuiltIn, PublicTrace, TraceList

        public = [
            PublicTrace(**msgspec.structs.asdict(entry), file=str(path) if (path := here[entry.name]) else None)
            for entry in catalog.entries()
        ]
        built_in = [BuiltIn(name, builtin(name).source) for name in BUILTIN]
        output.print_json(TraceList(built_in=built_in, public=public))
        return ExitCode.OK
    say("Built in, ready to use:")
    for name in BUILTIN:
        say(f"  {name:<24}{builtin(name).source.partition(';')[0]}")
    say("\nPublic, `goodput trace fetch NAME` brings one (* is here already):")
    for entry in catalog.entries():
        rows = f"{entry.rows:,} rows, " if entry.rows else ""
        pinned = "" if entry.sha256 else ", no hash"
        say(f"{'*' if here[entry.name] else ' '} {entry.name:<24}{entry.about} ({rows}{entry.licence}{pinned})")
    return ExitCode.OK


@click.command(cls=options.Command)
@click.argument("name")
@click.option("--url", metavar="URL", default="", help="Fetch the same bytes from a mirror.")
@click.option("--unverified", is_flag=True, help="Take a file whose hash the catalogue does not know.")
@_JSON
def fetch(name: str, url: str, unverified: bool, json: bool) -> int:
    """Download a public trace into the user's cache, or go on with a download that was cut off."""
    from loadtest import fetch as fetching
    from loadtest.cli import output
    from workloads import catalog

    entry = catalog.entry(name)
    if entry.sha256 is None and not unverified and fetching.cached(name) is None:
        _ask_for_consent(entry)
    path = fetching.fetch(entry, fetching.cache_folder(), url=url, on_bytes=_progress())
    known: dict[str, Any] = {
        "file": str(path),
        "licence": entry.licence,
        "citation": entry.citation,
        "sha256": fetching.file_hash(path),
        "pinned": entry.sha256 is not None,
    }
    if json:
        from loadtest.documents import FetchedTrace

        output.print_json(FetchedTrace(**known))
        return ExitCode.OK
    for key, value in known.items():
        say(f"{key:<9} {value}")
    if entry.sha256 is None:
        say("note: the catalogue has no hash for this file; the one above was noted for next time", err=True)
    return ExitCode.OK


def _ask_for_consent(entry: Entry) -> None:
    """Nothing tells whether the bytes are the authors': a person says yes, or a script --unverified."""
    why = f"the catalogue has no SHA-256 for {entry.name}: whatever {entry.url} holds would be taken for it"
    if sys.stdin is not None and sys.stdin.isatty() and click.confirm(f"goodput: {why}. Fetch it?", err=True):
        return
    hint = "--unverified takes it, and notes the hash that it had for the next time"
    raise UsageError(why, hint=hint, code="unverified")


def _progress() -> Any:
    """A line for every tenth part, on stderr."""
    told = [-1]

    def on_bytes(got: int, expected: int | None) -> None:
        step = got * 10 // expected if expected else got >> 26
        if step > told[0]:
            told[0] = step
            whole = f" of {expected / 1e6:.1f}" if expected else ""
            say(f"{got / 1e6:.1f}{whole} MB", err=True)

    return on_bytes

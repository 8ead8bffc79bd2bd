"""Bring a public trace into the user's cache: resumable, checked by SHA-256, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from loadtest.errors import TargetError, UsageError
from loadtest.weburl import split_url
from metrics import cachefolder
from workloads import catalog
from workloads.catalog import Entry

TIMEOUT_S = 30.0
MAX_BYTES = 20 << 30
_CHUNK = 1 << 20

OnBytes = Callable[[int, int | None], None]  # got, expected


def cache_folder() -> Path:
    """Where fetched traces are kept: $XDG_CACHE_HOME/goodput/traces, by default under ~/.cache."""
    folder = cachefolder.cache_folder()
    if folder is None:
        raise UsageError(
            "there is no place for fetched traces: this user has no home folder",
            hint="set XDG_CACHE_HOME to a folder that you may write to",
            code="no_cache",
        )
    return folder / "traces"


def cached(name: str) -> Path | None:
    """The file of a catalogue trace that has been fetched; None when it has not, or there is no such trace."""
    folder = cachefolder.cache_folder()
    if folder is None or name not in catalog.names():
        return None
    path = folder / "traces" / catalog.entry(name).file_name
    return path if os.access(path, os.R_OK) else None  # Path.exists raises in a home that is closed to us


def fetch(entry: Entry, folder: Path, *, url: str = "", on_bytes: OnBytes | None = None) -> Path:
    """Download an entry (or the same bytes from a mirror's `url`), going on where an earlier attempt stopped.

    Raises TargetError without network, UsageError when the bytes are not those of the catalogue.
    """
    source = _source(entry, url)
    path = folder / entry.file_name
    part = path.with_name(path.name + ".part")
    _require_writable(folder)
    if path.exists() and file_hash(path) == (entry.sha256 or _noted(path)):
        return path
    try:
        _download(entry, source, part, on_bytes)
    except (HTTPException, OSError) as error:  # urllib's errors are OSErrors
        raise _unreachable(entry, source, part, error) from error
    found = file_hash(part)
    if entry.sha256 is not None and found != entry.sha256:
        part.unlink()
        raise UsageError(
            f"{source} is not the trace {entry.name}: its SHA-256 is {found}, expected {entry.sha256}",
            hint="the file there has changed or was damaged; fetch it again, or from another --url",
            code="checksum",
        )
    _note(path).write_text(f"{found}  {path.name}\n", encoding="ascii")
    part.replace(path)
    return path


def _source(entry: Entry, url: str) -> str:
    """Where the bytes come from; UsageError for a mirror that is no URL."""
    try:
        split_url(url or entry.url)
    except ValueError as error:
        raise UsageError(f"--url {url!r} {error}", hint="write https://HOST/FILE", code="url") from None
    return url or entry.url


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise UsageError(
            f"cannot write to {folder}: {why}",
            hint="set XDG_CACHE_HOME to a folder that you may write to",
            code="no_cache",
        )


def _download(entry: Entry, url: str, part: Path, on_bytes: OnBytes | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    if entry.bytes is not None and have > entry.bytes:
        have = 0
    if entry.bytes is not None and have == entry.bytes:
        return
    request = urllib.request.Request(url, headers={"User-Agent": "goodput", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer, open(part, "ab") as file:
            if answer.status != 206:  # the server sends all of it
                have = 0
                file.truncate(0)
            _copy(answer, file, have, on_bytes)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: nothing lies behind what we have
            raise


def _copy(answer: HTTPResponse, file: IO[bytes], have: int, on_bytes: OnBytes | None) -> None:
    length = answer.headers.get("Content-Length", "")
    expected = have + int(length) if length.isdigit() else None
    got = have
    while chunk := answer.read(_CHUNK):
        file.write(chunk)
        got += len(chunk)
        if on_bytes is not None:
            on_bytes(got, expected)
        if got > MAX_BYTES:
            raise OSError("it is larger than any trace")
    if expected is not None and got < expected:
        raise OSError(f"the connection ended after {got} of {expected} bytes")


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _noted(path: Path) -> str | None:
    """The hash that a file nobody pinned had when it was fetched."""
    try:
        return _note(path).read_text(encoding="ascii").split()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        return None


def _unreachable(entry: Entry, url: str, part: Path, error: Exception) -> TargetError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    have = part.stat().st_size if part.exists() else 0
    again = f"what came ({have:,} bytes) is kept, fetch again to go on" if have else "check the network and the address"
    return TargetError(
        f"the trace {entry.name} cannot be fetched from {url}: {reason}",
        hint=f"{again}; a copy you have works too: goodput run --trace FILE, or --url of a mirror",
        code="no_network",
    )

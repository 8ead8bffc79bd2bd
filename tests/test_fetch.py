"""Fetching a public trace: whole, resumed, refused, or a clear word without network."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from loadtest.errors import TargetError, UsageError
from loadtest.fetch import cache_folder, cached, fetch
from workloads import catalog
from workloads.catalog import Entry

CONTENT = b"arrived_at,num_prefill_tokens,num_decode_tokens\n" + b"".join(b"%d,5,6\n" % i for i in range(5000))


class Site(ThreadingHTTPServer):
    """Serves one file; `cut` ends the next answer early, `ranges` says whether parts are given."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cut: int | None = None
        self.ranges = True
        self.content = CONTENT
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/trace.csv"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        site, wanted = self.server, self.headers.get("Range")
        site.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
        if start >= len(site.content):
            self.send_error(416)
            return
        body = site.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if site.cut is None else body[: site.cut])
        site.cut = None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A local server that no proxy stands before."""
    monkeypatch.setenv("no_proxy", "*")
    with Site() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def entry(url: str, *, pinned: bool = True) -> Entry:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Entry(
        name="some-trace",
        about="x",
        url=url,
        licence="MIT",
        citation="y",
        sha256=digest if pinned else None,
        bytes=len(CONTENT) if pinned else None,
    )


def test_a_whole_file(site: Site, tmp_path: Path) -> None:
    """The bytes, their hash beside them, progress on the way; a second time nothing is asked."""
    told: list[tuple[int, int | None]] = []
    path = fetch(entry(site.url), tmp_path / "a" / "b", on_bytes=lambda got, of: told.append((got, of)))
    assert (CONTENT, "some-trace.csv") == (path.read_bytes(), path.name)
    assert (len(CONTENT), len(CONTENT)) == told[-1]
    assert path == fetch(entry(site.url), tmp_path / "a" / "b")
    assert [None] == site.asked
    assert ["some-trace.csv", "some-trace.csv.sha256"] == sorted(p.name for p in path.parent.iterdir())


def test_going_on_after_a_cut(site: Site, tmp_path: Path) -> None:
    """What came is kept; the next attempt asks for the rest only."""
    site.cut = 1000
    with pytest.raises(TargetError, match="ended after 1000") as caught:
        fetch(entry(site.url), tmp_path)
    assert "1,000 bytes" in caught.value.hint
    assert CONTENT == fetch(entry(site.url), tmp_path).read_bytes()
    assert [None, "bytes=1000-"] == site.asked


def test_a_server_without_ranges(site: Site, tmp_path: Path) -> None:
    """It sends all of it again, and the part that was there is not kept twice."""
    site.cut, site.ranges = 1000, False
    with pytest.raises(TargetError):
        fetch(entry(site.url), tmp_path)
    assert CONTENT == fetch(entry(site.url), tmp_path).read_bytes()


def test_other_bytes(site: Site, tmp_path: Path) -> None:
    """A file that is not the catalogue's is refused and not kept."""
    site.content = CONTENT + b"x"
    with pytest.raises(UsageError, match="SHA-256") as caught:
        fetch(entry(site.url), tmp_path)
    assert "checksum" == caught.value.code
    assert [] == list(tmp_path.iterdir())


def test_a_part_of_something_else(site: Site, tmp_path: Path) -> None:
    """A part as long as the whole but with other bytes: refused once, right the next time."""
    (tmp_path / "some-trace.csv.part").write_bytes(b"x" * len(CONTENT))
    with pytest.raises(UsageError):
        fetch(entry(site.url), tmp_path)
    assert CONTENT == fetch(entry(site.url), tmp_path).read_bytes()


def test_unpinned(site: Site, tmp_path: Path) -> None:
    """Without a hash in the catalogue the first one is noted, and a whole part is finished by a 416."""
    (tmp_path / "some-trace.csv.part").write_bytes(CONTENT)
    path = fetch(entry(site.url, pinned=False), tmp_path)
    assert hashlib.sha256(CONTENT).hexdigest() == path.with_name(path.name + ".sha256").read_text().split()[0]
    assert path == fetch(entry(site.url, pinned=False), tmp_path)
    assert 1 == len(site.asked)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/trace.csv", "http://nowhere.invalid/trace.csv"])
def test_without_network(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the address and the reason, and what to do instead."""
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(TargetError) as caught:
        fetch(entry("https://elsewhere.invalid/t.csv"), tmp_path, url=url)
    assert ("no_network", True) == (caught.value.code, url in caught.value.message)
    assert "--trace FILE" in caught.value.hint


def test_not_there(site: Site, tmp_path: Path) -> None:
    """A 404 is told as such."""
    site.content = b""
    with pytest.raises(TargetError, match="cannot be fetched"):
        fetch(entry(site.url), tmp_path)


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below $XDG_CACHE_HOME; only what has been fetched is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "goodput" / "traces" == cache_folder()
    assert cached("azure-2023-code") is None
    path = cache_folder() / catalog.entry("azure-2023-code").file_name
    path.parent.mkdir(parents=True)
    path.write_text("x")
    assert (path, None) == (cached("azure-2023-code"), cached("no-such-trace"))

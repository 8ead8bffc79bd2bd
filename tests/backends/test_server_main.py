"""What the server process does when its engine breaks, and how it writes its address."""

from __future__ import annotations

import asyncio

import pytest

from loadtest.backends.server import __main__ as main
from loadtest.errors import ExitCode


def test_broken_engine_ends_the_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception in the alarm's callback: INTERNAL and one last line, not a server that never answers."""

    def broken_engine(_: object, loop: asyncio.AbstractEventLoop) -> object:
        def ring() -> None:
            raise ArithmeticError("lost count")

        loop.call_soon(ring)
        return _Engine()

    monkeypatch.setattr(main, "emulated_engine", broken_engine)
    monkeypatch.setattr(main, "_settle_memory", lambda: None)
    monkeypatch.setattr("sys.argv", ["server", "--deployment", "emulated:chunked"])
    assert ExitCode.INTERNAL == main.main()
    assert "the engine failed: ArithmeticError('lost count')" == capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_url_is_one_a_client_can_connect_to(host: str, url: str) -> None:
    """An address to listen on everywhere is not an address to connect to."""
    assert url == main._url(host, 80)


class _Engine:
    model = "broken"
    max_model_len = 1

    def close(self) -> None:
        pass

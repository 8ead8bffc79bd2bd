"""The sender against a server that misbehaves in every way a server can; order and logic, not timings."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path

import numpy as np
import pytest

from loadtest import clock
from loadtest.errors import UsageError
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.reactor import EpollReactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.sender import Sender, SenderOptions
from metrics.journal import JournalWriter, read_journal
from metrics.records import Outcome, Phase
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk
from tests.replay.replaying import replay, schedule
from tests.replay.streams import DONE, HEAD, answer_bytes, chat_event, completion_event
from workloads.prompts import Prompts

ANSWER = answer_bytes([" a", " b"])


def at_once(_received: Received, _number: int) -> Play:
    return Play([(0, ANSWER)])


def test_rows_leave_in_order_and_never_early() -> None:
    """Every row leaves at or after its instant, in the order of the schedule, on kept connections."""
    with Player(at_once) as player:
        done = replay(player.url(), schedule([i * 0.01 for i in range(30)]))
    assert ["ok"] * 30 == [done.outcome(i) for i in range(30)]
    assert (done.rows["sent_s"] >= done.rows["scheduled_s"]).all()
    assert (np.diff(done.rows["sent_s"]) > 0).all()
    assert player.connections <= 30
    assert [0] * 30 == [done.rows["reconnects"][i] for i in range(30)]


def test_a_burst_is_sent_at_once_on_connections_opened_ahead() -> None:
    """Rows due together need as many connections; nothing is a hidden cap."""
    with Player(lambda *_: Play([(300, ANSWER)])) as player:
        done = replay(player.url(), schedule([0.0] * 40), lead_s=0.5)
    assert ["ok"] * 40 == [done.outcome(i) for i in range(40)]
    assert 40 == player.connections
    assert done.rows["sent_s"].max() < done.rows["done_s"].min()
    assert np.isfinite(done.rows["connect_s"]).all()


def test_a_cap_makes_rows_wait_in_the_client() -> None:
    """Under max_in_flight the wait for a slot is recorded, and is not lateness."""
    with Player(lambda *_: Play([(100, ANSWER)])) as player:
        done = replay(player.url(), schedule([0.0] * 4), max_in_flight=1, max_lateness_s=0.05)
    assert ["ok"] * 4 == [done.outcome(i) for i in range(4)]
    assert 0 == done.rows["client_queue_s"][0]
    assert (done.rows["client_queue_s"][1:] >= [0.1, 0.2, 0.3]).all()
    assert (done.rows["sent_s"][1:] >= done.rows["done_s"][:-1]).all()


def test_rows_that_are_too_late_are_skipped_and_said_so() -> None:
    """A row whose instant passed longer ago than max_lateness is not sent."""
    with Player(at_once) as player:
        done = replay(player.url(), schedule([0.0, 5.0]), lead_s=-4.9, max_lateness_s=1.0)
    assert ["skipped_late", "ok"] == [done.outcome(0), done.outcome(1)]
    assert np.isnan(done.rows["sent_s"][0])
    assert 1 == len(player.received)


def test_a_stall_does_not_slow_the_arrivals() -> None:
    """Open loop: while the server says nothing, requests go on arriving."""
    with Player(lambda *_: Play([(1000, ANSWER)])) as player:
        done = replay(player.url(), schedule([i * 0.02 for i in range(10)]))
    assert done.rows["sent_s"].max() < done.rows["first_token_s"].min()


def test_refused_connections_are_rows() -> None:
    """A port nobody listens on gives connection_lost in the connect phase, not an exception."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = replay(f"http://127.0.0.1:{port}", schedule([0.0, 0.01]))
    assert ["connection_lost"] * 2 == [done.outcome(0), done.outcome(1)]
    assert [Phase.CONNECT] * 2 == done.rows["phase"].tolist()
    assert "refused" in done.error(0).lower()


def test_a_dead_kept_connection_is_tried_once_more() -> None:
    """A kept connection that dies before a byte came back costs one resend, flagged; a second death is a failure."""

    def script(_received: Received, number: int) -> Play:
        return Play([(0, ANSWER)]) if number == 0 else Play([], "close")

    with Player(script) as player:
        done = replay(player.url(), schedule([0.0, 0.3]))
    assert ["ok", "connection_lost"] == [done.outcome(0), done.outcome(1)]
    assert (1, 2) == (done.rows["reconnects"][1], done.rows["attempts"][1])
    assert "reconnected" in done.flags(1)


def test_an_idle_limit_of_nothing_is_refused() -> None:
    """It would end every stream at its second token."""
    with pytest.raises(UsageError, match="--timeout"):
        SenderOptions(idle_timeout_s=0.0)


def test_a_fresh_connection_that_dies_is_not_tried_again() -> None:
    """Opened ahead for this request and closed upon it: that is the server's doing, and a second try more load."""
    with Player(lambda *_: Play([], "close")) as player:
        done = replay(player.url(), schedule([0.2]))
    assert "connection_lost" == done.outcome(0)
    assert (0, 1) == (done.rows["reconnects"][0], done.rows["attempts"][0])


@pytest.mark.parametrize("end", ["close", "reset", "stall"])
def test_an_end_after_the_finish_reason_is_no_failure(end: str) -> None:
    """All tokens and the finish reason came: how the connection ended is a flag."""
    tail = chunk(completion_event(" b", "length"))
    with Player(lambda *_: Play([(0, HEAD + chunk(completion_event(" a")) + tail)], end)) as player:
        done = replay(player.url(), schedule([0.0]), idle_timeout_s=0.2)
    assert "ok" == done.outcome(0)
    assert {"unclean_close", "missing_done"} <= done.flags(0)


@pytest.mark.parametrize(
    ("asked", "tail", "outcome"),
    [
        (2, b"", "connection_lost"),
        (2, chunk(chat_event({}, "stop", index=1)), "ok"),
        (2, chunk(DONE), "ok"),  # it says that this is all, whatever was asked for
        (1, b"", "ok"),
    ],
)
def test_one_finished_choice_of_two_is_no_finished_answer(asked: int, tail: bytes, outcome: str) -> None:
    """With `n=2` a connection that is reset after one choice's finish reason took the other one along."""
    body = HEAD + b"".join(chunk(chat_event({"content": text}, index=i)) for i, text in enumerate("ab"))
    body += chunk(chat_event({}, "length", index=0)) + tail
    with Player(lambda *_: Play([(0, body)], "reset")) as player:
        done = replay(player.url(), schedule([0.0]), api="chat", prompt_form="text", extra_body={"n": asked})
    assert outcome == done.outcome(0)


def test_done_without_an_end_of_body_does_not_hang() -> None:
    """A server that says [DONE] and neither ends the body nor closes is let go."""
    body = HEAD + chunk(completion_event(" a", "stop")) + chunk(DONE)
    with Player(lambda *_: Play([(0, body)], "stall")) as player:
        done = replay(player.url(), schedule([0.0]), limit_s=20)
    assert "ok" == done.outcome(0)
    assert "unclean_close" in done.flags(0)


def test_silence_before_the_first_token_ends_with_the_drain_limit() -> None:
    """No idle limit before the first token; after the schedule's end the drain limit applies."""
    with Player(lambda *_: Play([(0, HEAD)], "stall")) as player:
        done = replay(player.url(), schedule([0.0]), idle_timeout_s=0.1, drain_limit_s=0.6)
    assert ("timeout", Phase.FIRST_TOKEN) == (done.outcome(0), done.rows["phase"][0])
    assert done.rows["done_s"][0] > 0.6


def test_a_long_prompt_is_sent_as_the_server_reads_it() -> None:
    """A request larger than the socket buffers arrives whole."""
    with Player(at_once) as player:
        done = replay(player.url(), schedule([0.0], prompt_tokens=400_000))
    assert "ok" == done.outcome(0)
    assert 400_000 == player.received[0].body.partition(b"]")[0].count(b",") + 1


def test_ipv6_works() -> None:
    """A bracketed IPv6 address is a target like any other."""
    try:
        player = Player(at_once, family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with player:
        done = replay(player.url(), schedule([0.0]))
    assert "ok" == done.outcome(0)
    assert f"[::1]:{player.port}".encode() in player.received[0].head


def make_certificate(folder: Path) -> Path:
    """A self-signed certificate for localhost and 127.0.0.1, key included; skips where there is no openssl."""
    path = folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(folder / "k"), "-out", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no openssl command to make a certificate with: {error}")
    path.write_text(path.read_text() + (folder / "k").read_text())
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("how", ["ca_file", "no_verify", "untrusted"])
def test_tls_with_ca_file_without_check_and_untrusted(certificate: Path, how: str) -> None:
    """TLS works with the right authority or with the check off; an untrusted server's rows are lost connections."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    changes = {"ca_file": {"ca_file": str(certificate)}, "no_verify": {"verify": False}, "untrusted": {}}[how]
    writes = [(10.0 * i, part) for i, part in enumerate([HEAD, *(chunk(completion_event(f" {i}")) for i in range(5))])]
    writes.append((80, chunk(completion_event("", "stop")) + chunk(DONE) + LAST_CHUNK))
    with Player(lambda *_: Play(writes), tls=server) as player:
        done = replay(player.url(), schedule([0.0, 0.2]), **changes)
    if how == "untrusted":
        assert ["connection_lost"] * 2 == [done.outcome(0), done.outcome(1)]
        assert "certificate" in done.error(0).lower()
        return
    assert ["ok"] * 2 == [done.outcome(0), done.outcome(1)]
    assert [5, 5] == done.rows["token_events"].tolist()
    for before, after, event_ns in zip(*_written(player.received[0], 5), done.event_ns(0), strict=True):
        assert before <= event_ns <= after + 15e6


@pytest.mark.parametrize("secret", [False, True])
def test_an_answer_of_many_full_reads_is_read_to_its_end(certificate: Path, secret: bool) -> None:
    """A megabyte at once, and silence after it: what a full read left behind is no new arrival, and is taken."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    answer = answer_bytes(["x" * 100_000] * 10)
    with Player(lambda *_: Play([(0, answer)]), tls=server if secret else None) as player:
        done = replay(player.url(), schedule([0.0]), verify=False)
    assert ("ok", 10) == (done.outcome(0), done.rows["token_events"][0])


def _written(received: Received, tokens: int) -> tuple[list[int], list[int]]:
    writes = received.writes[1 : 1 + tokens]
    return [before for _, before, _ in writes], [after for _, _, after in writes]


def test_stop_ends_everything_in_flight(tmp_path: Path) -> None:
    """The user's stop: what is in flight ends as interrupted, what was not due leaves no row, the journal is closed."""
    shard = schedule([0.0, 0.0, 30.0])
    with Player(lambda *_: Play([(0, HEAD)], "stall")) as player:
        endpoint = Endpoint.parse(player.url(), prompt_form="ids").resolve()
        reactor = EpollReactor()
        recorder = Recorder(JournalWriter(tmp_path / "j", 0), shard, 0)
        sender = Sender(endpoint, shard, Prompts.of(shard), SenderOptions(), recorder, reactor)
        sender.start(clock.monotonic_ns())
        reactor.run_until(lambda: len(player.received) == 2)
        assert (3, 2, 2) == sender.progress()[:3]
        sender.stop()
        assert sender.done
        reactor.close()
    journal = read_journal(tmp_path / "j")
    assert journal.ended
    assert [0, 1] == sorted(journal.rows["request_id"].tolist())
    assert [Outcome.INTERRUPTED] * 2 == journal.rows["outcome"].tolist()


def test_an_empty_shard_is_done_at_once(tmp_path: Path) -> None:
    """More workers than requests: an idle worker ends in order."""
    shard = schedule([0.0]).rows(slice(0, 0))
    endpoint = Endpoint.parse("http://127.0.0.1:9", prompt_form="ids").resolve()
    reactor = EpollReactor()
    recorder = Recorder(JournalWriter(tmp_path / "j", 3), shard, 3)
    sender = Sender(endpoint, shard, Prompts.of(shard), SenderOptions(), recorder, reactor)
    sender.start(clock.monotonic_ns())
    assert sender.done
    stats = read_journal(tmp_path / "j").stats
    assert stats is not None
    assert 3 == stats.worker

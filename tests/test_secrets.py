"""Secrets by name, value and form; and a canary through every door, sought in everything that a run leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest import secrets
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.supervise import Server
from tests.replay.player import Play, Player, Received, response_head


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    """Each test begins and ends without a secret."""
    secrets.forget()
    yield
    secrets.forget()


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apikey", "apiKey", "API-Key", "x-api-key", "OPENAI_API_KEY", "Ocp-Apim-Subscription-Key"),
        *("token", "hf_token", "accessToken", "X-Amz-Security-Token", "password", "PASSWD", "x-pass", "client_secret"),
        *("Authorization", "Proxy-Authorization", "Helicone-Auth", "X-Amz-Credential", "X-Goog-Signature", "sig"),
        *("Cookie", "Session", "session_id", "Bearer", "PAT", "private_key", "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    """In every way of writing them."""
    assert secrets.is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "max_num_batched_tokens", "keyboard", "monkey", "author", "token_budget", "stop_token_ids", ""],
)
def test_names_of_other_things(name: str) -> None:
    """Numbers of tokens are no secret."""
    assert not secrets.is_secret(name)


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        ('{"api_key": "CANARY1"}', '{"api_key": "***"}'),
        ('{"a": {"b": [{"password": "x", "n": 1}]}}', '{"a": {"b": [{"password": "***", "n": 1}]}}'),
        ('{"auth": {"user": "u", "word": "w"}}', '{"auth": "***"}'),
        ('user={"token": "abc"}', 'user={"token": "***"}'),
        ('{"temperature": 0, "eos_token": 2, "token": true}', '{"temperature": 0, "eos_token": 2, "token": true}'),
        ('{"url": "http://me:word@h/?sig=abc&n=1"}', '{"url": "http://***@h/?sig=***&n=1"}'),
        ("api_key=sk-1", "api_key=***"),
        ('{"broken', '{"broken'),
        ("[" * 2000, "[" * 2000),
    ],
)
def test_bodies_as_recorded(body: str, recorded: str) -> None:
    """At any depth, as JSON and as K=V; truth values and small numbers stay, and so does a body without a secret."""
    assert recorded == secrets.without_secrets(body)


@pytest.mark.parametrize(
    ("header", "recorded"),
    [
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("X-Session-Id: 1", "X-Session-Id: ***"),
        ("X-Team: red", "X-Team: red"),
        ("X-Forward: Bearer abc123def456", "X-Forward: Bearer ***"),
    ],
)
def test_headers_as_recorded(header: str, recorded: str) -> None:
    """By name, and by what a value looks like."""
    assert recorded == secrets.without_value(header)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("/v1/chat?key=abc&alt=sse", "/v1/chat?key=***&alt=sse"),
        ("/f?code=abc&x-amz-credential=a%2Fb", "/f?code=***&x-amz-credential=***"),
        ("http://user:p%40ss@host:1/a@b", "http://***@host:1/a@b"),
        ("a key hf_abcdefghijklmnopqrst of theirs", "a key *** of theirs"),
        ("AKIAABCDEFGHIJKLMNOP and sk-proj-0123456789abcdef", "*** and ***"),
        ("Bearer authentication is required, max_tokens=5", "Bearer authentication is required, max_tokens=5"),
        ("p50 < 1 s, a=b&c", "p50 < 1 s, a=b&c"),
        ('{"api_key": "abc", \'password\': \'d e\', "n": "m', '{"api_key": "***", \'password\': \'***\', "n": "m'),
        ("half \udcff", "half \N{REPLACEMENT CHARACTER}"),
        ("half \ud800", "half ?"),
    ],
)
def test_text_by_its_form(text: str, printed: str) -> None:
    """Queries, users of URLs and keys of known providers; words about keys are none."""
    assert printed == secrets.mask(text)


def test_held_values_in_all_their_forms() -> None:
    """As sent, without the scheme, decoded from a query or from basic authentication, escaped in JSON."""
    secrets.hold_headers([("Authorization", 'Bearer ab"c-123'), ("X-Team", "redteam"), ("Cookie", "a=cookie-1; b=x")])
    secrets.hold_headers([("Proxy-Authorization", "Basic dXNlcjpodW50ZXIy")])
    secrets.hold_query("/v1?key=a%20b%2Bc%2Fd&alt=visible")
    echo = 'ab"c-123 {"k": "ab\\"c-123"} cookie-1 hunter2 dXNlcjpodW50ZXIy a b+c/d a%20b%2Bc%2Fd redteam visible'
    assert '*** {"k": "***"} *** *** *** *** *** redteam visible' == secrets.mask(echo)


def test_short_values_and_placeholders_blacken_nothing() -> None:
    """A key of five characters, or one that documentation tells people to write, is masked where it stands only."""
    secrets.hold("a", "EMPTY", "ollama", "12345", "", " ")
    told = "a run of ollama at 12345/s was EMPTY"
    assert told == secrets.mask(told)


def test_documents_keep_their_numbers() -> None:
    """A secret made of digits is masked in texts, never in a count."""
    secrets.hold("100000")
    assert b'{"requests":100000,"error":"no user ***"}' == secrets.masked_json(
        {"requests": 100000, "error": "no user 100000"}
    )


def test_a_servers_log(tmp_path: Path) -> None:
    """What a server printed of its key is masked when it has ended; in its last words too; other bytes stay."""
    secrets.hold("CANARY-7")
    code = "import sys; sys.stderr.buffer.write(b'key=CANARY-7 \\xff\\n'); sys.exit(3)"
    server = Server([sys.executable, "-c", code], log=tmp_path / "s.log")
    server.launch()
    server.wait()
    assert "CANARY" not in str(server.died())
    server.stop()
    assert b"key=*** \xff\n" == (tmp_path / "s.log").read_bytes()


# --- a canary through every door -------------------------------------------------------------------------------------

DOORS = {
    "key": "CANARY-ENV-0",
    "query": "CANARY-PATH-1",
    "json": "CANARY-BODY-2",
    "deep": "CANARY-DEEP-3",
    "pair": "CANARY-PAIR-4",
    "bearer": "CANARY-HEAD-5",
    "session": "CANARY-SESS-6",
    "cookie": "CANARY-COOK-7",
    "page": "CANARY-PAGE-8",
}


def echoing(received: Received, _: int) -> Play:
    """An answer in three tokens for the preflight; to the load a refusal that says all that it was sent."""
    path = received.head.split(b" ")[1]
    if path.endswith(b"/models"):
        body = b'{"data": [{"id": "m"}]}'
    elif b"CANARY-PAGE" in path:
        body = b"vllm:num_requests_running 1\n"
    elif json.loads(received.body)["max_tokens"] <= 2:
        event = b'data: {"choices": [{"index": 0, "text": "a", "delta": {"content": "a"}, "finish_reason": %s}]}\n\n'
        body = event % b"null" + event % b'"length"' + b"data: [DONE]\n\n"
        head = response_head(200, {"Content-Type": "text/event-stream", "Content-Length": str(len(body))})
        return Play([(0, head + body)])
    else:
        told = received.head.decode() + json.dumps({**json.loads(received.body), "messages": "", "prompt": ""})
        body = json.dumps({"error": {"message": told}}).encode()
        return Play([(0, response_head(401, {"Content-Length": str(len(body)), "Server": DOORS["bearer"]}) + body)])
    return Play([(0, response_head(200, {"Content-Length": str(len(body))}) + body)])


def leaks(folder: Path, *texts: str) -> list[str]:
    """Where a canary is: files by name, printed text as such."""
    found = [str(path) for path in folder.rglob("*") if path.is_file() and b"CANARY-" in path.read_bytes()]
    return found + [text for text in texts if "CANARY-" in text]


@pytest.mark.live
def test_no_canary_gets_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the key, the path, the body, headers and a metrics page, to a server that echoes all of it: in no file
    of the run, in no report made of it, and nowhere on the terminal."""
    monkeypatch.setenv("THE_KEY", DOORS["key"])
    monkeypatch.chdir(tmp_path)
    with Player(echoing) as player:
        words = ["--target", player.url(), "--api", "chat", "--path", f"/v1/chat/completions?api-key={DOORS['query']}"]
        words += ["--api-key-env", "THE_KEY", "--header", f"X-Bearer: {DOORS['bearer']}"]
        words += ["--header", f"Session: {DOORS['session']}", "--header", f"cookie: a=b; sid={DOORS['cookie']}"]
        deep = {"list": [{"secret": DOORS["deep"]}]}
        words += ["--extra-body", json.dumps({"api_key": DOORS["json"], "user": deep})]
        words += [
            "--extra-body",
            f"token={DOORS['pair']}",
            "--metrics-url",
            f"{player.url('/m')}?token={DOORS['page']}",
        ]
        words += ["--trace", "azure-conv", "--requests", "6", "--rate", "20", "--slo", "ttft=1s"]
        code = run(["run", *words, "--out", "r", "--json"])
        sent = b"".join(request.head + request.body for request in player.received)
    printed = capsys.readouterr()
    assert [] == [canary for canary in DOORS.values() if canary.encode() not in sent]  # the server got them
    assert [] == leaks(tmp_path / "r", printed.out, printed.err)
    assert ExitCode.TARGET == code
    assert "***" in json.loads((tmp_path / "r" / "errors.json").read_text())[0]
    for form in ("text", "json", "csv", "jsonl", "block", "peers", "openmetrics"):
        run(["report", "r", "--format", form])
    run(["compare", "r", "r", "--out", "c"])
    printed = capsys.readouterr()
    assert [] == leaks(tmp_path, printed.out, printed.err)


@pytest.mark.live
def test_no_canary_on_a_command_line(tmp_path: Path) -> None:
    """The child that samples metrics pages gets their URLs in its environment: arguments are for everybody to read."""
    from loadtest.probe import Probing, Source

    with Probing([Source("server", f"http://127.0.0.1:1/m?token={DOORS['page']}")], tmp_path) as probing:
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert "loadtest.probe" in listed
        assert DOORS["page"] not in listed
        probing.stop(0)
    assert [] == leaks(tmp_path)
    assert "?token=***" in (tmp_path / "probe.log").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["--target", "http://user:CANARY-URL-9@h:1"],
        ["--target", "http://h:1/v1?key=CANARY-URL-9"],
        ["--target", "http://127.0.0.1:1", "--path", "no?key=CANARY-URL-9"],
        ["--target", "http://127.0.0.1:1", "--metrics-url", "ftp://user:CANARY-URL-9@h/m"],
        ["--target", "http://127.0.0.1:1", "--header", "Bearer CANARY-URL-9"],
        ["--target", "http://127.0.0.1:1", "--extra-body", '{"api_key": "CANARY-URL-9"'],
        ["--backend", "http://user:CANARY-URL-9@h:1", "--virtual"],
    ],
)
@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_an_error_names_no_secret(words: list[str], json_: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that is refused is quoted without it."""
    assert run(["run", *words, *json_]) in (ExitCode.USAGE, ExitCode.TARGET)
    printed = capsys.readouterr()
    assert "CANARY" not in printed.out + printed.err


def test_a_launch_files_secrets(tmp_path: Path) -> None:
    """Values of its `set` and `env` tables, of `--set`, and of options of its command are held."""
    from loadtest.replay.options import SenderOptions
    from loadtest.sides import EndpointOptions, launched
    from loadtest.target import LoadSettings

    file = tmp_path / "a.toml"
    file.write_text(
        'command = ["serve", "--api-key", "canary-one", "--auth-token=canary-two", "--port", "{port}", "{hf_token}"]\n'
        'env = {HF_TOKEN = "canary-three"}\nset = {hf_token = "canary-four"}\n'
    )
    side = launched(file, {"hf_token": "canary-five"}, LoadSettings(SenderOptions()), EndpointOptions())
    assert "a hf_token=***" == side.label
    assert "*** *** *** canary-four ***" == secrets.mask("canary-one canary-two canary-three canary-four canary-five")


def test_an_argument_that_is_no_text_here(tmp_path: Path) -> None:
    """Bytes of another encoding in an argument are recorded as far as they can be read."""
    tag = os.fsdecode(b"ort=K\xc3\xb6ln") if sys.getfilesystemencoding() == "ascii" else "ort=K\udcc3\udcb6ln"
    words = ["run", "--backend", "emulated:chunked,model=demo-8b", "--virtual", "--requests", "5", "--rate", "1"]
    assert ExitCode.OK == run([*words, "--tag", tag, "--out", str(tmp_path / "r")])
    assert {"ort": "Köln"} == msgspec.json.decode((tmp_path / "r" / "run.json").read_bytes())["tags"]

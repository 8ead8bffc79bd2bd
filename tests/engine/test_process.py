"""The engine as users meet it: servers with worker processes, over loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("torch", reason="the engine needs the torch extra")
pytest.importorskip("safetensors", reason="the engine needs the torch extra")

from benchmarks.handover import call, config
from loadtest import clock
from loadtest.backends.server import command
from loadtest.errors import TargetError
from loadtest.refconfig import read_reference
from loadtest.supervise import Server

pytestmark = pytest.mark.live
DEPLOYMENT = "torch:disaggregated,model=nano,threads=1,num_gpu_blocks=1100,max_queue=300"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("engine") / "server.log"
    with Server(command(DEPLOYMENT), log=log, ready_timeout_s=100) as running:
        yield running
    assert 0 == running.exit_status
    # asyncio's own remark where clients leave while the machine is busy
    assert set(log.read_text().splitlines()) <= {"socket.send() raised exception."}


def idle(server: Server) -> bool:
    """Nothing is held by any worker."""
    levels = config(server)["levels"].values()
    return all(level["used_blocks"] == level["running"] == level["waiting"] == 0 for level in levels)


def wait_for(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        clock.sleep(0.05)
    raise AssertionError("it did not come")


async def stream(session: aiohttp.ClientSession, url: str, tokens: int, *, leave_after: int = 0) -> str:
    """One client; what became of it."""
    body = {"prompt": [300] * 10, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    events, error, usage, done = 0, "", 0, False
    async with session.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            return f"http {response.status}"
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                error = error or event.get("error", {}).get("message", "")
                events += bool(event.get("choices"))
                usage = (event.get("usage") or {}).get("completion_tokens", usage)
                if leave_after and events == leave_after:
                    return "left"
            done = done or line.startswith(b"data: [DONE]")
    whole = done and events == usage == tokens
    return error or ("whole" if whole else f"{events} events, usage {usage} of {tokens}, done {done}")


def many(server: Server, count: int, tokens: int, **options: int) -> Counter[str]:
    async def run() -> list[str]:
        limits = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(total=100)) as session:
            return await asyncio.gather(*(stream(session, server.url, tokens, **options) for _ in range(count)))

    return Counter(asyncio.run(run()))


def test_an_answer_has_one_event_per_token_and_spans(server: Server) -> None:
    """Usage and timings in the last event; the engine's own record agrees."""
    body = {"prompt": "Tell me", "max_tokens": 6, "stream": True, "stream_options": {"include_usage": True}}
    status, answer = call(server, "POST", "/v1/completions", body)
    events = [json.loads(event[6:]) for event in answer.decode().split("\n\n")[:-2]]
    assert 200 == status
    assert 6 == sum(bool(event["choices"]) for event in events)
    assert {"prompt_tokens": 7, "total_tokens": 13, "completion_tokens": 6} == events[-1]["usage"]
    assert {"queue_ms", "prompt_ms", "transfer_ms", "predicted_ms"} == set(events[-1]["timings"])
    trace = json.loads(call(server, "GET", "/ref/trace?since=0")[1])
    assert (7, 6) == (trace["requests"][-1]["prompt_tokens"], trace["requests"][-1]["output_tokens"])
    decodes = [step for step in trace["steps"] if step["worker"] == 1]
    assert (5, 0) == (sum(step["decodes"] for step in decodes), sum(step["prompt_tokens"] for step in decodes))


def test_a_whole_answer_is_the_joined_stream(server: Server) -> None:
    """Chat as well; the same prompt, the same text."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0.7, "seed": 2}
    whole = json.loads(call(server, "POST", "/v1/chat/completions", body)[1])
    _, streamed = call(server, "POST", "/v1/chat/completions", {**body, "stream": True})
    events = [json.loads(event[6:]) for event in streamed.decode().split("\n\n")[:-2]]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert whole["choices"][0]["message"]["content"] == text
    assert (5, "length") == (whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"prompt": [2048]}, 400, b"range [0, 2047]"),
        ({"prompt": [1] * 20_000}, 400, b"maximum context length is 16384"),
        ({"prompt": [1], "top_p": 0}, 400, b"top_p must be in (0, 1]"),
        ({"prompt": [1], "n": 2}, 400, b"one choice"),
        ({"prompt": [1], "best_of": 2}, 400, b"one choice"),
        ({"prompt": [1], "model": "other"}, 404, b"does not exist"),
    ],
)
def test_what_cannot_be_served_is_said(server: Server, body: dict[str, Any], status: int, words: bytes) -> None:
    """With OpenAI's error object."""
    found, answer = call(server, "POST", "/v1/completions", {"max_tokens": 2, **body})
    assert status == found
    assert words in answer


def test_token_ids_are_told(server: Server) -> None:
    """By /tokenize, and beside an answer when they are asked for."""
    ids = [72, 105]
    told = json.loads(call(server, "POST", "/tokenize", {"prompt": "Hi"})[1])
    assert {"count": 2, "max_model_len": 16384, "tokens": ids} == told
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    assert ids == json.loads(call(server, "POST", "/tokenize", chat)[1])["tokens"]
    assert 400 == call(server, "POST", "/tokenize", {"messages": []})[0]
    assert 405 == call(server, "GET", "/tokenize")[0]
    body = {"prompt": ids, "max_tokens": 3, "return_token_ids": True}
    (whole,) = json.loads(call(server, "POST", "/v1/completions", body)[1])["choices"]
    _, streamed = call(server, "POST", "/v1/completions", {**body, "stream": True})
    choices = [json.loads(event[6:])["choices"][0] for event in streamed.decode().split("\n\n")[:-2]]
    assert whole["token_ids"] == [token for choice in choices for token in choice["token_ids"]]
    assert [ids, None, None] == [choice["prompt_token_ids"] for choice in choices]
    assert (ids, 3) == (whole["prompt_token_ids"], len(whole["token_ids"]))


def test_the_engine_says_what_it_is_for_a_calibration(server: Server) -> None:
    """Model, machine and batch: nano has 4 layers of 2 KV heads of 64 in float32."""
    reference = read_reference(server.url)
    assert reference is not None
    assert ("nano", 4, 4096) == (reference.model.model, reference.model.layers, reference.model.kv_bytes_per_token)
    assert ("cpu", 256, 2) == (reference.device, reference.max_num_seqs, reference.instances)
    assert 2 * 2048 * 256 < reference.model.parameters < 10e6
    assert read_reference("http://127.0.0.1:9") is None


def test_200_clients_that_leave_free_everything(server: Server) -> None:
    """Each after its second token; the server still answers."""
    assert {"left": 200} == many(server, 200, 100, leave_after=2)
    wait_for(lambda: idle(server))
    assert {"whole": 20} == many(server, 20, 10)
    metrics = call(server, "GET", "/metrics")[1].decode()
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="nano"} 0.0' in metrics
    assert 'ref:step_seconds_count{engine="0",kind="mixed",model_name="nano"} 0.0' in metrics
    assert "vllm:iteration_tokens_total_count" in metrics


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_killed_worker_is_replaced_and_every_client_hears(server: Server, role: str) -> None:
    """kill -9 amid 30 requests: whole answers or an error, 503 until the new worker is there, nothing held after."""
    wait_for(lambda: call(server, "GET", "/health")[0] == 200)

    async def run() -> list[str]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=100)) as session:
            clients = [asyncio.create_task(stream(session, server.url, 40)) for _ in range(30)]
            async with session.get(f"{server.url}/ref/config") as response:
                workers = (await response.json())["workers"]
            os.kill(next(worker["pid"] for worker in workers if worker["role"] == role), signal.SIGKILL)
            return await asyncio.gather(*clients)

    outcomes = Counter(asyncio.run(run()))
    assert set(outcomes) <= {"whole", "The worker that computed this request died.", "http 503"}
    wait_for(lambda: call(server, "GET", "/health")[0] == 200)
    wait_for(lambda: idle(server))
    assert {"whole": 5} == many(server, 5, 10)


def test_term_lets_answers_finish_and_takes_no_new_ones(server: Server) -> None:  # the last one with this server
    """503 from then on; the answer under way is whole, and the server ends with 0."""

    async def run() -> tuple[str, str]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=100)) as session:
            async with session.get(server.url + "/health"):
                pass  # a second connection, there before the listener goes
            under_way = asyncio.create_task(stream(session, server.url, 60))
            while b'num_requests_running{engine="0",model_name="nano"} 1.0' not in await page(session):
                await asyncio.sleep(0.01)
            os.kill(server.pid, signal.SIGTERM)
            refused = ""
            while refused != "http 503" and not under_way.done():
                refused = await stream(session, server.url, 1)
            return refused, await under_way

    async def page(session: aiohttp.ClientSession) -> bytes:
        async with session.get(server.url + "/metrics") as response:
            return await response.read()

    assert ("http 503", "whole") == asyncio.run(run())
    assert 0 == server.wait()


def test_a_model_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    """No traceback reaches the log."""
    with pytest.raises(TargetError, match="neither one of nano") as raised:
        Server(command("torch:chunked,model=/nowhere"), log=tmp_path / "log").start()
    assert "Traceback" not in raised.value.message


def test_cuda_where_there_is_none_is_one_sentence(tmp_path: Path) -> None:
    """Found out by the worker, said by the server."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(TargetError, match="finds no CUDA device") as raised:
        Server(command("torch:chunked,model=nano,device=cuda"), log=tmp_path / "log", ready_timeout_s=100).start()
    assert "Traceback" not in raised.value.message

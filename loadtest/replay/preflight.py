"""Before the load: is the server there, does it know the model, what does it accept? One small request tells.

Blocking and without gevent, with the same framing and event decoder as the load itself.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import msgspec

from loadtest import clock
from loadtest.errors import TargetError
from loadtest.replay import refusal
from loadtest.replay.answer import MAX_TOKENS, Answer, EventTooLargeError, FramingError
from loadtest.replay.bodies import Request, RequestBuilder, request_head
from loadtest.replay.complaint import complaint_about, concessions, fields_facts, unauthorized
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.negotiation import Negotiated, Negotiation
from loadtest.replay.redirect import moved, next_hop
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.tls import context, wrap_blocking
from metrics.records import Outcome
from workloads.prompts import Prompts
from workloads.schedule import Schedule

Scalar = str | int | float | bool | None
PROBE_PROMPT_TOKENS = 8
LATER_CONNECT_LIMIT_S = 2.0  # for a name's further addresses, once one has answered
EXCHANGE_LIMIT_S = 60.0  # one answer altogether: each piece of it may be in time, and the whole never end


class Preflight(msgspec.Struct, kw_only=True):
    """What was learnt: the endpoint to use, facts for run.json, and what the user should know."""

    endpoint: Endpoint
    facts: dict[str, Scalar]
    warnings: list[str]

    @property
    def max_model_len(self) -> int | None:
        """Context length in tokens, where the server told."""
        value = self.facts.get("max_model_len")
        return value if isinstance(value, int) else None


def preflight(endpoint: Endpoint, schedule: Schedule | None = None, *, timeout_s: float = 10.0) -> Preflight:
    """Look at the server with a model list and one tiny request; raises TargetError when no load should be sent."""
    endpoint = endpoint if endpoint.addresses else endpoint.resolve()
    if endpoint.tls:
        context(endpoint.ca_file, endpoint.verify)  # a CA file that cannot be read is no fault of the server
    learnt = Preflight(endpoint=endpoint, facts={}, warnings=[])
    _connect_check(learnt, timeout_s)
    _list_models(learnt, timeout_s)
    _check_context(learnt, schedule)
    _probe(learnt, timeout_s)
    return learnt


def _connect_check(learnt: Preflight, timeout_s: float) -> None:
    """Which addresses answer, and what setting up a connection takes.

    Those of the first one's family are parts of the deployment, to be loaded all; the others are other ways to them,
    as a host that has an IPv4 and an IPv6 address. One that refuses is no part.
    """
    endpoint = learnt.endpoint
    failure: OSError | None = None
    answering: list[tuple[int, list[str | int]]] = []
    setup_ns = 0
    for family, address in endpoint.addresses:
        if (family, address) in answering:
            continue
        try:
            took_ns = _setup_ns(endpoint, family, address, LATER_CONNECT_LIMIT_S if answering else timeout_s)
        except OSError as error:
            failure = error
            continue
        setup_ns = setup_ns or took_ns
        answering.append((family, address))
    if not answering:
        raise TargetError(
            f"cannot connect to {endpoint.origin}: {_reason(failure)}",
            hint="is the server up, and is the port right?",
            code="unreachable",
        )
    first = answering[0][0]
    parts = [found for found in answering if found[0] == first]
    others = [found for found in endpoint.addresses if found not in parts]
    silent = sum(family == first for family, _ in others)
    if silent and len(parts) > 1:
        learnt.warnings.append(
            f"{silent} of {silent + len(parts)} addresses of {endpoint.host} do not answer: not loaded"
        )
    learnt.endpoint = msgspec.structs.replace(endpoint, addresses=parts + others, parts=len(parts), setup_ns=setup_ns)


def _setup_ns(endpoint: Endpoint, family: int, address: list[str | int], timeout_s: float) -> int:
    """Connect, shake hands where TLS is spoken, and hang up; OSError when nobody answers."""
    began_ns = clock.monotonic_ns()
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(tuple(address))
        with contextlib.suppress(OSError), wrap_blocking(endpoint, sock):  # the probes will say what is wrong with it
            return clock.monotonic_ns() - began_ns
    return clock.monotonic_ns() - began_ns


def _reason(error: OSError | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower() if error is not None else "no address"


# --- the model list ----------------------------------------------------------------------------------------------


def _list_models(learnt: Preflight, timeout_s: float) -> None:
    endpoint = learnt.endpoint
    answer = _exchange(endpoint, request_head(endpoint, "GET", endpoint.models_path) + b"\r\n", timeout_s)
    where = f"{endpoint.origin}{endpoint.models_path}"
    if refusal.unauthorized(answer) and not endpoint.model:
        error = unauthorized(endpoint, f"the model list {where}", answer)
        error.hint += "; a key that may not list models needs --model NAME"
        raise error
    models = dict(_models(answer)) if answer.status == 200 else {}
    if not models:
        learnt.warnings.append(_no_list(where, answer))
        return
    first = next(iter(models))
    learnt.facts["models"] = ", ".join(list(models)[:5])[:200]
    if not endpoint.model:
        learnt.endpoint = msgspec.structs.replace(endpoint, model=first)
        if len(models) > 1:
            learnt.warnings.append(f"the server lists {len(models)} models; {first!r}, the first, is loaded")
    length = models.get(learnt.endpoint.model)
    if length is not None:
        learnt.facts["max_model_len"] = length


def _no_list(where: str, answer: Answer) -> str:
    if answer.accepted:
        return f"{where} lists no models"
    what = f"answers {answer.status}" if answer.status else "does not answer"
    said = answer.error_message()
    return f"there is no list of models: {where} {what}{': ' if said else ''}{said}"


def _models(answer: Answer) -> Iterator[tuple[str, int | None]]:
    """Names with context lengths: OpenAI's `data`, Ollama's `models`, vLLM's and llama.cpp's ways to tell a length."""
    document = answer.document()
    document = document if isinstance(document, dict) else {}
    for key, name in (("data", "id"), ("models", "name")):
        listed = document.get(key)
        entries = listed if isinstance(listed, list) else []
        found = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get(name), str)]
        for entry in found:
            meta = entry.get("meta")
            length = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
            yield entry[name], length if type(length) is int and 0 < length <= MAX_TOKENS else None
        if found:
            return


def _check_context(learnt: Preflight, schedule: Schedule | None) -> None:
    limit = learnt.max_model_len
    if schedule is None or limit is None or not len(schedule):
        return
    over = int((schedule.prompt_tokens.astype("i8") + schedule.max_tokens > limit).sum())
    if over == len(schedule):
        raise TargetError(
            f"no row of the trace fits the model's context of {limit:,} tokens",
            hint="take another trace or a model with a longer context",
            code="context",
        )
    if over:
        learnt.warnings.append(f"{over} of {len(schedule)} requests exceed the model's context of {limit:,} tokens")


# --- tiny requests -----------------------------------------------------------------------------------------------


def _probe(learnt: Preflight, timeout_s: float) -> None:
    """Find the form of a request that the server takes, and learn from its answer."""

    def send(endpoint: Endpoint, output_tokens: int) -> Answer:
        prompts = Prompts(0, f"preflight {clock.monotonic_ns()}")
        request = RequestBuilder(endpoint, prompts).build(0, PROBE_PROMPT_TOKENS, output_tokens)
        return _followed(learnt, endpoint, request, timeout_s)

    found = Negotiation(learnt.endpoint, send).run()
    learnt.endpoint = found.endpoint
    if len(found.tried) > 1:
        learnt.facts["probes"] = "; ".join(found.tried)[:1000]
    complaint = complaint_about(found, str(learnt.facts.get("models", "")))
    if complaint is not None:
        raise complaint
    _judge(learnt, found)


def _endless(endpoint: Endpoint) -> bool:
    """No output length is asked for: an answer may never end."""
    return not endpoint.length_field and not endpoint.own_length


def _judge(learnt: Preflight, found: Negotiated) -> None:
    endpoint, facts, answer = found.endpoint, learnt.facts, found.answer
    facts |= fields_facts(found)
    learnt.warnings.extend(concessions(found))
    cut_short = found.accepted and _endless(endpoint)
    if answer.outcome() != Outcome.OK and not cut_short:
        what = answer.error_message() or (f"status {answer.status}" if answer.status else "no answer")
        learnt.warnings.append(f"the probe request failed ({what}); the run goes on")
        return
    facts["prompt_form"] = endpoint.prompt_form
    facts["streams"] = answer.streamed
    if endpoint.stream and not answer.streamed:
        learnt.warnings.append("the server answers in one piece although a stream was asked for: TTFT has no meaning")
    if not cut_short:
        facts["reports_usage"] = answer.usage_tokens >= 0
        facts["obeys_length"] = answer.output_tokens == found.output_tokens
    facts["server"] = answer.headers.get("server", "")[:80]
    if 0 <= answer.prompt_tokens != PROBE_PROMPT_TOKENS:
        facts["probe_prompt_tokens"] = answer.prompt_tokens


# --- a blocking exchange -----------------------------------------------------------------------------------------


def _exchange(endpoint: Endpoint, request: Request, timeout_s: float, *, endless: bool = False) -> Answer:
    """Send `request` on a connection of its own and read the answer; what goes wrong is left in the answer.

    Of an `endless` one, whose length was not asked for, the first token is enough.
    """
    answer = Answer(endpoint.dialect, stream_asked=endpoint.stream)
    address = endpoint.address_list()[0]
    give_up_ns = clock.monotonic_ns() + int(EXCHANGE_LIMIT_S * 1e9)
    try:
        with socket.socket(address.family, socket.SOCK_STREAM) as raw:
            raw.settimeout(timeout_s)
            raw.connect(address.sockaddr)
            with wrap_blocking(endpoint, raw) as sock:
                sock.sendall(request if isinstance(request, bytes) else b"".join(request))
                while not answer.complete and not (endless and answer.event_reads):
                    if clock.monotonic_ns() > give_up_ns:
                        raise OSError(f"no end of an answer within {EXCHANGE_LIMIT_S:g} s")
                    data = sock.recv(65536)
                    if not data:
                        answer.close(clock.monotonic_ns())
                        break
                    answer.feed([(clock.monotonic_ns(), NO_STAMP, data)])
    except (FramingError, EventTooLargeError) as error:
        raise TargetError(f"{endpoint.origin} does not speak HTTP/1.1: {error}", code="protocol") from None
    except OSError as error:
        answer.error = answer.error or _reason(error)
    return answer


def _followed(learnt: Preflight, endpoint: Endpoint, request: Request, timeout_s: float) -> Answer:
    """As `_exchange`, along redirects, which the user should know of: each costs a round trip in every request."""
    here, redirects, endless = endpoint, 0, _endless(endpoint)
    answer = _exchange(here, request, timeout_s, endless=endless)
    while hop := next_hop(here, answer.status, answer.headers.get("location", ""), redirects):
        redirects += 1
        here, request = hop, moved(request, hop)
        answer = _exchange(here, request, timeout_s, endless=endless)
    if redirects:
        learnt.facts["redirected_to"] = here.url
        warning = f"every request is redirected to {here.url}: name it as the target, or the detour is measured too"
        learnt.warnings.extend([] if warning in learnt.warnings else [warning])
    return answer

"""Before the load: is the server there, does it know the model, what does it accept? One small request tells.

Blocking and without gevent, with the same framing and event decoder as the load itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from loadtest import clock
from loadtest.errors import TargetError
from loadtest.replay.answer import MAX_TOKENS, Answer, EventTooLargeError, FramingError
from loadtest.replay.bodies import RequestBuilder, request_head
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.redirect import moved, next_hop
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.tls import context, wrap_blocking
from metrics.records import Outcome
from workloads.prompts import Prompts
from workloads.schedule import Schedule

Scalar = str | int | float | bool | None
PROBE_PROMPT_TOKENS = 8
PROBE_OUTPUT_TOKENS = 2
EXCHANGE_LIMIT_S = 60.0  # one answer altogether: each piece of it may be in time, and the whole never end
_REFUSED = (400, 415, 422)


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
    """Put the first address that answers in front."""
    addresses = learnt.endpoint.addresses
    failure: OSError | None = None
    for position, (family, address) in enumerate(addresses):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(timeout_s)
                sock.connect(tuple(address))
        except OSError as error:
            failure = error
            continue
        order = addresses[position:] + addresses[:position]
        learnt.endpoint = msgspec.structs.replace(learnt.endpoint, addresses=order)
        return
    raise TargetError(
        f"cannot connect to {learnt.endpoint.origin}: {_reason(failure)}",
        hint="is the server up, and is the port right?",
        code="unreachable",
    )


def _reason(error: OSError | None) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower() if error is not None else "no address"


# --- the model list ----------------------------------------------------------------------------------------------


def _list_models(learnt: Preflight, timeout_s: float) -> None:
    endpoint = learnt.endpoint
    answer = _exchange(endpoint, request_head(endpoint, "GET", endpoint.models_path) + b"\r\n", timeout_s)
    _refuse_auth(endpoint, answer)
    models = dict(_models(answer)) if answer.status == 200 else {}
    if not models:
        learnt.warnings.append(f"{endpoint.origin}{endpoint.models_path} lists no models")
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


# --- one tiny request --------------------------------------------------------------------------------------------


def _probe(learnt: Preflight, timeout_s: float) -> None:
    """Send the plainest request in the form the load will have; give up what the server refuses, one by one."""
    answer = Answer(learnt.endpoint.dialect)
    for candidate in _candidates(learnt.endpoint):
        answer = _followed(learnt, candidate, _probe_request(candidate), timeout_s)
        _refuse_auth(candidate, answer)
        if answer.status not in _REFUSED:
            learnt.endpoint = candidate
            break
    _judge(learnt, answer)


def _candidates(endpoint: Endpoint) -> Iterator[Endpoint]:
    """From the fullest request to the barest."""
    dialect = endpoint.dialect
    forms = ["ids", "text"] if endpoint.prompt_form == "auto" and dialect.takes_ids else []
    fixed = "text" if endpoint.prompt_form == "auto" else endpoint.prompt_form
    for given_up in range(len(dialect.optional) + 1):
        for form in forms or [fixed]:
            leave_out = list(dialect.optional[:given_up])
            yield msgspec.structs.replace(endpoint, prompt_form=form, leave_out=leave_out)


def _probe_request(endpoint: Endpoint) -> bytes:
    prompts = Prompts(0, f"preflight {clock.monotonic_ns()}")
    return RequestBuilder(endpoint, prompts).build(0, PROBE_PROMPT_TOKENS, PROBE_OUTPUT_TOKENS)


def _judge(learnt: Preflight, answer: Answer) -> None:
    endpoint, facts = learnt.endpoint, learnt.facts
    message = answer.error_message()
    if answer.status == 404:
        raise TargetError(
            f"{endpoint.url} answers 404: {message or 'not found'}",
            hint=f"the server lists these models: {facts['models']}" if "models" in facts else "check URL and model",
            code="model_not_found" if "model" in message.lower() else "not_found",
        )
    if answer.status in _REFUSED:
        raise TargetError(
            f"{endpoint.url} refuses a plain request with {answer.status}: {message}",
            hint="see --api, --model and --extra-body",
            code="refused",
        )
    if answer.outcome() != Outcome.OK:
        what = f"status {answer.status}" if answer.status else "no answer"
        learnt.warnings.append(f"the probe request failed ({message or what}); the run goes on")
        return
    facts["prompt_form"] = endpoint.prompt_form
    facts["streams"] = answer.streamed
    if endpoint.stream and not answer.streamed:
        learnt.warnings.append("the server answers in one piece although a stream was asked for: TTFT has no meaning")
    facts["reports_usage"] = answer.usage_tokens >= 0
    facts["obeys_length"] = answer.output_tokens == PROBE_OUTPUT_TOKENS
    facts["server"] = answer.headers.get("server", "")[:80]
    if endpoint.leave_out:
        facts["fields_refused"] = ", ".join(endpoint.leave_out)
        learnt.warnings.append(f"the server refuses {', '.join(endpoint.leave_out)}: answers may be shorter than asked")
    if 0 <= answer.prompt_tokens != PROBE_PROMPT_TOKENS:
        facts["probe_prompt_tokens"] = answer.prompt_tokens


def _refuse_auth(endpoint: Endpoint, answer: Answer) -> None:
    if answer.status in (401, 403):
        reason = answer.error_message() or "no reason given"
        raise TargetError(
            f"{endpoint.origin} refuses the request with {answer.status}: {reason}",
            hint="give the key with --api-key-env NAME",
            code="unauthorized",
        )


# --- a blocking exchange -----------------------------------------------------------------------------------------


def _exchange(endpoint: Endpoint, request: bytes, timeout_s: float) -> Answer:
    """Send `request` on a connection of its own and read the answer; what goes wrong is left in the answer."""
    answer = Answer(endpoint.dialect, stream_asked=endpoint.stream)
    address = endpoint.address_list()[0]
    give_up_ns = clock.monotonic_ns() + int(EXCHANGE_LIMIT_S * 1e9)
    try:
        with socket.socket(address.family, socket.SOCK_STREAM) as raw:
            raw.settimeout(timeout_s)
            raw.connect(address.sockaddr)
            with wrap_blocking(endpoint, raw) as sock:
                sock.sendall(request)
                while not answer.complete:
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


def _followed(learnt: Preflight, endpoint: Endpoint, request: bytes, timeout_s: float) -> Answer:
    """As `_exchange`, along redirects, which the user should know of: each costs a round trip in every request."""
    here, redirects = endpoint, 0
    answer = _exchange(here, request, timeout_s)
    while hop := next_hop(here, answer.status, answer.headers.get("location", ""), redirects):
        redirects += 1
        here, request = hop, moved(request, hop)
        answer = _exchange(here, request, timeout_s)
    if redirects:
        learnt.facts["redirected_to"] = here.url
        warning = f"every request is redirected to {here.url}: name it as the target, or the detour is measured too"
        learnt.warnings.extend([] if warning in learnt.warnings else [warning])
    return answer

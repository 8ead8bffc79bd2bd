"""What the user is told of a negotiation: why no load is sent and what to do, or what the load goes without."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.errors import TargetError
from loadtest.replay import refusal
from loadtest.replay.answer import Answer
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.negotiation import Negotiated
from loadtest.replay.redirect import refusal as not_followed

_MEANS = {
    "min_tokens": "answers may be shorter than asked",
    "ignore_eos": "answers may be shorter than asked",
    "stream_options": "without usage in its answers tokens are counted by events",
}
_MEANS |= dict.fromkeys(("temperature", "options.temperature"), "it samples at a temperature of its own")


def complaint_about(found: Negotiated, models: str) -> TargetError | None:
    """The error to end with before any load; None when the load may go. `models` are those that the server lists."""
    endpoint, answer = found.endpoint, found.answer
    url, status, said = endpoint.url.partition("?")[0], answer.status, answer.error_message()
    if refusal.unauthorized(answer):
        return unauthorized(endpoint, endpoint.origin, answer)
    if 300 <= status < 400:
        told = not_followed(answer.headers.get("location", ""))
        return TargetError(f"{url} answers {status}: {told}", hint="check the URL", code="redirected")
    if found.accepted and answer.headers.get("content-type", "").startswith("text/html"):
        return TargetError(f"{url} answers with a web page", hint=_other_places(endpoint), code="not_an_api")
    if not found.final:
        return None
    if found.own_field:
        text = f"{url} refuses {found.own_field!r}, a field of your own, with {status}: {said}"
        hint = "change what --extra-body or --rename-field says of it; --drop-field leaves a field of ours out"
        return TargetError(text, hint=hint, code="refused")
    if other := refusal.other_api(answer, endpoint.api):
        return TargetError(f"{url} answers {status}: {said}", hint=f"try --api {other}", code="wrong_api")
    if refusal.unknown_model(answer):
        hint = f"the server lists these models: {models}" if models else "give the right name with --model"
        return TargetError(f"{url} answers {status}: {said}", hint=hint, code="model_not_found")
    if status == 404:
        place = f"its model list is there: try --api {_other_api(endpoint)}" if models else _other_places(endpoint)
        return TargetError(f"{url} answers 404: {said or 'not found'}", hint=place, code="not_found")
    return _refused(found, url, models)


def _refused(found: Negotiated, url: str, models: str) -> TargetError:
    answer = found.answer
    missing = "" if found.endpoint.model or models else "it lists no models: give --model NAME; "
    return TargetError(
        f"{url} refuses a plain request with {answer.status}: {answer.error_message() or 'no reason given'}",
        hint=f"{missing}asked {len(found.tried)} times, at last {found.tried[-1].rpartition(':')[0]}; "
        "see --api, --model, --extra-body, --rename-field and --drop-field",
        code="refused",
    )


def unauthorized(endpoint: Endpoint, what: str, answer: Answer) -> TargetError:
    """401 or 403, with what the request showed: never the key itself."""
    shown = endpoint.credential
    keyless = shown == "without a key"
    hint = "give one with --api-key-env NAME" if keyless else "is it the right key, and may it do this?"
    message = f"{what} refuses a request {shown} with {answer.status}: {answer.error_message() or 'no reason given'}"
    return TargetError(message, hint=hint, code="unauthorized")


def _other_api(endpoint: Endpoint) -> str:
    return "completions" if endpoint.api == "chat" else "chat"


def _other_places(endpoint: Endpoint) -> str:
    """Where else an API could be: people write /v1 twice, leave it out, or give it where there is none."""
    base = endpoint.base_path
    while "/v1/v1" in base:
        base = base.replace("/v1/v1", "/v1")
    if base == endpoint.base_path:
        base = base.removesuffix("/v1") if base.endswith("/v1") else f"{base}/v1"
    place = f"{endpoint.origin}{base}{endpoint.dialect.path}"
    return f"is the API at {place}? Give that as --target, or its place as --path, or another --api"


def fields_facts(found: Negotiated) -> dict[str, str]:
    """For run.json: what is left out, and what goes by another name, because the server wants it so."""
    asked, used = found.asked, found.endpoint
    left = [name for name in used.leave_out if name not in asked.leave_out]
    renamed = [f"{old}={new}" for old, new in used.rename.items() if old not in asked.rename]
    facts = {"fields_refused": ", ".join(left), "fields_renamed": ", ".join(renamed)}
    return {name: text for name, text in facts.items() if text}


def concessions(found: Negotiated) -> Iterator[str]:
    """A sentence for each thing that the requests go without, or say in another way than the schedule."""
    asked, used = found.asked, found.endpoint
    left = [name for name in used.leave_out if name not in asked.leave_out]
    if optional := [name for name in left if name in _MEANS]:
        means = dict.fromkeys(_MEANS[name] for name in optional)
        yield f"the server refuses {', '.join(optional)}: {', '.join(means)}"
    if used.prompt_form == "text" and asked.prompt_form == "auto" and used.dialect.takes_ids:
        yield "the server refuses token ids: prompts are words"
    for old, new in used.rename.items():
        if old not in asked.rename:
            yield f"the server refuses {old}: the output length goes by {new}"
    yield from _lengths(used, refused=[name for name in left if name in used.dialect.lengths])


def _lengths(endpoint: Endpoint, refused: list[str]) -> Iterator[str]:
    """What stands in the place of each row's own output length."""
    if own := endpoint.own_length:
        yield f"every request asks for one output length, {own} of --extra-body, whatever the trace says"
    elif not endpoint.length_field:
        why = f"the server refuses {refused[0]} by every name" if refused else "the field is dropped"
        yield f"no output length is asked for ({why}): answers may be of any length, whatever the trace says"

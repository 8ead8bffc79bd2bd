"""Which form of a request a server takes: from the fullest to the plainest, and back as far as it lets us.

A field that a refusal names is left out, or the length goes by its next name; a refusal that names nothing leads to
the plainest form at once. What was given up on the way is then asked for again, one by one, so that a refusal counts
only when it repeats. No socket in here: `send` asks, and every answer is judged by `refusal`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from loadtest import clock
from loadtest.replay import refusal
from loadtest.replay.answer import Answer
from loadtest.replay.bodies import LENGTH, body_fields
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.fields import holds

OUTPUT_TOKENS = 2
MOST_OUTPUT_TOKENS = 1024  # where a server refuses shorter answers than that
MAX_PROBES = 24  # more than the fields of any API can make necessary
BUSY_WAITS_S = (0.2, 0.5)  # before a busy server is asked again, where it does not say when
LONGEST_WAIT_S = 5.0
_PROMPT_FIELDS = ("prompt", "messages")
_IDS = "token ids"

Send = Callable[[Endpoint, int], Answer]  # a tiny request for so many output tokens


class Form(NamedTuple):
    """What a request says beside what it must say: token ids, the length's name ("" for none), optional fields."""

    ids: bool
    length: str
    fields: tuple[str, ...]


class Negotiated(NamedTuple):
    """The endpoint to use, the last answer to it; `final`: no load should be sent, for the reason it gives."""

    asked: Endpoint  # in full
    endpoint: Endpoint
    answer: Answer
    final: bool
    own_field: str  # the user's own, which the server refuses
    output_tokens: int
    tried: list[str]  # each probe and what became of it

    @property
    def accepted(self) -> bool:
        return refusal.accepted(self.answer)


@dataclass
class Negotiation:
    """One server asked until a form is taken, or until nothing is left to try."""

    endpoint: Endpoint
    send: Send
    output_tokens: int = OUTPUT_TOKENS
    tried: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        endpoint, sent = self.endpoint, body_fields(self.endpoint)
        self._first_length = endpoint.length_field
        chosen = {*endpoint.leave_out, *endpoint.rename}  # by the user, who is not overruled
        free = bool(self._first_length) and not chosen & set(endpoint.dialect.lengths)
        names = endpoint.dialect.lengths if free else ()
        self._lengths = [name for name in names if not holds(endpoint.extra_body, name)]
        optional = [name for name in endpoint.dialect.optional if holds(sent, name)]
        optional = [name for name in optional if name not in chosen and not holds(endpoint.extra_body, name)]
        if endpoint.own_length:
            floors = [name for name in optional if sent[name] == LENGTH]  # longer than the user's own length, perhaps
            self.endpoint = msgspec.structs.replace(endpoint, leave_out=[*endpoint.leave_out, *floors])
            optional = [name for name in optional if name not in floors]
        auto = endpoint.prompt_form == "auto"
        self.fullest = Form(auto and endpoint.dialect.takes_ids, self._first_length, tuple(optional))
        self._own = [*endpoint.extra_body, *endpoint.rename.values()]

    def run(self) -> Negotiated:
        """Ask, step down, step up."""
        form = self.fullest
        answer = self._ask(form)
        while refusal.refused(answer) and len(self.tried) < MAX_PROBES:
            name = refusal.named(answer, [*_words(form), *self._own])
            if not name and (refusal.other_api(answer, self.endpoint.api) or refusal.unknown_model(answer)):
                return self._end(form, answer, final=True)
            simpler = self._simpler(form, answer, name)
            if simpler is None:
                return self._give_up(form, answer)
            form, answer = simpler, self._ask(simpler)
        if refusal.accepted(answer):
            return self._restored(form, answer)
        return self._end(form, answer, final=refusal.unauthorized(answer))

    def _give_up(self, form: Form, answer: Answer) -> Negotiated:
        """The plainest form is refused; if that repeats, in the API's own words, nothing else can be expected."""
        again = self._ask(form)
        if refusal.accepted(again):
            return self._restored(form, again)
        if refusal.refused(again) and again.status == answer.status and refusal.explained(again):
            own = refusal.named(again, self._own)
            return self._end(form, again, final=True, own_field=own)
        form = form if refusal.explained(answer) else self.fullest  # a breakdown tells nothing of the form
        return self._end(form, again, final=refusal.unauthorized(again))

    def _simpler(self, form: Form, answer: Answer, name: str) -> Form | None:
        """The next form to try; None when `form` is the plainest already."""
        if name == form.length and name:
            least = refusal.least_length(answer)
            if self.output_tokens < least <= MOST_OUTPUT_TOKENS:
                self.output_tokens = least
                return form
            return self._without_length(form, answer)
        if name in form.fields:
            return form._replace(fields=tuple(kept for kept in form.fields if kept != name))
        if name in _PROMPT_FIELDS:
            return form._replace(ids=False)
        if form.ids or form.fields:
            return form._replace(ids=False, fields=())
        return self._without_length(form, answer)

    def _without_length(self, form: Form, answer: Answer) -> Form | None:
        """With the length's next name, the one that the server suggests first; with none when all were tried."""
        if form.length not in self._lengths:
            return None
        place = self._lengths.index(form.length) + 1
        suggested = refusal.suggested_length(answer, but=[*self._lengths[:place], *self._own])
        if suggested:
            self._lengths = [name for name in self._lengths if name != suggested]
            self._lengths.insert(place, suggested)
        return form._replace(length=self._lengths[place] if place < len(self._lengths) else "")

    def _restored(self, form: Form, answer: Answer) -> Negotiated:
        """What was given up is asked for once more; what is taken now stays."""
        for name in self._given_up(form):
            candidate = self._with(form, name)
            if len(self.tried) >= MAX_PROBES:
                break
            found = self._ask(candidate)
            if refusal.accepted(found):
                form, answer = candidate, found
        return self._end(form, answer)

    def _given_up(self, form: Form) -> list[str]:
        """What the fullest form has and `form` has not, the most valuable first; of lengths, the first name last."""
        lengths = self._lengths[: self._lengths.index(form.length)] if form.length in self._lengths else self._lengths
        return [
            *([_IDS] if self.fullest.ids and not form.ids else []),
            *reversed(lengths),
            *(name for name in self.fullest.fields if name not in form.fields),
        ]

    def _with(self, form: Form, name: str) -> Form:
        if name == _IDS:
            return form._replace(ids=True)
        return form._replace(length=name) if name in self._lengths else form._replace(fields=(*form.fields, name))

    def _ask(self, form: Form) -> Answer:
        """Send it; a server that has no room is asked again, a few times."""
        waits = list(BUSY_WAITS_S)
        while True:
            answer = self.send(self._endpoint(form), self.output_tokens)
            self.tried.append(f"{self._described(form)}: {answer.status or 'no answer'}")
            if not refusal.busy(answer) or not waits or len(self.tried) >= MAX_PROBES:
                return answer
            wait_s, asked_s = waits.pop(0), answer.retry_after_s
            clock.sleep(min(wait_s if asked_s is None else asked_s, LONGEST_WAIT_S))

    def _endpoint(self, form: Form) -> Endpoint:
        """The endpoint that sends requests of this form."""
        endpoint, first = self.endpoint, self._first_length
        left = [name for name in self.fullest.fields if name not in form.fields]
        left += [first] if first and not form.length else []
        renamed = {first: form.length} if form.length not in ("", first) else {}
        ids_or_text = "ids" if form.ids else "text"
        return msgspec.structs.replace(
            endpoint,
            prompt_form=ids_or_text if endpoint.prompt_form == "auto" else endpoint.prompt_form,
            leave_out=[*endpoint.leave_out, *left],
            rename={**endpoint.rename, **renamed},
        )

    def _described(self, form: Form) -> str:
        """What the form goes without."""
        full = self.fullest
        missing = [_IDS] if full.ids and not form.ids else []
        missing += [full.length] if full.length and not form.length else []
        missing += [name for name in full.fields if name not in form.fields]
        parts = [f"{form.length} for {full.length}"] if form.length not in ("", full.length) else []
        parts += [f"without {', '.join(missing)}"] if missing else []
        return ", ".join(parts) or "in full"

    def _end(self, form: Form, answer: Answer, *, final: bool = False, own_field: str = "") -> Negotiated:
        return Negotiated(self.endpoint, self._endpoint(form), answer, final, own_field, self.output_tokens, self.tried)


def _words(form: Form) -> list[str]:
    """The names by which a refusal can mean something of the form that could be given up."""
    return [*form.fields, *([form.length] if form.length else []), *(_PROMPT_FIELDS if form.ids else ())]

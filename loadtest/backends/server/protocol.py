"""What a client may ask, and the sentence it gets when it may not: vLLM's statuses, types and wording."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from loadtest.backends.server.engine import Refused, Wish
from loadtest.backends.server.frames import Api

_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default; chat runs to the end of the context
_ID_CHARACTERS = 128
# What a machine word holds, and a worker's message with it; a longer number is refused at the door.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ApiError(Exception):
    """An answer with an error object; `kind` and `param` are OpenAI's fields."""

    def __init__(self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.headers: dict[str, str] = {}

    def body(self) -> bytes:
        """The JSON error object."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _Body(msgspec.Struct):
    """Fields that matter here; every other one is accepted and has no effect.

    Those from top_p on have one only where tokens are computed.
    """

    model: str | None = None
    max_tokens: Int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    n: Int | None = None
    top_p: float | None = None
    top_k: Int | None = None
    seed: Int | None = None
    min_tokens: Int | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    stop_token_ids: list[Int] | None = None
    stop: str | list[str] | None = None


class CompletionBody(_Body):
    prompt: str | list[Int | str | list[Int]] | None = None
    echo: bool | None = None
    best_of: Int | None = None


class ContentPart(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class Message(msgspec.Struct):
    role: str
    content: str | list[ContentPart] | None = None


class ChatBody(_Body):
    messages: list[Message] = []
    max_completion_tokens: Int | None = None


class Ask(msgspec.Struct):
    """A request that will be served."""

    api: Api
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool = False
    prompt: list[int] = []  # empty where prompts are only counted
    wish: Wish = Wish()


_decode_completion = msgspec.json.Decoder(CompletionBody).decode
_decode_chat = msgspec.json.Decoder(ChatBody).decode


Encode = Callable[[str], list[int]]
EncodeChat = Callable[[Sequence[Mapping[str, str]]], list[int]]


def read_ask(
    api: Api,
    body: bytes,
    *,
    model: str,
    max_model_len: int,
    encode: Encode | None = None,
    encode_chat: EncodeChat | None = None,
) -> Ask:
    """Check a request body against the served model; raises ApiError (400, 404).

    Without `encode` a prompt is only counted, and a text's tokens are its words.
    """
    request = _decode(api, body)
    if request.model not in (None, model):
        raise ApiError(
            404,
            f"The model `{request.model}` does not exist. Valid aliases: {model}.",
            kind="NotFoundError",
            param="model",
        )
    content = _content(request, encode_chat)
    prompt = content if isinstance(content, list) else [] if encode is None else encode(content)
    if encode is not None and not prompt:  # text without a token, such as an empty message: vLLM's words
        raise ApiError(400, "The decoder prompt cannot be empty", param="prompt")
    prompt_tokens = count_words(content) if isinstance(content, str) and encode is None else len(prompt)
    _check_options(request)
    return Ask(
        api=api,
        prompt_tokens=prompt_tokens,
        max_tokens=_output_tokens(request, prompt_tokens, max_model_len),
        stream=bool(request.stream),
        include_usage=_option(request, "include_usage"),
        continuous_usage=_option(request, "include_usage") and _option(request, "continuous_usage_stats"),
        return_token_ids=encode is not None and bool(request.return_token_ids),
        prompt=[] if encode is None else prompt,
        wish=_wish(request),
    )


def answer_id(api: Api, request_id: str | None) -> str:
    """`cmpl-` or `chatcmpl-` and the client's X-Request-Id, or sixteen random hex digits."""
    prefix = "chatcmpl-" if api == "chat" else "cmpl-"
    if request_id and request_id.isascii() and request_id.isprintable():
        return prefix + request_id[:_ID_CHARACTERS]
    return prefix + secrets.token_hex(8)


def count_words(text: str) -> int:
    """Tokens of a text prompt: its words, at least one."""
    return max(1, len(text.split()))


def _decode(api: Api, body: bytes) -> CompletionBody | ChatBody:
    try:
        return _decode_chat(body) if api == "chat" else _decode_completion(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"1 validation error:\n  {error}", kind="Bad Request") from None


class TokenizeBody(msgspec.Struct):
    """A text or a conversation to be counted."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] = []


def read_tokenize(body: bytes, encode: Encode, encode_chat: EncodeChat) -> list[int]:
    """The tokens that a /tokenize request asks for; raises ApiError (400)."""
    try:
        asked = msgspec.json.decode(body, type=TokenizeBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"1 validation error:\n  {error}", kind="Bad Request") from None
    return encode(asked.prompt) if asked.prompt is not None else _conversation(asked.messages, encode_chat)


def _content(request: CompletionBody | ChatBody, encode_chat: EncodeChat | None) -> str | list[int]:
    """The prompt: text, or token ids."""
    if isinstance(request, ChatBody):
        return _chat_text(request.messages) if encode_chat is None else _conversation(request.messages, encode_chat)
    prompt = request.prompt
    if prompt is None or prompt == "":
        raise ApiError(
            400, "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", param="prompt"
        )
    if isinstance(prompt, str):
        return prompt
    return _listed(prompt)


def _listed(prompt: list[Any]) -> str | list[int]:
    """Token ids, or a list that holds one prompt of either kind."""
    if not prompt or prompt == [[]]:
        raise ApiError(400, "You must pass at least one prompt")
    if all(type(item) is int for item in prompt):
        return prompt
    if len(prompt) > 1:
        raise ApiError(400, f"This server answers one prompt per request, got {len(prompt)}.", param="prompt")
    only: str | list[int] = prompt[0]
    return only


def _chat_text(messages: list[Message]) -> str:
    if not messages:
        raise ApiError(400, "messages must not be empty. (parameter=messages)", param="messages")
    return " ".join(text for message in messages for text in _texts(message))


def _texts(message: Message) -> list[str]:
    if message.content is None or isinstance(message.content, str):
        return [message.content] if message.content is not None else []
    return [part.text for part in message.content if part.text is not None]


def _conversation(messages: list[Message], encode_chat: EncodeChat) -> list[int]:
    """Through the model's chat template, if it has one."""
    _chat_text(messages)  # refuses an empty one
    try:
        return encode_chat([{"role": message.role, "content": " ".join(_texts(message))} for message in messages])
    except Refused as refusal:
        raise ApiError(refusal.status, refusal.message, param="messages") from None


def _check_options(request: CompletionBody | ChatBody) -> None:
    if request.stream_options is not None and not request.stream:
        raise ApiError(
            400,
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            param="stream_options",
        )
    if request.temperature is not None and request.temperature < 0:
        raise ApiError(
            400,
            f"temperature must be non-negative, got {request.temperature}. "
            f"(parameter=temperature, value={request.temperature})",
            param="temperature",
        )
    if request.n is not None and request.n != 1:
        raise ApiError(400, f"This server gives one choice per request, got n={request.n}.", param="n")
    if isinstance(request, CompletionBody) and request.echo:
        raise ApiError(400, "This server cannot echo the prompt.", param="echo")
    if isinstance(request, CompletionBody) and (request.best_of or 1) != 1:
        raise ApiError(400, f"This server gives one choice, got best_of={request.best_of}.", param="best_of")


def _wish(request: CompletionBody | ChatBody) -> Wish:
    for name, holds, rule in (
        ("top_p", request.top_p is None or 0 < request.top_p <= 1, "in (0, 1]"),
        ("top_k", request.top_k is None or request.top_k >= -1, "-1, or at least 0"),
        ("min_tokens", request.min_tokens is None or request.min_tokens >= 0, "at least 0"),
        ("stop", request.stop != "" and "" not in (request.stop or ()), "without empty strings"),
    ):
        if not holds:
            value = getattr(request, name)
            raise ApiError(400, f"{name} must be {rule}, got {value}. (parameter={name}, value={value})", param=name)
    return Wish(
        temperature=request.temperature or 0.0,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(0, request.top_k or 0),
        seed=request.seed or 0,
        min_tokens=request.min_tokens or 0,
        ignore_eos=bool(request.ignore_eos),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
    )


def _output_tokens(request: CompletionBody | ChatBody, prompt_tokens: int, max_model_len: int) -> int:
    """What will be generated: as asked, cut to the rest of the context as vLLM does."""
    room = max_model_len - prompt_tokens
    if room < 1:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
            f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            f"the length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
            param="input_tokens",
        )
    name, asked = "max_tokens", request.max_tokens
    if isinstance(request, ChatBody):
        if request.max_completion_tokens is not None:
            name, asked = "max_completion_tokens", request.max_completion_tokens
        elif asked is None:
            asked = room
    if asked is None:
        asked = _DEFAULT_COMPLETION_TOKENS
    if asked < 1:
        raise ApiError(400, f"{name} must be at least 1, got {asked}. (parameter={name}, value={asked})", param=name)
    return min(asked, room)


def _option(request: CompletionBody | ChatBody, name: str) -> bool:
    return request.stream_options is not None and bool(getattr(request.stream_options, name))

"""A conversation as the text its model was trained on: the chat template of a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from loadtest import clock
from loadtest.backends.server.engine import Refused
from loadtest.errors import UsageError

Template = Callable[[Sequence[Mapping[str, str]]], str]


def load_template(model: str) -> Template | None:
    """The template of a model's folder; None when it has none."""
    config = _config(Path(model) / "tokenizer_config.json")
    file = Path(model) / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.exists() else _chosen(config.get("chat_template"))
    if source is None:
        return None
    names = {name: _token(config.get(name)) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    return _compiled(Path(model), source, names)


def _config(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} cannot be read: {error}", code="bad_template") from None


def _chosen(value: Any) -> str | None:
    """One text, or several by name of which `default` is for plain conversations."""
    if isinstance(value, list):
        return next((str(entry["template"]) for entry in value if entry.get("name") == "default"), None)
    return None if value is None else str(value)


def _token(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value or "")


def _compiled(folder: Path, source: str, names: Mapping[str, str]) -> Template:
    """As transformers compiles it: sandboxed, blocks on lines of their own leave no trace."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: clock.utc_now().strftime(form)
    try:
        template = environment.from_string(source)
    except TemplateError as error:
        raise UsageError(f"the chat template in {folder} is broken: {error}", code="bad_template") from None

    def render(messages: Sequence[Mapping[str, str]]) -> str:
        try:
            return template.render(messages=messages, add_generation_prompt=True, **names)
        except TemplateError as error:
            raise Refused(400, f"The chat template does not take these messages: {error}") from None

    return render


def _refuse(message: str) -> NoReturn:
    """What templates call when a conversation is not one of theirs."""
    from jinja2 import TemplateError

    raise TemplateError(message)

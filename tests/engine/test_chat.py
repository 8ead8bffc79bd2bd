"""Conversations through a checkpoint's own template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.backends.engine.chat import load_template
from loadtest.backends.server.engine import Refused
from loadtest.errors import UsageError

SOURCE = (
    "{{ bos_token }}{% for message in messages %}\n"
    "{% if message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}\n"
    "<|{{ message.role }}|>{{ message.content }}{{ eos_token }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
RENDERED = "<s><|system|>Be brief.</s>\n<|user|>Hi</s>\n<|assistant|>"  # a block leaves no line behind


def folder(path: Path, template: object) -> str:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    "template", [SOURCE, [{"name": "tool_use", "template": "no"}, {"name": "default", "template": SOURCE}]]
)
def test_messages_become_the_text_of_the_template(tmp_path: Path, template: object) -> None:
    """Special tokens from the configuration, a turn of the assistant opened; one template or several by name."""
    render = load_template(folder(tmp_path, template))
    assert render is not None
    assert RENDERED == render(HELLO)


def test_a_file_of_its_own_goes_first(tmp_path: Path) -> None:
    """As newer versions of transformers save it."""
    model = folder(tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content | tojson }}")
    render = load_template(model)
    assert render is not None
    assert '"Wörter"' == render([{"role": "user", "content": "Wörter"}])


def test_without_a_template_there_is_none(tmp_path: Path) -> None:
    """Random weights, or a folder that says nothing of it."""
    assert load_template("tiny") is None
    assert load_template(folder(tmp_path, None)) is None


def test_what_a_template_refuses_is_answered_400(tmp_path: Path) -> None:
    """With its own words; and a template cannot reach beyond its sandbox."""
    render = load_template(folder(tmp_path, SOURCE))
    assert render is not None
    with pytest.raises(Refused, match="unknown role") as refused:
        render([{"role": "robot", "content": "Hi"}])
    assert 400 == refused.value.status
    escape = load_template(folder(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}"))
    assert escape is not None
    with pytest.raises(Refused):
        escape(HELLO)


def test_a_broken_template_is_one_sentence(tmp_path: Path) -> None:
    """At the start, not with the first request."""
    with pytest.raises(UsageError, match="is broken"):
        load_template(folder(tmp_path, "{% for %}"))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        load_template(str(tmp_path))

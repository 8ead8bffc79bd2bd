"""Short names of deployments: what tells them apart, and what they share, from their text form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

Parts = tuple[str, str, dict[str, str]]


def short_names(texts: Sequence[str]) -> list[str]:
    """The arrangement where that is enough, else with the options that differ; a URL or a file stays as it is.

    Of launched servers (`vllm-chunked bin=/opt/vllm/ chunk=256`) the settings that all of them have are left out.
    """
    texts = _without_shared_settings(texts)
    parsed = [_parts(text) for text in texts]
    backends = {parts[0] for parts in parsed if parts is not None}
    both = zip(texts, parsed, strict=True)
    names = [text if parts is None else _name(parts, parsed, backends) for text, parts in both]
    return names if len(set(names)) == len(set(texts)) else list(texts)


def distinct(names: Sequence[str]) -> list[str]:
    """Names that tell rows apart: equal ones carry their place."""
    return [f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names, 1)]


def without_folders(texts: Sequence[str]) -> list[str]:
    """Launch files by name, as long as that tells them apart."""
    names = [PurePath(text).stem if text.endswith(".toml") else text for text in texts]
    return names if len(set(names)) == len(set(texts)) else list(texts)


def shared_options(texts: Sequence[str]) -> str:
    """`model=llama2-70b, tp=8`: what several deployments have in common, and their short names leave out."""
    parsed = [parts for text in texts if (parts := _parts(text)) is not None]
    if len(parsed) < len(texts) or len(set(texts)) < 2:
        return ""
    common = set.intersection(*(set(options.items()) for _, _, options in parsed))
    return ", ".join(f"{key}={value}" for key, value in parsed[0][2].items() if (key, value) in common)


def own_options(text: str, besides: str) -> str:
    """The options of a deployment other than those in `besides`, as `shared_options` writes them."""
    parts = _parts(text)
    if parts is None:
        return text
    said = set(besides.split(", "))
    return ", ".join(f"{k}={v}" for k, v in parts[2].items() if f"{k}={v}" not in said) or "as it comes"


def _without_shared_settings(texts: Sequence[str]) -> list[str]:
    settings = [set(text.split(" ")[1:]) for text in texts]
    shared = set.intersection(*settings) if len(texts) > 1 else set[str]()
    shared = {setting for setting in shared if "=" in setting}
    return [" ".join(word for word in text.split(" ") if word not in shared) for text in texts]


def _parts(text: str) -> Parts | None:
    """Backend, arrangement and options of `backend:arrangement,key=value,...`; None for anything else."""
    backend, colon, rest = text.partition(":")
    arrangement, *options = rest.split(",")
    if not colon or not arrangement.isidentifier() or not all("=" in option for option in options):
        return None
    return backend, arrangement, dict(option.split("=", 1) for option in options)


def _name(mine: Parts, parsed: Sequence[Parts | None], backends: set[str]) -> str:
    backend, arrangement, options = mine
    alike = [parts[2] for parts in parsed if parts is not None and parts[:2] == (backend, arrangement)]
    differing = [key for key in options if any(other.get(key) != options[key] for other in alike)]
    lead = f"{backend} {arrangement}" if len(backends) > 1 else arrangement
    return " ".join([lead, *(f"{key}={options[key]}" for key in differing)])

"""What the reference engine says of itself at /ref/config: enough to name and deploy a calibration of it."""

from __future__ import annotations

import http.client
from typing import Any, NamedTuple

import msgspec

from loadtest.backends.perfmodel import Model, model_of
from loadtest.backends.shape import Shape
from loadtest.weburl import split_url

_TIMEOUT_S = 10.0
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Reference(NamedTuple):
    """The model it serves, on what, and how many requests it decodes together."""

    model: Model
    device: str
    max_num_seqs: int
    instances: int


def read_reference(url: str) -> Reference | None:
    """The engine at `url`; None when something else answers there, or nothing."""
    try:
        parts = split_url(url, ("http",))
    except ValueError:
        return None  # https, or no URL at all: who loads it says so
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/ref/config")
        return _reference(msgspec.json.decode(connection.getresponse().read()))
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError, TypeError, IndexError):
        return None
    finally:
        connection.close()


def _reference(config: dict[str, Any]) -> Reference:
    settings, workers = config["settings"], config["workers"]
    shape, element = settings["shape"], _BYTES[settings["dtype"]]
    parameters = float(workers[0]["parameters"])
    facts = Shape(
        layers=shape["layers"],
        hidden=shape["hidden"],
        parameters=parameters,
        active_parameters=parameters,
        kv_bytes_per_token=2 * shape["layers"] * shape["kv_heads"] * shape["head_dim"] * element,
        bytes_per_parameter=float(element),
    )
    model = model_of(facts, str(settings["model"]), f"the reference engine, {settings['threads']} threads")
    return Reference(model, str(settings["device"]), int(settings["max_num_seqs"]), len(workers))

"""The bundled server or simulator made worse on purpose: slower prefill or decode, a share of failed requests.

`python -m benchmarks.slowed --deployment TEXT --decode 1.15 --prefill 1.3 --fail 0.03 --port 8000` serves it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from loadtest.backends import spec
from loadtest.backends.perfmodel import PerfModel, load_perf_model

NAME = "load_perf_model"

Fit = TypeVar("Fit", bound=msgspec.Struct)


@contextmanager
def slowed(prefill: float, decode: float) -> Iterator[None]:
    """Inside the block every cluster that is built takes this many times as long."""
    before = load_perf_model

    def load(*arguments: object) -> PerfModel:
        return scaled(before(*arguments), prefill, decode)  # type: ignore[arg-type]

    setattr(spec, NAME, load)  # where clusters look it up
    try:
        yield
    finally:
        setattr(spec, NAME, before)


def scaled(model: PerfModel, prefill: float, decode: float) -> PerfModel:
    """The same model with every coefficient in milliseconds multiplied."""
    profile = model.profile
    return PerfModel(
        model.model,
        msgspec.structs.replace(
            profile, prefill=_times(profile.prefill, prefill), decode=_times(profile.decode, decode)
        ),
    )


def _times(fit: Fit, factor: float) -> Fit:
    found = {name: getattr(fit, name) * factor for name in fit.__struct_fields__ if name.endswith("_ms")}
    return msgspec.structs.replace(fit, **found)


def main() -> int:
    """Serve until told to stop; the server's own options after ours."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefill", type=float, default=1.0)
    parser.add_argument("--decode", type=float, default=1.0)
    parser.add_argument("--fail", type=float, default=0.0)
    options, rest = parser.parse_known_args()
    from loadtest.backends.server import __main__ as server

    if options.fail:
        _fail(options.fail)
    sys.argv = [sys.argv[0], *rest]
    with slowed(options.prefill, options.decode):
        return server.main()


def _fail(share: float) -> None:
    """Every request has this chance to be answered with a 500 instead of tokens."""
    import numpy as np

    from loadtest.backends.server.face import Face
    from loadtest.backends.server.protocol import ApiError

    rng = np.random.default_rng(os.getpid())  # other requests in every run
    before = Face._serve

    async def serve(self: Face, *arguments: object) -> object:
        if rng.random() < share:
            raise ApiError(500, "broken on purpose", kind="Internal Server Error")
        return await before(self, *arguments)  # type: ignore[arg-type]

    Face._serve = serve  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    sys.exit(main())

"""`goodput serve`: start a bundled backend and keep it until Ctrl-C."""

from __future__ import annotations

import click

from loadtest.cli import options
from loadtest.cli.output import say

_EXAMPLE_TOKENS = 16
_LOOK_EVERY_S = 0.1


@click.command(cls=options.Command)
@click.argument("deployment")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def serve(deployment: str, host: str, port: int, as_json: bool) -> None:
    """Start a bundled backend, OpenAI style, until Ctrl-C.

    DEPLOYMENT is e.g. emulated:chunked,model=demo-8b or torch:disaggregated,model=tiny.
    """
    import signal

    from loadtest import clock
    from loadtest.backends.server import command, ready_timeout_s
    from loadtest.deployment import Deployment
    from loadtest.supervise import Server, log_folder

    parsed = Deployment.parse(deployment)
    _require_servable(parsed.backend, deployment)
    asked: list[int] = []  # to stop; an exception raised out of a handler can be lost on its way, a note cannot
    for number in (signal.SIGINT, signal.SIGTERM):  # `kill` is as clean as Ctrl-C, and both reach a background job
        signal.signal(number, lambda number, _frame: asked.append(number))
    with log_folder("goodput-serve-") as folder:
        argv, log = command(str(parsed), host=host, port=port), folder / "server.log"
        with Server(argv, log=log, ready_timeout_s=ready_timeout_s(parsed.backend)) as server:
            model = str(server.ready["model"])
            say(_as_json(server.url, model, str(parsed)) if as_json else _as_text(server.url, model))
            while not asked and server.exit_status is None:
                clock.sleep(_LOOK_EVERY_S)
            if not asked:
                raise server.died()
            say("stopped", err=True)


def _require_servable(backend: str, text: str) -> None:
    from loadtest.errors import UsageError

    if backend == "url":
        raise UsageError(
            f"cannot serve {text!r}: it is served already",
            hint="serve a bundled backend, e.g. emulated:chunked,model=demo-8b",
            code="bad_deployment",
        )


def _as_json(url: str, model: str, deployment: str) -> str:
    import msgspec

    return msgspec.json.encode({"url": url, "model": model, "deployment": deployment}).decode()


def _as_text(url: str, model: str) -> str:
    return f"""{model} at {url}; Ctrl-C stops it. Try:

  curl -N {url}/v1/completions -H 'Content-Type: application/json' \\
    -d '{{"prompt": "Tell me a story", "max_tokens": {_EXAMPLE_TOKENS}, "stream": true}}'"""

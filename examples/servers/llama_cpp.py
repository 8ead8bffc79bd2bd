"""llama.cpp's own HTTP server out of the xllamacpp wheel: `python llama_cpp.py --model M.gguf --port 8080`.

Runs in the environment that `scripts/real-servers llama-cpp` makes; needs nothing of goodput.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading

import xllamacpp


def main(given: argparse.Namespace) -> None:
    """Serve until TERM."""
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.model_alias = {given.alias}
    params.hostnames = [given.host]
    params.port = given.port
    params.n_parallel = given.parallel
    params.n_ctx = given.context * given.parallel  # llama.cpp divides the context by the slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.endpoint_metrics = True
    params.cache_prompt = given.cache_prompt
    params.warmup = True
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"ready": True, "url": server.listening_address}) + "\n")
    sys.stdout.flush()
    over.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", default="tiny")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=4, help="slots: requests computed at a time")
    parser.add_argument("--context", type=int, default=4096, help="tokens for each slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache-prompt", action="store_true", help="llama.cpp's default; it makes TTFT too good")
    main(parser.parse_args())

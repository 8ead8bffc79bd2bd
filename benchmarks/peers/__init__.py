"""Other tools' own clients under the same load as ours: how to get each, start it, and read what it reports."""

from benchmarks.peers import (
    aiperf,
    evalscope_perf,
    genai_bench,
    guidellm,
    inference_perf,
    ours,
    sglang_rust,
    vllm_bench,
)

PEERS = [
    ours.PEER,
    sglang_rust.PEER,
    vllm_bench.PEER,
    evalscope_perf.PEER,
    inference_perf.PEER,
    genai_bench.PEER,
    aiperf.PEER,
    guidellm.PEER,
]

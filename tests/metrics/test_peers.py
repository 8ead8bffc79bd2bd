"""Other tools' definitions, against figures worked out by hand."""

from __future__ import annotations

import numpy as np

from metrics.peers import peers
from metrics.slo import SLO
from tests.metrics.rows import ok_rows, ragged, run_of


def example(**info: object) -> object:
    """Two answers of five tokens: due at 0 s and 1 s, sent 10 ms late, first token 100 ms after, then every 20."""
    rows = ok_rows([0.11, 0.11], 0.02, 5)
    rows["scheduled_s"] = [0.0, 1.0]
    rows["sent_s"] = rows["scheduled_s"] + 0.01
    rows["headers_s"] = rows["sent_s"] + 0.004
    rows["first_token_s"] = rows["sent_s"] + 0.1
    rows["last_token_s"] = rows["first_token_s"] + 0.08
    rows["done_s"] = rows["last_token_s"] + 0.02
    us = [100_000, 120_000, 140_000, 160_000, 180_000]
    return peers(run_of(rows, ragged([us, us]), **info), SLO(ttft_s=0.105, tpot_s=0.021))


def test_each_tools_time_per_token() -> None:
    """vLLM 80 ms / 4; AIPerf's ITL the same; GuideLLM's TPOT 180 ms / 5 with the first token in it."""
    found = example()
    assert np.isclose(0.02, found.vllm.tpot_s.median)
    assert np.isclose(0.02, found.aiperf.itl_s.median)
    assert np.isclose(0.036, found.guidellm.tpot_s.median)
    assert np.isclose(0.02, found.guidellm.itl_s.median)


def test_all_peers_count_from_the_send() -> None:
    """100 ms, where we say 110: both requests are good to them and late to us."""
    found = example()
    for figures in (found.vllm, found.aiperf, found.guidellm):
        assert np.isclose(0.1, figures.ttft_s.median)
        assert figures.good[1] == 1.0


def test_vllm_counts_events_and_overlaps_by_the_second() -> None:
    """Ten events in two seconds, five in each; never two requests in one second-bucket."""
    found = example()
    assert 5.0 == found.vllm.peak_tokens_per_s
    assert 1 == found.vllm.peak_concurrent


def test_guidellms_latency_ends_with_the_answer() -> None:
    """200 ms where the last token came after 180."""
    found = example()
    assert np.isclose(0.2, found.guidellm.latency_s.median)
    assert np.isclose(0.18, found.vllm.latency_s.median)


def test_the_role_chunk_matters_on_a_chat_endpoint_only() -> None:
    """There vLLM may see its first token with the headers."""
    assert example(endpoint="/v1/chat/completions").role_chunk
    assert not example(endpoint="/v1/completions").role_chunk
    assert np.isclose(0.004, example().headers_s.median)

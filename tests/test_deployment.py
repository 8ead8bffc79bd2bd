from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.deployment import ARRANGEMENTS, LINKS, Deployment, options_of
from loadtest.errors import ExitCode, UsageError

VALUES: dict[str, st.SearchStrategy[object]] = {
    "instances": st.integers(1, 64),
    "prefill": st.integers(1, 64),
    "decode": st.integers(1, 64),
    "kv_link": st.sampled_from(LINKS),
    "kv_link_gbps": st.floats(1e-3, 1e6),
    "kv_link_latency_us": st.floats(0, 1e6),
    "kv_transfer": st.sampled_from(["serial", "layerwise", "hybrid"]),
    "first_token": st.sampled_from(["prefill", "decode"]),
    "max_num_batched_tokens": st.integers(1, 100_000),
    "max_num_seqs": st.integers(1, 1000),
    "watermark": st.floats(0, 0.99),
    "kv_policy": st.sampled_from(["on_demand", "reserve_output"]),
    "router": st.sampled_from(["jsq", "round_robin", "random"]),
}


@given(st.sampled_from(ARRANGEMENTS), st.data())
def test_the_canonical_text_round_trips(arrangement: str, data: st.DataObject) -> None:
    """Parsing what was printed gives the same deployment and the same text, in whatever order options came."""
    known = [key for key in options_of(arrangement) if key in VALUES]
    keys = data.draw(st.lists(st.sampled_from(known), unique=True))
    text = ",".join([f"emulated:{arrangement}", *(f"{key}={data.draw(VALUES[key])}" for key in keys)])
    deployment = Deployment.parse(text)
    again = Deployment.parse(str(deployment))
    assert deployment == again
    assert str(deployment) == str(again)
    assert hash(deployment) == hash(again)
    assert set(keys) == set(deployment.options)


@pytest.mark.parametrize(
    ("text", "canonical", "gpus", "label"),
    [
        ("emulated:chunked", "emulated:chunked", 8, "chunked"),
        ("emulated:chunked,instances=2,model=demo-8b", "emulated:chunked,model=demo-8b,instances=2", 2, "chunked x2"),
        (" emulated:colocated, tp = 4 ,instances=3", "emulated:colocated,tp=4,instances=3", 12, "colocated x3"),
        ("emulated:disaggregated", "emulated:disaggregated", 16, "disaggregated 1P+1D"),
        (
            "emulated:disaggregated,decode=3,prefill_tp=4,decode_tp=2",
            "emulated:disaggregated,decode=3,prefill_tp=4,decode_tp=2",
            10,
            "disaggregated 1P+3D",
        ),
        ("torch:disaggregated,model=tiny", "torch:disaggregated,model=tiny", 2, "disaggregated 1P+1D"),
        ("http://10.0.0.1:8000/v1/", "http://10.0.0.1:8000/v1", None, "10.0.0.1:8000"),
    ],
)
def test_what_a_text_means(text: str, canonical: str, gpus: int | None, label: str) -> None:
    """Canonical text, GPUs of all pools, short name."""
    deployment = Deployment.parse(text)
    assert canonical == str(deployment)
    assert gpus == deployment.gpus
    assert label == deployment.label


def test_defaults_are_those_of_the_definitions() -> None:
    """Llama2-70B on one instance of 8 H100, 16,384 tokens of context."""
    deployment = Deployment.parse("emulated:chunked")
    assert ("llama2-70b", "h100", 1) == tuple(deployment[key] for key in ("model", "hardware", "instances"))
    assert (16, 0.01, 16384) == tuple(deployment[key] for key in ("block_size", "watermark", "max_model_len"))
    assert [("", 1, 8, "h100", 1)] == [tuple(pool) for pool in deployment.pools]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("chunked", "neither a URL nor a bundled backend"),
        ("emulatd:chunked", "did you mean 'emulated'"),
        ("emulated:chunkd", "did you mean 'chunked'"),
        ("emulated:", "no known arrangement"),
        ("emulated:chunked,instance=2", "no option 'instance'; did you mean 'instances'"),
        ("emulated:chunked,prefill=2", "chunked has no option 'prefill'"),
        ("emulated:disaggregated,instances=2", "disaggregated has no option 'instances'"),
        ("emulated:chunked,instances", "no option 'instances'|key=value"),
        ("emulated:chunked,instances=0", "instances must be a whole number, at least 1, not '0'"),
        ("emulated:chunked,instances=1.5", "a whole number, at least 1, not '1.5'"),
        ("emulated:chunked,instances=2,instances=2", "'instances' is given twice"),
        ("emulated:chunked,watermark=1", "from 0 to below 1, not '1'"),
        ("emulated:chunked,watermark=nan", "from 0 to below 1, not 'nan'"),
        ("emulated:disaggregated,kv_link=ib100", "kv_link must be one of ib200, ib400, nvlink, 100GbE, 25GbE"),
        ("emulated:disaggregated,kv_link_gbps=inf", "a number above 0, not 'inf'"),
        ("emulated:chunked,model=gpt-5", "no emulated model 'gpt-5'"),
        ("emulated:disaggregated,decode_tp=3", "not measured with hardware=h100,tp=3"),
        ("http://", "not a URL of a server"),
        ("http://host:99999", "not a URL of a server"),
        ("http://a b:80", "not a URL of a server"),
        ("", "neither a URL nor a bundled backend"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text: str, sentence: str) -> None:
    """A UsageError that names the option, what it may be, and the nearest thing that exists."""
    with pytest.raises(UsageError, match=sentence) as caught:
        Deployment.parse(text)
    assert ExitCode.USAGE == caught.value.exit_code
    assert "\n" not in caught.value.message

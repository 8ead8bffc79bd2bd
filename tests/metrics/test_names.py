"""Short names tell deployments apart and say no more than that."""

from __future__ import annotations

import pytest

from metrics.names import distinct, shared_options, short_names, without_folders

CHUNKED = "emulated:chunked,model=llama2-70b,tp=8,instances=2"
APART = "emulated:disaggregated,model=llama2-70b,tp=8,prefill=1,decode=1"


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (["chunked", "disaggregated"], [CHUNKED, APART]),
        (["chunked", "chunked max_num_batched_tokens=512"], [CHUNKED, f"{CHUNKED},max_num_batched_tokens=512"]),
        (["chunked tp=4", "chunked tp=8"], ["emulated:chunked,tp=4", "emulated:chunked,tp=8"]),
        (["emulated chunked", "torch chunked"], ["emulated:chunked", "torch:chunked"]),
        (["http://a:8000", "chunked"], ["http://a:8000", CHUNKED]),
        (["base.toml", "cand.toml"], ["base.toml", "cand.toml"]),
        (["chunked", "chunked"], [CHUNKED, CHUNKED]),
        ([], []),
    ],
)
def test_the_arrangement_and_what_differs(names: list[str], texts: list[str]) -> None:
    """A URL or a file stays as it is; equal texts have equal names."""
    assert names == short_names(texts)


def test_what_all_share_is_said_once() -> None:
    """And nothing of a single deployment, or where one is not ours."""
    assert "model=llama2-70b, tp=8" == shared_options([CHUNKED, APART])
    assert "" == shared_options([CHUNKED])
    assert "" == shared_options([CHUNKED, "http://a:8000"])


def test_equal_names_carry_their_place() -> None:
    """Rows of a table must not be mistaken for each other."""
    assert ["a (1)", "b", "a (3)"] == distinct(["a", "b", "a"])


def test_launched_servers_leave_out_what_all_of_them_are_set_to() -> None:
    """What differs stays, and one server alone keeps everything."""
    both = ["vllm-colocated bin=/opt/ chunk=8192", "vllm-chunked bin=/opt/ chunk=256"]
    assert ["vllm-colocated chunk=8192", "vllm-chunked chunk=256"] == short_names(both)
    assert ["vllm-chunked", "vllm-colocated"] == short_names(["vllm-chunked bin=/opt/", "vllm-colocated bin=/opt/"])
    assert ["vllm-chunked bin=/opt/"] == short_names(["vllm-chunked bin=/opt/"])
    assert ["a b=1", "a b=2"] == short_names(["a b=1", "a b=2"])


def test_launch_files_go_by_their_names() -> None:
    """Files of one name in two folders keep the folders; what is no file stays."""
    assert ["whole", "chunks", "http://h:1"] == without_folders(["here/whole.toml", "/there/chunks.toml", "http://h:1"])
    assert ["here/a.toml", "there/a.toml"] == without_folders(["here/a.toml", "there/a.toml"])

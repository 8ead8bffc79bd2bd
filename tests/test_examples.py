"""The examples are what they claim to be: valid YAML of the right kinds, and commands that this version understands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from loadtest.cli.main import PACKAGES, cli

EXAMPLES = Path(__file__).parents[1] / "examples"
KINDS = {
    "Service": ("v1", {"selector", "ports"}),
    "Job": ("batch/v1", {"template", "backoffLimit"}),
    "NetworkPolicy": ("networking.k8s.io/v1", {"podSelector", "policyTypes", "ingress"}),
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def parse(words: list[str]) -> dict[str, Any]:
    """The options of a command line of ours; fails on one that this version does not know."""
    context = click.Context(cli, info_name="goodput")
    command = cli.get_command(context, words[0])
    assert command is not None, words
    return command.make_context(words[0], [str(word) for word in words[1:]]).params


def containers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every Job of the Kubernetes example with its one container."""
    jobs = [document for document in documents("distributed/kubernetes.yaml") if document["kind"] == "Job"]
    return [(job, job["spec"]["template"]["spec"]["containers"][0]) for job in jobs]


@pytest.mark.parametrize("document", documents("distributed/kubernetes.yaml"), ids=lambda d: f"{d['kind']}")
def test_kubernetes_objects_have_what_their_kind_needs(document: dict[str, Any]) -> None:
    """apiVersion by kind, a name, and a spec with the fields that the API server insists on."""
    version, needed = KINDS[document["kind"]]
    assert version == document["apiVersion"]
    assert document["metadata"]["name"]
    assert needed <= document["spec"].keys()
    if document["kind"] == "Job":
        pod = document["spec"]["template"]
        assert "Never" == pod["spec"]["restartPolicy"]
        assert 0 == document["spec"]["backoffLimit"]
        assert {"name", "image", "args", "resources"} <= pod["spec"]["containers"][0].keys()


def test_the_cluster_expects_as_many_workers_as_it_starts() -> None:
    """Master and workers agree on number, address and port, and the labels lead to the right pods."""
    (master, run), (workers, worker) = containers()
    asked = parse(run["args"])
    assert workers["spec"]["parallelism"] == workers["spec"]["completions"] == asked["expect_workers"]
    joined = parse(worker["args"])
    (service,) = [d for d in documents("distributed/kubernetes.yaml") if d["kind"] == "Service"]
    assert service["metadata"]["name"] == joined["master_host"]
    assert joined["master_port"] == service["spec"]["ports"][0]["port"] == run["ports"][0]["containerPort"]
    assert service["spec"]["selector"] == master["spec"]["template"]["metadata"]["labels"]
    assert (None, 5557) == (asked["master_bind"], joined["master_port"])  # with a token: all addresses, that port
    mounts = [part["spec"]["template"]["spec"] for part in (master, workers)]
    assert all({"name": "token", "secret": {"secretName": "goodput-token"}} in spec["volumes"] for spec in mounts)
    assert asked["token_file"] == joined["token_file"]


def test_the_compose_file_starts_a_whole_run() -> None:
    """Services, their commands, and as many workers as the master expects."""
    (compose,) = documents("distributed/compose.yaml")
    services = compose["services"]
    assert {"server", "master", "worker"} == services.keys()
    asked = parse(services["master"]["command"])
    assert asked["expect_workers"] == services["worker"]["deploy"]["replicas"]
    assert "master" == parse(services["worker"]["command"])["master_host"]
    assert asked["target"] == f"http://server:{parse(services['server']['command'])['port']}"
    assert asked["token_file"] == parse(services["worker"]["command"])["token_file"]
    assert {"server": {"condition": "service_healthy"}} == services["master"]["depends_on"]
    assert f":{parse(services['server']['command'])['port']}/health" in services["server"]["healthcheck"]["test"][-1]
    assert all("ports" not in service for service in services.values())  # nothing is published


def test_the_image_runs_our_command_as_nobody_special() -> None:
    """The Dockerfile builds from the project's root and does not run as root."""
    lines = (EXAMPLES / "distributed" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    assert "FROM" == words[0][0]
    assert ["USER", "goodput"] in words
    assert ["ENTRYPOINT", '["goodput"]'] == words[-1]
    # What is copied is what setup.cfg needs: never the environment, the history or the runs of whoever builds it.
    copied = {word for line in words if line[0] == "COPY" for word in line[1:-1]}
    assert {*PACKAGES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE"} == copied
    # Compose's volume would belong to root, and the run could not be written, without the folder.
    volumes = documents("distributed/compose.yaml")[0]["services"]["master"]["volumes"]
    assert all(["WORKDIR", volume.partition(":")[2].rpartition("/")[0]] in words for volume in volumes)
    assert ["RUN", "mkdir", *(volume.rpartition("/")[2] for volume in volumes)] in words

"""The objects are what Kubernetes and the operators accept, and say what was asked for."""

import json
import re
from typing import Any

import kubernetes_validate
import pytest
from jsonschema import Draft202012Validator

from plink.errors import InputError, UsageError
from plink.model.hosts import Host, Hosts
from runners.kubernetes.objects import MPI_PROGRAM, POD_PROGRAM
from runners.kubernetes.settings import KINDS, PodSettings, parse_resources
from tests.runners.kubernetes.kubeflow import JOB_SET, MPI_JOB, PYTORCH_JOB, TRAIN_JOB, TRAINING_RUNTIME
from tests.runners.kubernetes.written import HOSTS, job, job_set, templates, text, written

# The oldest that is still run by providers and the newest that the package knows; in between fields were only added.
VERSIONS = ("1.28", kubernetes_validate.latest_version())
FULL = job("train.py", "--epochs", "3", env={"A": "b"}, timeout_s=90.5)
REQUESTED_RESOURCES = {"namespace": "team", "resources": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8"}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_kubernetes_accepts_its_own_kinds_and_every_pod_template(kind: str, version: str) -> None:
    documents = written(FULL, kind=kind, **REQUESTED_RESOURCES)
    own = [document for document in documents.values() if document["apiVersion"] in ("v1", "batch/v1")]
    assert len(own) == (3 if kind == "job" else 1)
    for name, template in templates(documents).items():
        own.append(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name.lower()}, "template": template}
        )
    if kind in ("jobset", "trainjob"):
        (replicated,) = job_set(documents)["replicatedJobs"]
        own.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}} | replicated["template"])
    for document in own:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("kind", "schemas"),
    [
        ("mpijob", {"MPIJob": MPI_JOB}),
        ("pytorchjob", {"PyTorchJob": PYTORCH_JOB}),
        ("jobset", {"JobSet": JOB_SET}),
        ("trainjob", {"TrainingRuntime": TRAINING_RUNTIME, "TrainJob": TRAIN_JOB}),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_objects_match_the_schemas_of_operators(kind: str, schemas: dict[str, Any], count: int) -> None:
    config, *documents = written(FULL, Hosts(HOSTS.members[:count]), kind=kind, **REQUESTED_RESOURCES).values()
    assert config["kind"] == "ConfigMap"
    for document, (name, schema) in zip(documents, schemas.items(), strict=True):
        assert document["kind"] == name
        Draft202012Validator(schema).validate(document)
        document["spec"]["surprise"] = 1
        assert not Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_pods_of_a_job_set_meet_where_its_service_names_them(kind: str) -> None:
    documents = written(FULL, kind=kind, **REQUESTED_RESOURCES)
    spec, name = job_set(documents), documents["ConfigMap"]["metadata"]["labels"]["plink-job"]
    (replicated,) = spec["replicatedJobs"]
    indexed = replicated["template"]["spec"]
    assert (indexed["completionMode"], indexed["completions"], indexed["parallelism"]) == ("Indexed", 3, 3)
    assert (indexed["backoffLimit"], indexed["activeDeadlineSeconds"]) == (0, 91)
    assert spec["failurePolicy"]["maxRestarts"] == 0
    settings = json.loads(documents["ConfigMap"]["data"]["settings.json"])["settings"]
    assert settings["bootstrap"]["host"] == f"{name}-{replicated['name']}-0-0.{spec['network']['subdomain']}"
    assert {document["metadata"]["namespace"] for document in documents.values()} == {"team"}
    if kind == "trainjob":
        runtime, trained = documents["TrainingRuntime"], documents["TrainJob"]["spec"]
        assert trained["runtimeRef"]["kind"] == "TrainingRuntime"
        assert trained["runtimeRef"]["name"] == runtime["metadata"]["name"]
        assert trained["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"] == 3
        label = "trainer.kubeflow.org/trainjob-ancestor-step"
        assert replicated["template"]["metadata"]["labels"][label] == "trainer"
        assert [c["name"] for c in indexed["template"]["spec"]["containers"]] == ["node"]


def test_a_broken_object_is_refused_by_the_schemas() -> None:
    """So that the tests above can fail at all."""
    document = written(FULL)["Job"]
    document["spec"]["template"]["spec"]["subDomain"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


def test_an_indexed_job_has_a_pod_a_node_and_tries_nothing_twice() -> None:
    documents = written(FULL, **REQUESTED_RESOURCES)
    spec = documents["Job"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 91)
    name = documents["Job"]["metadata"]["name"]
    service = documents["Service"]
    assert service["metadata"]["name"] == spec["template"]["spec"]["subdomain"] == name
    assert service["spec"]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    settings = json.loads(documents["ConfigMap"]["data"]["settings.json"])["settings"]
    assert settings["bootstrap"]["host"] == f"{name}-0.{name}"
    assert {document["metadata"]["namespace"] for document in documents.values()} == {"team"}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_go_to_the_nodes_of_the_order_and_never_two_to_one(kind: str) -> None:
    documents = written(FULL, kind=kind)
    nodes = {
        "mpijob": {"Worker": HOSTS.names, "Launcher": []},
        "pytorchjob": {"Master": HOSTS.names[:1], "Worker": HOSTS.names[1:]},
    }.get(kind, {"Job": HOSTS.names})
    for who, template in templates(documents).items():
        affinity = template["spec"].get("affinity")
        if not nodes[who]:
            assert affinity is None
            continue
        request = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        fields = [field for term in request for field in term["matchFields"]]
        assert [(field["key"], field["operator"]) for field in fields] == [("metadata.name", "In")] * len(nodes[who])
        assert [field["values"] for field in fields] == [[node] for node in nodes[who]]
        (apart,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for other, pods in templates(documents).items():
            remaining = apart["labelSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
            assert remaining == bool(nodes[other])  # the launcher may share a node with a worker


def test_resources_are_requests_and_all_but_the_processor_limits() -> None:
    (container,) = templates(written(FULL, **REQUESTED_RESOURCES))["Job"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "8"},
    }
    launcher = templates(written(FULL, kind="mpijob", **REQUESTED_RESOURCES))["Launcher"]
    assert "resources" not in launcher["spec"]["containers"][0]


def test_resources_are_read() -> None:
    assert parse_resources(["cpu=500m,memory=8Gi", "rdma/hca=1, ephemeral-storage=1e9"]) == {
        "cpu": "500m", "memory": "8Gi", "rdma/hca": "1", "ephemeral-storage": "1e9",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (["gpu=8"], "--resources gpu=8: write"),
        (["cpu=four"], "four is no quantity of cpu"),
        (["nvidia.com/gpu=0.5"], "0.5 is no quantity of nvidia.com/gpu"),
        (["cpu=1", "cpu=2"], "cpu occurs twice"),
        (["memory=8GB"], "8GB is no quantity"),
    ],
)
def test_resources_that_are_none(resources: list[str], expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        parse_resources(resources)


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("job", "train.py"),
        ("mpijob", "/opt/My_Tool"),
        ("pytorchjob", "./3d.py"),
        ("job", "ü"),
        ("mpijob", "x" * 200),
        ("jobset", "train.py"),
        ("trainjob", "x" * 200),
    ],
)
def test_a_job_is_named_after_its_program(kind: str, program: str) -> None:
    hosts = Hosts(tuple(Host(f"n{i}", f"n{i}") for i in range(101)))
    *_, document = written(job(program), hosts, kind=kind).values()
    name = document["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert name.endswith("1a2b3c4d")
    longest = {"job": "-100", "jobset": "-node-0-100-abcde", "trainjob": "-node-0-100-abcde"}.get(kind, "-worker-100")
    assert len(name) + len(longest) <= 63
    if program == "train.py":
        assert name == "train-1a2b3c4d"


def test_a_name_that_pods_cannot_have_is_refused() -> None:
    for name in ("Train", "9lives", "a_b", "a-", "a.b", "x" * 62):
        with pytest.raises(UsageError, match=f"--job-name {name}: "):
            text(FULL, name=name)


def test_a_host_that_can_be_no_node_is_refused() -> None:
    for name in ("Node", "a_b", "fe80::1", "a..b", "a" * 250 + ".b" * 10):
        with pytest.raises((UsageError, InputError), match=r"cannot be a (node's|host) name"):
            text(FULL, Hosts((Host(name, "10.0.0.1"),)))


def test_too_much_for_an_object_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the Job of this job takes [0-9,]+ bytes"):
        text(job("train.py", "x" * 1_500_000))
    with pytest.raises(UsageError, match="the ConfigMap of this job"):
        text(job("train.py", env={"A": "x" * 1_000_000}))


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        text(job("train.py", "\udcff"))


def test_settings_are_refused_at_once() -> None:
    for settings, reason in (
        ({"image": ""}, "--image"),
        ({"image": "a b"}, "--image"),
        ({"image": "x", "kind": "pod"}, "--kind pod: choose one of job, jobset, trainjob, mpijob, pytorchjob"),
        ({"image": "x", "namespace": "A"}, "--namespace A"),
    ):
        with pytest.raises(UsageError, match=reason):
            PodSettings(**settings)


def test_the_program_in_the_config_map_is_for_people_to_read() -> None:
    result = text(FULL)
    assert "  runners.kubernetes.inside.pod.py: |\n" in result
    assert '    """A pod of ranks: finds its ranks' in result
    assert written(FULL)["ConfigMap"]["immutable"] is True


@pytest.mark.parametrize("program", [POD_PROGRAM, MPI_PROGRAM])
def test_every_import_of_the_pods_program_is_sent_or_in_the_standard_library(program: Any, tmp_path: Any) -> None:
    import subprocess
    import sys

    for name, source in program.files({}).items():
        (tmp_path / name).write_text(source)
    start = (tmp_path / "start.py").read_text().rpartition("sys.modules[bundle")[0] + "print('made')\n"
    (tmp_path / "start.py").write_text(start)
    words = [sys.executable, "-I", "-S", str(tmp_path / "start.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")

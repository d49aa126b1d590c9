"""Objects as they are written, for tests."""

from pathlib import Path
from typing import Any

import yaml

from plink.model.hosts import Host, Hosts
from runners.job.runner import Job, RunContext, RunObserver
from runners.kubernetes.objects import ObjectWriter
from runners.kubernetes.settings import PodSettings

HOSTS = Hosts((Host("node-c", "10.0.0.3"), Host("node-a", "10.0.0.1", slots=2), Host("node-b.example", "10.0.0.2")))


def job(*words: str, **more: Any) -> Job:
    """A job in whatever folder the image has."""
    return Job(words[0], words[1:], (".",), ("python3",), **more)


def watch(run_id: str = "1a2b3c4d", folder: Path | None = None) -> RunContext:
    """Nobody watches."""
    return RunContext(RunObserver(), lambda: 0.0, folder, run_id=run_id)


def text(words: Job, hosts: Hosts = HOSTS, **settings: Any) -> str:
    """What is written."""
    writer = ObjectWriter(PodSettings(**{"image": "registry/image:1", **settings}))
    (result,) = writer.dry_run(words, hosts, watch()).files.values()
    return result


def written(words: Job, hosts: Hosts = HOSTS, **settings: Any) -> dict[str, dict[str, Any]]:
    """The objects by kind, as a cluster reads them."""
    return {document["kind"]: document for document in yaml.safe_load_all(text(words, hosts, **settings))}


def job_set(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Spec of the JobSet, or of that in a TrainJob's runtime."""
    if "JobSet" in documents:
        return documents["JobSet"]["spec"]
    return documents["TrainingRuntime"]["spec"]["template"]["spec"]


def templates(documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod templates by who they are for: ``Job``, or the replicas' names."""
    if "JobSet" in documents or "TrainingRuntime" in documents:
        return {"Job": job_set(documents)["replicatedJobs"][0]["template"]["spec"]["template"]}
    if "Job" in documents:
        return {"Job": documents["Job"]["spec"]["template"]}
    spec = next(document["spec"] for kind, document in documents.items() if kind in ("MPIJob", "PyTorchJob"))
    replicas = spec.get("mpiReplicaSpecs") or spec["pytorchReplicaSpecs"]
    return {name: replica["template"] for name, replica in replicas.items()}

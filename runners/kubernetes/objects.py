"""Kubernetes objects of each kind of job, as `plink manifests` writes them. A failed pod fails the job, which ends the
others; there are no retries.

Checked by schema only: Job and Service by Kubernetes' own of several versions, the others by what their operators'
sources read (mpi-operator, master of July 2026; training-operator 1.9; JobSet and Kubeflow Trainer, August 2026).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from plink.errors import UsageError
from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.hosts import Hosts
from plink.transport.program import START, AgentProgram
from runners.hostfiles import check_node_names
from runners.job.runner import Job, RunContext
from runners.kubernetes.inside.ranks import NODE, POD
from runners.kubernetes.settings import JOB, JOB_SET, MPI_JOB, PYTORCH_JOB, TRAIN_JOB, PodSettings

# Text in every version of YAML: no number, date, yes or no.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*([./-][A-Za-z0-9]+)*")
_YAML_KEYWORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


LABEL, ROLE = "plink-job", "plink-role"
RANKS = "ranks"
FOLDER = "/etc/plink"  # where the ConfigMap is
SHARED = "/dev/shm"
PORT = 29399  # of the bootstrap rendezvous; one below torchrun's, which a program may use
_MODULES = (
    "plink.transport.addresses",
    "plink.transport.command_output",
    "plink.transport.hello_server",
    "plink.transport.start_barrier",
    "plink.transport.supervisor",
    "runners.job.execution_environment",
    "runners.kubernetes.inside.rendezvous",
    "runners.kubernetes.inside.ranks",
)
POD_PROGRAM = AgentProgram((*_MODULES, "runners.kubernetes.inside.pod"))
MPI_PROGRAM = AgentProgram((*_MODULES, "runners.kubernetes.inside.mpi"))
# Nodes may have to be started and images of many gigabytes be fetched before the last pod is there.
BOOTSTRAP_TIMEOUT_S = 1800.0
_NODE = "node"
_TRAINER_LABEL = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
_MAX_CONFIG_BYTES = 1_000_000  # a ConfigMap's limit is 1 MiB
_MAX_OBJECT_BYTES = 1_400_000  # etcd takes 1.5 MiB in a request
Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as kubectl reads it."""


def escaped(text: str) -> str:
    """Return a text as it has to be in ``command``, ``args`` and ``env``.

    Kubernetes reads ``$(NAME)`` as a variable there, and ``$$`` as one ``$`` (reference of Container, "args").
    """
    return text.replace("$", "$$")


def as_yaml(objects: Sequence[Manifest]) -> str:
    """Return one YAML document an object."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Dumper that quotes what might be read as a number, a date, yes or no; texts of several lines are literal."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = _PLAIN.fullmatch(value) and value.lower() not in _YAML_KEYWORDS
        style = "|" if value.endswith("\n") and value.count("\n") > 1 else None if plain else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return yaml.dump_all(
        objects, Dumper=Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=1 << 20
    )


def as_json(objects: Sequence[Manifest]) -> str:
    """Return one ``List``, as ``kubectl get -o json`` prints it and ``kubectl apply`` takes it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2) + "\n"


def metadata(name: str, settings: PodSettings) -> Manifest:
    """Return the metadata of an object of the job."""
    namespace = {"namespace": settings.namespace} if settings.namespace else {}
    return {"name": name, **namespace, "labels": {LABEL: name}}


def _object(api_version: str, kind: str, name: str, settings: PodSettings, spec: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata(name, settings), "spec": spec}


def config_map(name: str, settings: PodSettings, files: Mapping[str, str]) -> Manifest:
    """Return the pods' program and the order, as files that cannot change while the job runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata(name, settings), "name": config_name(name)},
        "immutable": True,
        "data": dict(files),
    }


def config_name(name: str) -> str:
    """Return the name of the job's ConfigMap."""
    return f"{name}-plink"


def template(
    name: str, settings: PodSettings, container: str, nodes: Sequence[str], arguments: Sequence[str], **env: str
) -> Manifest:
    """Return a pod that runs ``arguments`` by plink's program on one of ``nodes``, and not two of a job on one node.

    :param nodes: empty: anywhere.
    """
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        **({"affinity": _affinity(name, nodes)} if nodes else {}),
        "containers": [
            {
                "name": container,
                "image": settings.image,
                # It has no "$".
                "command": ["python3", f"{FOLDER}/{START}"],
                "args": [escaped(argument) for argument in arguments],
                "env": [
                    _field_reference(NODE, "spec.nodeName"),
                    _field_reference(POD, "metadata.name"),
                    *({"name": key, "value": value} for key, value in env.items()),
                ],
                **({"resources": _resources(settings.resources)} if settings.resources and nodes else {}),
                "volumeMounts": [
                    {"name": "plink", "mountPath": FOLDER, "readOnly": True},
                    {"name": "shared-memory", "mountPath": SHARED},
                ],
            }
        ],
        "volumes": [
            {"name": "plink", "configMap": {"name": config_name(name)}},
            # A container has 64 MiB of it otherwise, too little for NCCL and for PyTorch's data loaders.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {"metadata": {"labels": {LABEL: name, ROLE: RANKS if nodes else container}}, "spec": spec}


def _affinity(name: str, nodes: Sequence[str]) -> Manifest:
    """Return the affinity to nodes by their names, as the DaemonSet controller has it.

    The label ``kubernetes.io/hostname`` is another name on some clouds. A field takes one value, so there is a term a
    node, any of which may hold.
    """
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {LABEL: name, ROLE: RANKS}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    }


def _field_reference(variable: str, path: str) -> Manifest:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(requests: Mapping[str, str]) -> Manifest:
    """What is requests for is also the limit, but not of the processor: that would only throttle the ranks."""
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"}
    return {"requests": dict(requests), **({"limits": limits} if limits else {})}


def objects(name: str, job: Job, hosts: Hosts, settings: PodSettings, run_id: str) -> list[Manifest]:
    """Return the objects for ``kubectl apply``.

    :raises UsageError: for a job that this kind cannot express.
    """
    make_objects = {
        JOB: _indexed_job,
        JOB_SET: _job_set,
        TRAIN_JOB: _train_job,
        MPI_JOB: _mpi_job,
        PYTORCH_JOB: _pytorch_job,
    }[settings.kind]
    program_settings: dict[str, object] = {
        "bootstrap": {
            "job": run_id,
            "port": PORT,
            "wait_s": BOOTSTRAP_TIMEOUT_S,
            "allow_version_mismatch": job.allow_version_mismatch,
        },
        "nodes": hosts.names,
        "slots": [host.slots for host in hosts],
        "request": {
            "workdirs": list(job.workdirs),
            "pythons": list(job.pythons),
            "interface": job.interface,
            "port": job.master_port,
        },
        "env": job.env,
    }
    try:
        "\0".join([job.program, *job.args, *job.env, *job.env.values()]).encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the program's arguments or --env are not UTF-8, which Kubernetes' objects have to be"
        ) from None
    documents = make_objects(name, job, hosts, settings, program_settings)
    for document in documents:
        limit = _MAX_CONFIG_BYTES if document["kind"] == "ConfigMap" else _MAX_OBJECT_BYTES
        size = len(_json(document))
        if size > limit:
            raise UsageError(
                f"the {document['kind']} of this job takes {size:,} bytes, at most {limit:,} fit: use fewer hosts, or "
                "shorter arguments and --env (`--runner ssh` has no such limit)"
            )
    return documents


def _indexed_job(name: str, job: Job, hosts: Hosts, settings: PodSettings, program_settings: Any) -> list[Manifest]:
    # Headless: for the pods' names only, which are needed before any of them is ready.
    headless = {"clusterIP": "None", "selector": {LABEL: name}, "publishNotReadyAddresses": True}
    service = _object("v1", "Service", name, settings, headless)
    pods = template(name, settings, "ranks", hosts.names, [job.program, *job.args])
    pods["spec"] = {"subdomain": name, **pods["spec"]}
    document = _object("batch/v1", "Job", name, settings, _indexed_spec(job, hosts, pods))
    files = _files(POD_PROGRAM, program_settings, f"{name}-0.{name}")
    return [config_map(name, settings, files), service, document]


def _indexed_spec(job: Job, hosts: Hosts, pods: Manifest) -> Manifest:
    return {
        "completionMode": "Indexed",
        "completions": len(hosts),
        "parallelism": len(hosts),
        "backoffLimit": 0,
        **_deadline(job),
        "template": pods,
    }


def _job_set(name: str, job: Job, hosts: Hosts, settings: PodSettings, program_settings: Any) -> list[Manifest]:
    spec = _job_set_spec(name, job, hosts, settings)
    document = _object("jobset.x-k8s.io/v1alpha2", "JobSet", name, settings, spec)
    return [_job_set_config(name, settings, program_settings), document]


def _train_job(name: str, job: Job, hosts: Hosts, settings: PodSettings, program_settings: Any) -> list[Manifest]:
    """A runtime of the job's own has its JobSet: a cluster's runtimes know neither its nodes nor its program."""
    version = "trainer.kubeflow.org/v1alpha1"
    runtime = {
        "mlPolicy": {"numNodes": len(hosts)},
        "template": {"spec": _job_set_spec(name, job, hosts, settings, _TRAINER_LABEL)},
    }
    spec = {
        "runtimeRef": {"apiGroup": version.split("/")[0], "kind": "TrainingRuntime", "name": name},
        "trainer": {"numNodes": len(hosts)},
    }
    return [
        _job_set_config(name, settings, program_settings),
        _object(version, "TrainingRuntime", name, settings, runtime),
        _object(version, "TrainJob", name, settings, spec),
    ]


def _job_set_config(name: str, settings: PodSettings, program_settings: Any) -> Manifest:
    return config_map(name, settings, _files(POD_PROGRAM, program_settings, f"{name}-{_NODE}-0-0.{name}"))


def _job_set_spec(
    name: str, job: Job, hosts: Hosts, settings: PodSettings, labels: dict[str, str] | None = None
) -> Manifest:
    """Return a JobSet of one Indexed Job, called as Kubeflow's trainer wants it; JobSet makes the headless Service."""
    pods = template(name, settings, _NODE, hosts.names, [job.program, *job.args])
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            {
                "name": _NODE,
                "replicas": 1,
                "template": {
                    **({"metadata": {"labels": labels}} if labels else {}),
                    "spec": _indexed_spec(job, hosts, pods),
                },
            }
        ],
    }


def _pytorch_job(name: str, job: Job, hosts: Hosts, settings: PodSettings, program_settings: Any) -> list[Manifest]:
    arguments = [job.program, *job.args]
    first, others = hosts.names[:1], hosts.names[1:]

    def replicas(nodes: list[str], listens: str) -> Manifest:
        pods = template(name, settings, "pytorch", nodes, arguments, PLINK_RENDEZVOUS_HOST=listens)
        del pods["spec"]["restartPolicy"]  # the operator sets it from the replica's
        return {"replicas": len(nodes), "restartPolicy": "Never", "template": pods}

    slots = {host.slots for host in hosts}
    spec = {
        # The pods set the ranks' variables by themselves; this is for those who read the object.
        "nprocPerNode": str(slots.pop()) if len(slots) == 1 else "1",
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0, **_deadline(job)},
        "pytorchReplicaSpecs": {
            "Master": replicas(first, "yes"),
            **({"Worker": replicas(others, "no")} if others else {}),
        },
    }
    files = _files(POD_PROGRAM, program_settings, f"{name}-master-0")
    return [config_map(name, settings, files), _object("kubeflow.org/v1", "PyTorchJob", name, settings, spec)]


def _mpi_job(name: str, job: Job, hosts: Hosts, settings: PodSettings, program_settings: Any) -> list[Manifest]:
    arguments = [job.program, *job.args]

    def replica(count: int, role: str, nodes: list[str]) -> Manifest:
        pods = template(name, settings, role, nodes, [role, *arguments])
        del pods["spec"]["restartPolicy"]  # the operator sets it from the replica's
        return {"replicas": count, "restartPolicy": "Never", "template": pods}

    slots = max(host.slots for host in hosts)
    spec = {
        "slotsPerWorker": slots,  # for the operator's own host file, of which plink uses the names only
        "mpiImplementation": "OpenMPI",
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0, **_deadline(job)},
        "mpiReplicaSpecs": {
            "Launcher": replica(1, "launcher", []),
            "Worker": replica(len(hosts), "worker", hosts.names),
        },
    }
    worker = {"folder": SHARED, "sshd": ["/usr/sbin/sshd", "-De"]}
    files = _files(MPI_PROGRAM, {**program_settings, **worker}, f"{name}-launcher.{name}")
    return [config_map(name, settings, files), _object("kubeflow.org/v2beta1", "MPIJob", name, settings, spec)]


def _files(program: AgentProgram, program_settings: Any, host: str) -> dict[str, str]:
    """Return the program of pods whose rendezvous is at the pod of this name."""
    return program.files({**program_settings, "bootstrap": {**program_settings["bootstrap"], "host": host}})


def _deadline(job: Job) -> dict[str, int]:
    return {} if job.timeout_s is None else {"activeDeadlineSeconds": max(1, math.ceil(job.timeout_s))}


def _json(document: Manifest) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


class ObjectWriter:
    """See :class:`runners.job.runner.Writer`."""

    name = "kubernetes"

    def __init__(self, settings: PodSettings, json: bool = False) -> None:
        """Write YAML, or with ``json`` one List."""
        self._settings, self._json = settings, json

    def dry_run(self, job: Job, hosts: Hosts, context: RunContext) -> DryRun:
        """Return the objects in one file, and the command that starts them."""
        check_node_names(hosts, "--hosts")
        name = self._settings.named(job.program, context.run_id, hosts)
        documents = objects(name, job, hosts, self._settings, context.run_id)
        file, text = (f"{name}.json", as_json(documents)) if self._json else (f"{name}.yaml", as_yaml(documents))
        return DryRun(self.name, (LaunchCommand(("kubectl", "apply", "-f", file)),), {file: text})

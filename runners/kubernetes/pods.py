"""The template that a job's pods share, and the ConfigMap with what runs in them."""

from collections.abc import Mapping, Sequence
from typing import Any

from plink.remote.program import START
from runners.kubernetes.inside.assignment import NODE, POD
from runners.kubernetes.settings import PodSettings
from runners.kubernetes.text import escaped

LABEL, ROLE = "plink-job", "plink-role"
RANKS = "ranks"
FOLDER = "/etc/plink"  # where the ConfigMap is
SHARED = "/dev/shm"
PORT = 29399  # of the meeting; one below torchrun's, so that a program may have that


def metadata(name: str, settings: PodSettings) -> dict[str, Any]:
    """Of an object of the job."""
    namespace = {"namespace": settings.namespace} if settings.namespace else {}
    return {"name": name, **namespace, "labels": {LABEL: name}}


def config_map(name: str, settings: PodSettings, files: Mapping[str, str]) -> dict[str, Any]:
    """The program of the pods and the order, as files. Nobody can change them while the job runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata(name, settings), "name": config_name(name)},
        "immutable": True,
        "data": dict(files),
    }


def config_name(name: str) -> str:
    """Of the job's ConfigMap."""
    return f"{name}-plink"


def template(
    name: str, settings: PodSettings, container: str, nodes: Sequence[str], words: Sequence[str], **env: str
) -> dict[str, Any]:
    """A pod that runs ``words`` with our program, on any of ``nodes``, on none that has another pod of this job.

    :param nodes: empty: anywhere.
    """
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        **({"affinity": _affinity(name, nodes)} if nodes else {}),
        "containers": [
            {
                "name": container,
                "image": settings.image,
                # The start of it is ours and free of "$".
                "command": ["python3", f"{FOLDER}/{START}"],
                "args": [escaped(word) for word in words],
                "env": [
                    _told(NODE, "spec.nodeName"),
                    _told(POD, "metadata.name"),
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


def _affinity(name: str, nodes: Sequence[str]) -> dict[str, Any]:
    """By the nodes' names, as the DaemonSet controller does it: the label ``kubernetes.io/hostname`` is another name on
    some clouds. A field takes one value, so there is a term a node, any of which may hold."""
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
                {
                    "labelSelector": {"matchLabels": {LABEL: name, ROLE: RANKS}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        },
    }


def _told(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(asked: Mapping[str, str]) -> dict[str, Any]:
    """What is asked for is also the limit, but not of the processor: that would only throttle the ranks."""
    limits = {name: quantity for name, quantity in asked.items() if name != "cpu"}
    return {"requests": dict(asked), **({"limits": limits} if limits else {})}

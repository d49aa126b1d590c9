"""Template that a job's pods share, and the ConfigMap with the program that runs in them."""

from collections.abc import Mapping, Sequence
from typing import Any

from plink.transport.program import START
from runners.kubernetes.inside.assignment import NODE, POD
from runners.kubernetes.settings import PodSettings
from runners.kubernetes.text import escaped

LABEL, ROLE = "plink-job", "plink-role"
RANKS = "ranks"
FOLDER = "/etc/plink"  # where the ConfigMap is
SHARED = "/dev/shm"
PORT = 29399  # of the bootstrap rendezvous; one below torchrun's, which a program may use


def metadata(name: str, settings: PodSettings) -> dict[str, Any]:
    """Return the metadata of an object of the job."""
    namespace = {"namespace": settings.namespace} if settings.namespace else {}
    return {"name": name, **namespace, "labels": {LABEL: name}}


def config_map(name: str, settings: PodSettings, files: Mapping[str, str]) -> dict[str, Any]:
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
) -> dict[str, Any]:
    """Return a pod that runs ``arguments`` by plink's program on one of ``nodes``, and not two of a job on one node.

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


def _affinity(name: str, nodes: Sequence[str]) -> dict[str, Any]:
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
                {
                    "labelSelector": {"matchLabels": {LABEL: name, ROLE: RANKS}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        },
    }


def _field_reference(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(requests: Mapping[str, str]) -> dict[str, Any]:
    """What is requests for is also the limit, but not of the processor: that would only throttle the ranks."""
    limits = {name: quantity for name, quantity in requests.items() if name != "cpu"}
    return {"requests": dict(requests), **({"limits": limits} if limits else {})}

"""JSON Schemas of what we write of Kubeflow's kinds.

Fields and types are those of the operators' CRDs (mpi-operator of July 2026, v2beta1; training-operator 1.9, v1), with
nothing beside them allowed, and, beyond the CRDs, what the operators refuse when they read an object. Pod templates are
left to Kubernetes' own schema.
"""

from typing import Any


def _strict(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_INTEGER = {"type": "integer", "minimum": 0}
_RUN_POLICY = _strict(
    ["cleanPodPolicy"],
    cleanPodPolicy={"enum": ["None", "Running", "All"]},
    ttlSecondsAfterFinished=_INTEGER,
    activeDeadlineSeconds={"type": "integer", "minimum": 1},
    backoffLimit=_INTEGER,
    suspend={"type": "boolean"},
    managedBy={"type": "string"},
)


def _replicas(count: dict[str, Any], container: str | None = None) -> dict[str, Any]:
    containers: dict[str, Any] = {"type": "array", "minItems": 1}
    if container is not None:
        containers["contains"] = {"properties": {"name": {"const": container}}, "required": ["name", "image"]}
    spec = {"type": "object", "properties": {"containers": containers}, "required": ["containers"]}
    return _strict(
        ["replicas", "restartPolicy", "template"],
        replicas={"type": "integer", **count},
        restartPolicy={"enum": ["Never", "OnFailure"]},
        template={"type": "object", "properties": {"spec": spec}, "required": ["spec"]},
    )


def _object(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    # IsDNS1035Label, of the longest name that a pod will have
    metadata = {"type": "object", "properties": {"name": {"pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}}}
    return _strict(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


MPI_JOB = _object(
    "kubeflow.org/v2beta1",
    "MPIJob",
    _strict(
        ["mpiReplicaSpecs", "slotsPerWorker"],
        slotsPerWorker=_INTEGER,
        runLauncherAsWorker={"type": "boolean"},
        sshAuthMountPath={"type": "string", "minLength": 1},
        launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
        runPolicy=_RUN_POLICY,
        mpiReplicaSpecs=_strict(["Launcher"], Launcher=_replicas({"const": 1}), Worker=_replicas({"minimum": 1})),
    ),
)

PYTORCH_JOB = _object(
    "kubeflow.org/v1",
    "PyTorchJob",
    _strict(
        ["pytorchReplicaSpecs"],
        nprocPerNode={"type": "string"},
        runPolicy=_RUN_POLICY,
        pytorchReplicaSpecs=_strict(
            ["Master"],
            Master=_replicas({"const": 1}, "pytorch"),
            Worker=_replicas({"minimum": 1}, "pytorch"),
        ),
    ),
)

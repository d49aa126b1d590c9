"""JSON Schemas of what we write of Kubeflow's kinds and of JobSet.

Fields and types are those of the operators' CRDs (mpi-operator of July 2026, v2beta1; training-operator 1.9, v1; JobSet
v1alpha2 and Kubeflow Trainer v1alpha1 of August 2026), with nothing beside them allowed, and, beyond the CRDs, what the
operators refuse when they read an object. Pod templates are left to Kubernetes' own schema.
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

_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
_JOB_SET_SPEC = _strict(
    ["replicatedJobs"],
    coordinator=_strict(["replicatedJob"], replicatedJob={"type": "string"}, jobIndex=_INTEGER, podIndex=_INTEGER),
    failurePolicy=_strict(
        [],
        maxRestarts=_INTEGER,
        restartStrategy={"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
        rules={"type": "array"},
    ),
    managedBy={"type": "string"},
    network=_strict(
        [],
        enableDNSHostnames={"type": "boolean"},
        publishNotReadyAddresses={"type": "boolean"},
        subdomain={"pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
    ),
    replicatedJobs={
        "type": "array",
        "items": _strict(
            ["name", "template"],
            name={"type": "string"},
            groupName={"type": "string"},
            dependsOn={"type": "array"},
            replicas={"const": 1},  # the trainer takes no other number
            template=_strict(["spec"], metadata=_strict([], labels=_LABELS), spec={"type": "object"}),
        ),
    },
    startupPolicy=_strict(["startupPolicyOrder"], startupPolicyOrder={"enum": ["AnyOrder", "InOrder"]}),
    successPolicy=_strict(["operator"], operator={"enum": ["All", "Any"]}, targetReplicatedJobs={"type": "array"}),
    suspend={"type": "boolean"},
    ttlSecondsAfterFinished=_INTEGER,
)
JOB_SET = _object("jobset.x-k8s.io/v1alpha2", "JobSet", _JOB_SET_SPEC)
TRAINING_RUNTIME = _object(
    "trainer.kubeflow.org/v1alpha1",
    "TrainingRuntime",
    _strict(
        ["template"],
        mlPolicy=_strict([], numNodes=_INTEGER, torch={"type": "object"}, mpi={"type": "object"}),
        podGroupPolicy={"type": "object"},
        template=_strict(["spec"], metadata=_strict([], labels=_LABELS), spec=_JOB_SET_SPEC),
    ),
)
TRAIN_JOB = _object(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    _strict(
        ["runtimeRef"],
        runtimeRef=_strict(
            ["name"],
            apiGroup={"const": "trainer.kubeflow.org"},
            kind={"enum": ["TrainingRuntime", "ClusterTrainingRuntime"]},
            name={"type": "string"},
        ),
        trainer=_strict(
            [],
            image={"type": "string"},
            command={"type": "array"},
            args={"type": "array"},
            env={"type": "array"},
            numNodes=_INTEGER,
            numProcPerNode={"type": "integer", "minimum": 1},
            resourcesPerNode={"type": "object"},
        ),
        activeDeadlineSeconds={"type": "integer", "minimum": 1},
        suspend={"type": "boolean"},
        managedBy={"type": "string"},
    ),
)

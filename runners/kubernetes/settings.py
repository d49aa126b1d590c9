"""Settings of a job's pods."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError, no_choice
from plink.model.hosts import Hosts

JOB, JOB_SET, TRAIN_JOB, MPI_JOB, PYTORCH_JOB = "job", "jobset", "trainjob", "mpijob", "pytorchjob"
KINDS = (JOB, JOB_SET, TRAIN_JOB, MPI_JOB, PYTORCH_JOB)

# What each kind adds to the job's name in the longest name of a pod.
_POD_NAME_SUFFIX = {
    JOB: "-{last}",
    **dict.fromkeys((JOB_SET, TRAIN_JOB), "-node-0-{last}-abcde"),  # JobSet checks them with their random ending
    **dict.fromkeys((MPI_JOB, PYTORCH_JOB), "-worker-{last}"),
}
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, as Services' names are
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # RFC 1123 label
_MAX_LABEL_CHARS = 63
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?")
_CORE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?|hugepages-[0-9]+[KMG]i", re.A)


@dataclass(frozen=True)
class PodSettings:
    """Settings of a job's pods.

    :param name: of the job; empty: made of the program's name and the run.
    :param resources: requests of one pod, quantity by name.

    :raises UsageError: for what Kubernetes would refuse.
    """

    image: str
    kind: str = JOB
    name: str = ""
    namespace: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.image or re.search(r"\s", self.image):
            raise UsageError("--image: write the name of an image, with python3 and the program in it")
        if self.kind not in KINDS:
            raise no_choice("--kind", self.kind, KINDS)
        if self.namespace and not (_NAMESPACE.fullmatch(self.namespace) and len(self.namespace) <= _MAX_LABEL_CHARS):
            raise UsageError(f"--namespace {self.namespace}: write lower-case letters, digits and dashes, 63 at most")

    def named(self, program: str, run_id: str, hosts: Hosts) -> str:
        """Return the job's name: ``name``, or one that no other run has.

        :raises UsageError: when names of its pods would be too long or invalid.
        """
        suffix = _POD_NAME_SUFFIX[self.kind].format(last=len(hosts) - 1)
        limit = _MAX_LABEL_CHARS - len(suffix)
        if self.name:
            if not _LABEL.fullmatch(self.name) or len(self.name) > limit:
                raise UsageError(
                    f"--job-name {self.name}: write a letter, then lower-case letters, digits and dashes, {limit} at "
                    f"most (its pods are called {self.name[:8]}...{suffix})"
                )
            return self.name
        stem = program.rsplit("/", 1)[-1].removesuffix(".py").lower()
        stem = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[: limit - len(run_id) - 1 - len("run-")].strip("-")
        return f"{stem if stem[:1].isalpha() else f'run-{stem}'.strip('-')}-{run_id}"


def parse_resources(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``cpu=4,memory=8Gi,nvidia.com/gpu=8``, once or several times.

    :raises UsageError: naming the invalid part.
    """
    resources: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, quantity = part.partition("=")
        if not equals or (name not in _CORE_RESOURCES and not _RESOURCE.fullmatch(name)):
            raise UsageError(f"--resources {part}: write cpu=4,memory=8Gi,nvidia.com/gpu=8 or the like")
        if not _QUANTITY.fullmatch(quantity) or (
            name not in _CORE_RESOURCES and not re.fullmatch(r"[0-9]+([KMG]i)?", quantity)
        ):
            raise UsageError(f"--resources {part}: {quantity or 'nothing'} is no quantity of {name} (4, 500m, 8Gi)")
        if name in resources:
            raise UsageError(f"--resources {part}: {name} occurs twice")
        resources[name] = quantity
    return resources

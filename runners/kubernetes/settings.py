"""What has to be known of a job's pods besides the job itself."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError
from plink.model.hosts import Hosts

JOB, MPI_JOB, PYTORCH_JOB = "job", "mpijob", "pytorchjob"
KINDS = (JOB, MPI_JOB, PYTORCH_JOB)

# The longest name that each kind gives a pod, after the job's own.
_LONGEST_END = {JOB: "-{last}", MPI_JOB: "-worker-{last}", PYTORCH_JOB: "-worker-{last}"}
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, as Services' names are
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")  # RFC 1123 label
_NODE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")  # RFC 1123 subdomain
_MOST_LABEL, _MOST_NODE = 63, 253
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?")
_OWN = ("cpu", "memory", "ephemeral-storage")
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?|hugepages-[0-9]+[KMG]i", re.A)


@dataclass(frozen=True)
class PodSettings:
    """``resources``: what a pod, that is a node's share of the job, asks for, quantity by name; ``name`` of the job,
    empty for one that is made of the program's and the run's.

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
            raise UsageError(f"--kind {self.kind}: choose one of {', '.join(KINDS)}")
        if self.namespace and not (_NAMESPACE.fullmatch(self.namespace) and len(self.namespace) <= _MOST_LABEL):
            raise UsageError(f"--namespace {self.namespace}: write lower-case letters, digits and dashes, 63 at most")

    def named(self, program: str, run_id: str, hosts: Hosts) -> str:
        """The job's name: the one given, or one that no other run has.

        :raises UsageError: when Kubernetes could not name its pods by it.
        """
        end = _LONGEST_END[self.kind].format(last=len(hosts) - 1)
        most = _MOST_LABEL - len(end)
        if self.name:
            if not _LABEL.fullmatch(self.name) or len(self.name) > most:
                raise UsageError(
                    f"--job-name {self.name}: write a letter and then lower-case letters, digits and dashes, {most} at "
                    f"most (its pods are called {self.name[:8]}...{end})"
                )
            return self.name
        stem = program.rsplit("/", 1)[-1].removesuffix(".py").lower()
        stem = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[: most - len(run_id) - 1 - len("run-")].strip("-")
        return f"{stem if stem[:1].isalpha() else f'run-{stem}'.strip('-')}-{run_id}"


def check_nodes(hosts: Hosts) -> None:
    """:raises UsageError: for a host whose name no node can have."""
    for host in hosts:
        if not _NODE.fullmatch(host.name) or len(host.name) > _MOST_NODE:
            raise UsageError(
                f"{host.name} cannot be a node's name (lower-case letters, digits, '.', '-'): "
                f"write `NODE address={host.address}` in the hosts file"
            )


def parse_resources(texts: Sequence[str]) -> dict[str, str]:
    """``cpu=4,memory=8Gi,nvidia.com/gpu=8``, once or several times.

    :raises UsageError: naming the part that is wrong.
    """
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, quantity = part.partition("=")
        if not equals or (name not in _OWN and not _RESOURCE.fullmatch(name)):
            raise UsageError(f"--resources {part}: write cpu=4,memory=8Gi,nvidia.com/gpu=8 or the like")
        if not _QUANTITY.fullmatch(quantity) or (name not in _OWN and not re.fullmatch(r"[0-9]+([KMG]i)?", quantity)):
            raise UsageError(f"--resources {part}: {quantity or 'nothing'} is no quantity of {name} (4, 500m, 8Gi)")
        if name in found:
            raise UsageError(f"--resources {part}: {name} is given twice")
        found[name] = quantity
    return found

"""``plink.run/1``: how a launched job ended."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.pipeline_log import PipelineLogDocument
from plink.documents.types import Count, HostName, NonNegative, Positive, PositiveInt


class RankEntry(TypedDict):
    """Where one rank was."""

    rank: Count
    """The rank."""
    host: HostName
    """The host that was asked for, by its name in the hosts file."""
    hostname: str
    """The host name that the rank's own process saw."""
    addresses: list[str]
    """The addresses it saw, loopback left out."""
    pid: PositiveInt
    """The process that reported this and then became the program."""
    wrong: str | None
    """What is wrong with its place; null when nothing is."""


class ProofEntry(TypedDict):
    """Where every rank was before the program started. Null in the file of a run that did not come that far."""

    held: bool
    """Every rank was on its host; otherwise the job is not run."""
    ranks: Annotated[list[RankEntry], Meta(min_length=1)]
    """One entry a rank, in rank order."""


class FailureEntry(TypedDict):
    """The rank that failed first, or what brought the job down."""

    rank: Count | None
    """The rank; null when the launcher that plink used does not tell of one."""
    host: HostName | None
    """Its host; null with the rank."""
    code: Annotated[int, Meta(ge=1, le=255)]
    """Its exit code (128 + number for a signal)."""
    cause: NotRequired[str | None]
    """What brought it about, where that is known: a host that was lost, or plink itself that did not run."""
    last_lines: list[str]
    """The last lines it printed, on either stream."""


class RunDocument(TypedDict):
    """How a launched job ended.

    Printed by `plink launch --json`.
    """

    schema: Literal["plink.run/1"]
    """Kind and version of this document."""
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """Tells runs apart."""
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None
    """0, or the exit code of the rank that failed first (128 + number for one that a signal ended); 124 when it was
    ended for taking longer than it may. Null in the file of a run that goes on, or whose plink was killed."""
    seconds: NonNegative | None
    """From the moment all ranks were let go to the end of the last, in seconds. Null where it did not come that far."""
    proof: ProofEntry | None
    """Where every rank was before the program started. Null in the file of a run that did not come that far."""
    failure: FailureEntry | None
    """The rank that failed first; null when none did."""
    pipeline: NotRequired[list[PipelineLogDocument]]
    """Of a pipeline: the last report of each rank."""
    started: NotRequired[str]
    """When, in UTC (ISO 8601). This and what follows stands in .plink/runs/ID/run.json."""
    program: NotRequired[str]
    """What was run."""
    args: NotRequired[list[str]]
    """Its arguments."""
    workdir: NotRequired[str]
    """The folder it was run in, where a host has it."""
    python: NotRequired[str | None]
    """The interpreter that was asked for; null: this one's path, else python3."""
    env: NotRequired[dict[str, str]]
    """What was added to the environment."""
    hosts: NotRequired[list[dict[str, Any]]]
    """The hosts in rank order, as in a network file."""
    lab: NotRequired[str]
    """The lab they belong to, if any."""
    machines: NotRequired[dict[str, Any]]
    """What was known of the machines from when they were measured, by host."""
    logs: NotRequired[str]
    """The folder of the logs: rank-R.out, rank-R.err, all.log."""
    error: NotRequired[str]
    """Why nothing was run, where that is so."""
    timed_out: NotRequired[bool]
    """It was ended because it took longer than timeout_s."""
    exits: NotRequired[dict[str, Annotated[int, Meta(ge=0, le=255)]]]
    """Exit codes of the ranks that ended by themselves, by rank, where the runner learns of them."""
    runner: NotRequired[str]
    """What started the ranks: ssh, local, mpirun, ..."""
    timeout_s: NotRequired[Positive | None]
    """After how many seconds it was to be ended; null: never."""
    interface: NotRequired[str | None]
    """The interfaces that were asked for; null: those that lead to the other hosts."""
    sync: NotRequired[str | None]
    """The folder that was copied to the hosts; null: none was."""
    order: NotRequired[str]
    """The order of the hosts: `given`, `plink` with the algorithm, or the file that was named."""
    compared: NotRequired[Literal["given", "plink"]]
    """Which order this was, in a comparison of two (`plink compare`)."""
    workdirs: NotRequired[list[str]]
    """The folders that it was to run in: on each host the first of them that is there."""
    pythons: NotRequired[list[str]]
    """The interpreters for .py files: on each host the first of them that is there."""
    master_port: NotRequired[Annotated[int, Meta(ge=0, le=65535)]]
    """The port of the rendezvous that was asked for; 0: any free one."""
    mixed_versions: NotRequired[bool]
    """Whether hosts were allowed to differ in Python or PyTorch."""
    launcher_args: NotRequired[list[str]]
    """What was added to the command of a launcher of others."""
    backend: NotRequired[str]
    """The collective backend that was asked for; elastic: the job was elastic, and what follows is of it only."""
    settings: NotRequired[dict[str, Any]]
    """What was asked of an elastic job beside its program; what is missing was left as usual."""
    bytes_per_step: NotRequired[PositiveInt]
    """Bytes that a training step all-reduced, where AggEngine saw enough of them."""
    step_s: NotRequired[Positive]
    """Seconds of such a step, the median, with what it did not hide."""
    why: NotRequired[str]
    """Why an elastic job ended; empty when it ended well."""

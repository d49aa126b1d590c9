"""Jobs: how one ended (``plink.run/1``), all that were run here (``plink.runs/1``), what one order gained over another
(``plink.compare/1``), one that waits in a queue (``plink.submission/1``), and the decisions of an Autotune log, made
again (``plink.autotune-replay/1``)."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hosts import HostEntry
from plink.model.pipeline.rank_report import RankReport
from plink.model.types import Count, HostName, Name, NonNegative, Positive, PositiveInt

_ACTIONS = ["watch", "wait", "resend", "quicktune", "finetune", "return", "done"]
OrderName = Literal["given", "plink"]


class ReplayedInterval(Part, frozen=True, kw_only=True):
    """What was observed between two decisions, and the decision made again."""

    at_s: NonNegative | None
    """When it was told, seconds from the job's beginning; null where the log does not say."""
    epoch: Count
    """How many times masters had been moved before it."""
    bytes_per_s: Count
    """Bytes all-reduced a second in it."""
    imbalance: Annotated[float, Meta(ge=1)] | None
    """The most that a rank sends over the least, under the masters at work then; null where these are not known."""
    action: Annotated[str, Meta(extra_json_schema={"enum": _ACTIONS})]
    """What is decided now."""
    reason: Name
    """Why, in a line."""
    as_logged: bool
    """The log has the same decision, with the same masters."""


class AutotuneReplay(Document, frozen=True, kw_only=True, tag="plink.autotune-replay/1"):
    """The decisions of an Autotune log, made again.

    Printed by `plink runs replay --json`.
    """

    stretches: tuple[ReplayedInterval, ...]
    """One entry a stretch, up to the first decision that differs: what follows was seen under other masters."""
    as_logged: bool
    """No decision differs."""


class RankEntry(Part, frozen=True, kw_only=True):
    """Where one rank was."""

    rank: Count
    """The rank."""
    host: HostName
    """The host that was asked for, by its name in the hosts file."""
    hostname: str
    """The host name that the rank's own process saw."""
    addresses: tuple[str, ...]
    """The addresses it saw, loopback left out."""
    pid: PositiveInt
    """The process that reported this and then became the program."""
    wrong: str | None
    """What is wrong with its place; null when nothing is."""
    hub: Count | Unset = UNSET
    """The hub process that this is; its `rank` is behind those of all ranks."""


class VerifiedPlacement(Part, frozen=True, kw_only=True):
    """Where every rank was before the program started. Null in the file of a run that did not come that far."""

    held: bool
    """Every rank was on its host; otherwise the job is not run."""
    ranks: Annotated[tuple[RankEntry, ...], Meta(min_length=1)]
    """One entry a rank, in rank order, and then one a hub process."""


class RunFailure(Part, frozen=True, kw_only=True):
    """The rank that failed first, or what brought the job down."""

    rank: Count | None
    """The rank; null when the launcher that plink used does not tell of one."""
    host: HostName | None
    """Its host; null with the rank."""
    hub: Count | Unset = UNSET
    """The hub process that failed, where it was one."""
    code: Annotated[int, Meta(ge=1, le=255)]
    """Its exit code (128 + number for a signal)."""
    cause: str | Unset | None = UNSET
    """What brought it about, where that is known: a host that was lost, or plink itself that did not run."""
    last_lines: tuple[str, ...]
    """The last lines it printed, on either stream."""


class NcclChoice(Part, frozen=True, kw_only=True):
    """Choice of NCCL's tuner for a size."""

    collective: str
    """As NCCL names it; empty before NCCL 2.23."""
    size_bytes: int
    """Of the vector."""
    algorithm: str
    """RING, TREE, ..."""
    protocol: str
    """LL, LL128 or SIMPLE."""
    channels: int | None
    """How many; null where NCCL does not say."""


class NcclCommunicator(Part, frozen=True, kw_only=True):
    """Communicator that a program made."""

    ranks: tuple[int, ...]
    """Of the job, in the communicator's order."""
    channels: int
    """How many rings."""
    trees: int
    """Of how many channels all ranks said which tree they built: fewer where NCCL cut its lines, 0 where it printed
    none."""
    problems: tuple[str, ...]
    """None where rings, and trees as far as they are known, follow the order."""


class NcclProof(Part, frozen=True, kw_only=True):
    """Verdict on a job's NCCL."""

    communicators: tuple[NcclCommunicator, ...]
    """Those of which all ranks said what they built."""
    choices: tuple[NcclChoice, ...]
    """By collective and size."""
    networks: dict[str, str]
    """By host: what it sends by, as NCCL prints it."""
    problems: tuple[str, ...]
    """Of all communicators and networks; none where NCCL follows the order."""


class RunRecord(Document, frozen=True, kw_only=True, tag="plink.run/1"):
    """How a launched job ended.

    Printed by `plink launch --json`.
    """

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]+$")]
    """Tells runs apart."""
    exit_code: Annotated[int, Meta(ge=0, le=255)] | None
    """0, or the exit code of the rank that failed first; 128 + number where a signal ended it or plink; 124 when it was
    ended for taking longer than it may. Null in the file of a run that goes on, or whose plink was killed."""
    seconds: NonNegative | None
    """From the moment all ranks were let go to the end of the last, in seconds. Null where it did not come that far."""
    proof: VerifiedPlacement | None
    """Where every rank was before the program started. Null in the file of a run that did not come that far."""
    failure: RunFailure | None
    """The rank that failed first; null when none did."""
    pipeline: tuple[RankReport, ...] | Unset = UNSET
    """Of a pipeline: the last report of each rank."""
    nccl: NcclProof | Unset = UNSET
    """What NCCL built, by `--verify-nccl`; with problems the exit code is 1 where the ranks' is 0."""
    started: str | Unset = UNSET
    """When, in UTC (ISO 8601). This and what follows stands in .plink/runs/ID/run.json."""
    program: str | Unset = UNSET
    """What was run."""
    args: tuple[str, ...] | Unset = UNSET
    """Its arguments."""
    workdir: str | Unset = UNSET
    """The folder it was run in, where a host has it."""
    python: str | Unset | None = UNSET
    """The interpreter that was asked for; null: this one's path, else python3."""
    env: dict[str, str] | Unset = UNSET
    """What was added to the environment."""
    hosts: tuple[HostEntry, ...] | Unset = UNSET
    """The hosts in rank order, as in a network file."""
    lab: str | Unset = UNSET
    """The lab they belong to, if any."""
    machines: dict[str, Any] | Unset = UNSET
    """What was known of the machines from when they were measured, by host."""
    logs: str | Unset = UNSET
    """The folder of the logs: rank-R.out, rank-R.err, all.log."""
    error: str | Unset = UNSET
    """Why nothing was run, where that is so."""
    timed_out: bool | Unset = UNSET
    """It was ended because it took longer than timeout_s."""
    exits: dict[str, Annotated[int, Meta(ge=0, le=255)]] | Unset = UNSET
    """Exit codes of the ranks that ended by themselves, by rank, where the runner learns of them."""
    runner: str | Unset = UNSET
    """What started the ranks: ssh, local, mpirun, ..."""
    timeout_s: Positive | Unset | None = UNSET
    """After how many seconds it was to be ended; null: never."""
    interface: str | Unset | None = UNSET
    """The interfaces that were asked for; null: those that lead to the other hosts."""
    sync: str | Unset | None = UNSET
    """The folder that was copied to the hosts; null: none was."""
    order: str | Unset = UNSET
    """The order of the hosts: `given`, `plink` with the algorithm, or the file that was named."""
    compared: OrderName | Unset = UNSET
    """Which order this was, in a comparison of two (`plink compare`)."""
    workdirs: tuple[str, ...] | Unset = UNSET
    """The folders that it was to run in: on each host the first of them that is there."""
    pythons: tuple[str, ...] | Unset = UNSET
    """The interpreters for .py files: on each host the first of them that is there."""
    master_port: Annotated[int, Meta(ge=0, le=65535)] | Unset = UNSET
    """The port of the rendezvous that was asked for; 0: any free one."""
    mixed_versions: bool | Unset = UNSET
    """Whether hosts were allowed to differ in Python or PyTorch."""
    launcher_args: tuple[str, ...] | Unset = UNSET
    """What was added to the command of a launcher of others."""
    hubs: tuple[str, ...] | Unset = UNSET
    """The host of each hub process; empty where there was none."""
    backend: str | Unset = UNSET
    """The collective backend that was asked for; elastic: the job was elastic, and what follows is of it only."""
    settings: dict[str, Any] | Unset = UNSET
    """What was asked of an elastic job beside its program; what is missing was left as usual."""
    bytes_per_step: PositiveInt | Unset = UNSET
    """Bytes that a training step all-reduced, where AggEngine saw enough of them."""
    step_s: Positive | Unset = UNSET
    """Seconds of such a step, with what it did not hide: the median over its last all-reduces, half of all and 2,048 at
    most."""
    why: str | Unset = UNSET
    """Why an elastic job ended; empty when it ended well."""


class RecordedRuns(Document, frozen=True, kw_only=True, tag="plink.runs/1"):
    """The jobs that were run here.

    Printed by `plink runs --json`.
    """

    runs: list[Annotated[dict[str, Any], Meta(extra_json_schema={"required": ["schema", "id"]})]]
    """Each a plink.run/1 document, as .plink/runs/ID/run.json has it; the latest first."""


class ComparedRun(Part, frozen=True, kw_only=True):
    """One run."""

    order: OrderName
    """Which order."""
    pair: Count
    """Of which pair."""
    value: Positive
    """The figure."""
    id: str
    """The run (`plink runs show ID`)."""


class ComparedTraffic(Part, frozen=True, kw_only=True):
    """Seconds of one traffic of a mesh in a training step, times as often as it occurs."""

    traffic: str
    """Axes and kind."""
    given_s: Positive
    """In the given order, the median."""
    plink_s: Positive
    """In plink's order, the median."""
    given_predicted_s: NonNegative | None
    """Predicted for the given order; null where nothing leaves a host."""
    plink_predicted_s: NonNegative | None
    """Predicted for plink's order."""


class OrderComparison(Document, frozen=True, kw_only=True, tag="plink.compare/1"):
    """What one order gained over another.

    Printed by `plink compare --json`, and left in .plink/compare.json.
    """

    metric: str | None
    """Where the program reports how it did, as typed or as found in its output; null: how long the job took."""
    unit: str | None
    """Unit of the metric, if its name or the program tells it."""
    higher_is_better: bool
    """Whether a larger metric is a better one."""
    pairs: PositiveInt
    """How often each order was run."""
    gain: Positive
    """How many times better plink's order is: the geometric mean of the pairs' ratios."""
    interval: tuple[Positive, Positive] | None
    """Lowest and highest gain at that confidence; null with one pair."""
    confidence: Annotated[float, Meta(gt=0, lt=1)]
    """Of the interval."""
    runs: Annotated[tuple[ComparedRun, ...], Meta(min_length=2)]
    """Every run, in the order they were made."""
    traffic: tuple[ComparedTraffic, ...] | Unset = UNSET
    """With --mesh-file: what each traffic took."""


class Submission(Document, frozen=True, kw_only=True, tag="plink.submission/1"):
    """A launch that waits in a queue.

    Printed by `plink submit --json`.
    """

    job_id: Annotated[str, Meta(pattern=r"^[0-9]+$")]
    """The number that Slurm gave the job."""
    script: str
    """The script that was handed to sbatch."""

"""Options of the commands that start jobs: each command has some of them by name, and all read and check them alike."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import UsageError
from plink.features.order.request import OrderRequest
from plink.model.request import ENV, Environment, FeatureRequest, Option, OptionalDuration, Text, fields_of
from plink.model.storage import check_folder
from plink.model.units import parse_duration, parse_limit

if TYPE_CHECKING:
    from runners.job.runner import Job

_order = partial(Option, panel="Hosts and rank order")
_run = partial(Option, panel="Execution")
_backend = partial(Option, panel="All-reduces (--backend)")
_pipeline = partial(Option, panel="Pipelines (--pipeline)")
_rare = partial(Option, panel="Rare settings")
_output = partial(Option, panel="Output")
CHECKPOINT_HELP = "Folder for checkpoints."
RESTORE_HELP = "Go on from the latest checkpoint in there."
RUNNERS = ("ssh", "local", "torchrun", "mpirun", "mpich", "slurm")
MAX_MINIBATCHES = 1 << 40
MAX_RESTARTS = 1000
PREFLIGHT = ("off", "warn", "strict")
KEEP_HOSTS_ORDER = "given"  # of --order: as the hosts file has them; a file of that name is ./given
PROGRAM_FIRST = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}

# External launchers start the ranks: no agent of plink runs on the hosts.
_EXTERNAL = ("mpirun", "mpich", "slurm")
# Runners that start hubs beside the ranks.
HUB_RUNNERS = ("ssh", "local")

Program = Annotated[str, typer.Argument(metavar="PROGRAM", help="A .py file or a command.", show_default=False)]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")]
Seconds = Annotated[float | None, Text("TIME", parse_duration)]


@dataclass(frozen=True)
class LaunchSetting:
    """Setting of ``--set``. ``read``: from what was typed, with ValueError, KeyError or UsageError for what cannot be;
    ``values``: what can be, for the message; ``of``: the option that it goes with."""

    read: Callable[[str], Any]
    values: str
    of: str | None = None


def _number(kind: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not low <= (number := kind(text)) <= high:
            raise ValueError
        return number

    return read


@dataclass(frozen=True)
class LaunchSettings:
    """Rarely changed settings: each is a NAME=VALUE of ``--set``. ``typed``: the words, as they were."""

    max_network_age_s: Annotated[float, LaunchSetting(parse_duration, "24h")] = 86400.0
    master_port: Annotated[int, LaunchSetting(_number(int, 0, 65535), "a port, 0 to 65535")] = 0
    allow_version_mismatch: Annotated[bool, LaunchSetting({"yes": True, "no": False}.__getitem__, "yes or no")] = False
    autotune_every_s: Annotated[float, LaunchSetting(parse_duration, "2s", "--autotune")] = 2.0
    autotune_threshold: Annotated[
        float | None, LaunchSetting(_number(float, 0.01, 0.99), "a share, 0.01 to 0.99", "--autotune")
    ] = None
    message_timeout_s: Annotated[float | None, LaunchSetting(parse_limit, "5m", "--pipeline")] = None
    checkpoint_every: Annotated[
        int | None, LaunchSetting(_number(int, 1, MAX_MINIBATCHES), "minibatches, 1 or more", "--pipeline")
    ] = None
    restarts: Annotated[
        int, LaunchSetting(_number(int, 0, MAX_RESTARTS), f"a number, 0 to {MAX_RESTARTS}", "--pipeline")
    ] = 0
    preflight: Annotated[str, LaunchSetting({name: name for name in PREFLIGHT}.__getitem__, "off, warn or strict")] = (
        "warn"
    )
    typed: tuple[str, ...] = field(default=(), compare=False)

    def check(self, option: str) -> None:
        """Refuse settings that go with an option which was not typed.

        :raises UsageError: for the first of them.
        """
        for word in self.typed:
            if _SETTINGS[word.partition("=")[0]][1].of == option:
                raise UsageError(f"--set {word}: goes with {option}")


# By what is typed: the field and its setting.
_SETTINGS = {
    entry.name.removesuffix("_s").replace("_", "-"): (entry.name, entry.type.__metadata__[0])
    for entry in fields(LaunchSettings)
    if hasattr(entry.type, "__metadata__")
}


def launch_settings(words: Sequence[str]) -> LaunchSettings:
    """Parse the NAME=VALUE words of ``--set``.

    :raises UsageError: for a name that there is none of, or a value that cannot be.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in _SETTINGS:
            raise UsageError(f"--set {word}: write NAME=VALUE, with one of {', '.join(_SETTINGS)}")
        key, setting = _SETTINGS[name]
        try:
            values[key] = setting.read(value)
        except (ValueError, KeyError, UsageError):
            raise UsageError(f"--set {word}: write {name}= and {setting.values}") from None
    return LaunchSettings(**values, typed=tuple(words))


def _launcher_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--launcher-args {text}: {error}") from None


@dataclass(frozen=True)
class JobRequest(FeatureRequest):
    """Request for a job. What a command lacks, or was not typed, is None, False or empty."""

    hosts_file: Annotated[
        Path | None,
        _order("Hosts file; default: the hosts of .plink/network.json (not for elastic jobs).", ("--hosts",)),
    ] = None
    order: Annotated[
        str | None,
        _order(
            "Rank order: an order, a plan, or one host name per line; given: as in the hosts file. Default: "
            ".plink/order.json, else hosts are probed and ordered first.",
            metavar="[FILE|given]",
        ),
    ] = None
    algo: Annotated[
        str | None,
        _order(
            "Algorithm of the collective to order for; default: that of the last order, or ring.",
            metavar="[ring|2lha|...]",
        ),
    ] = None
    runner: Annotated[str | None, _run("Launcher of the ranks; default: ssh.", choices=RUNNERS)] = None
    slots: Annotated[
        int | None,
        _run(
            "With --runner local: number of ranks (default: one per core), or hosts of an elastic job (2).",
            least=1,
            most=65536,
        ),
    ] = None
    launcher_args: Annotated[
        tuple[str, ...] | None,
        Text("TEXT", _launcher_words),
        _run("Arguments for mpirun, srun or sbatch, split as in a shell."),
    ] = None
    env: Annotated[Environment, replace(ENV, panel="Execution")] = field(default_factory=dict[str, str])
    python: Annotated[
        str | None, _run("Interpreter for .py files; default: this interpreter's path, else python3.", metavar="PYTHON")
    ] = None
    workdir: Annotated[
        str | None,
        _run("Working directory on the hosts; default: the current one's path, else the home.", metavar="DIR"),
    ] = None
    sync: Annotated[
        Path | None, _run("Copy this folder to hosts that lack it, and run in the copy.", metavar="DIR")
    ] = None
    interface: Annotated[
        str | None,
        _run(
            "Interface for Gloo and NCCL (eth0, or eth0,eth1); default: that of the route to the other hosts.",
            metavar="IFACE",
        ),
    ] = None
    timeout_s: Annotated[
        OptionalDuration, _run("Terminate the job after this time (2h) and print its ranks' stacks.", ("--timeout",))
    ] = None
    backend: Annotated[
        str | None,
        _backend(
            "Run PyTorch's all-reduces by this algorithm or schedule file; auto: the cheapest for each size.",
            metavar="[auto|ALGORITHM|FILE]",
        ),
    ] = None
    autotune: Annotated[
        bool, _backend("With --backend 2lha or flat: move work between ranks when the network changes.")
    ] = False
    pipeline: Annotated[
        Path | None,
        _pipeline(
            "Plan of a pipeline: hosts, ranks and stages. The program defines make(arguments), which returns a "
            "PipelineApp.",
            metavar="PLAN",
        ),
    ] = None
    checkpoint: Annotated[Path | None, _pipeline(CHECKPOINT_HELP, metavar="DIR")] = None
    restore: Annotated[Path | None, _pipeline(RESTORE_HELP, metavar="DIR")] = None
    verify_nccl: Annotated[
        bool, _run("Read what NCCL builds, and fail if its rings and trees do not follow the order.")
    ] = False
    settings: Annotated[
        LaunchSettings,
        Text("NAME=VALUE", launch_settings, repeated=True),
        _rare(
            "max-network-age=24h, preflight=warn (off, strict: refuse hosts and links slower than measured), "
            "master-port=N, allow-version-mismatch=yes, autotune-every=2s, autotune-threshold=0.2; with --pipeline "
            "message-timeout=5m, checkpoint-every=1000 (minibatches), restarts=0.",
            ("--set",),
        ),
    ] = LaunchSettings()
    accept_new_host_keys: Annotated[bool, _rare("Note unknown SSH host keys instead of refusing them.")] = False
    log_dir: Annotated[
        Path | None, _output("Folder for each rank's output; default: in the run's folder.", metavar="DIR")
    ] = None
    tail: Annotated[int | None, _output("Show only the last N lines of each rank, at the end.", least=0)] = None
    dry_run: Annotated[bool, _output("Check everything and show the commands, but do not start the program.")] = False
    as_json: Annotated[bool, _output("Print the result as JSON; the ranks' output goes to stderr.", ("--json",))] = (
        False
    )

    def check(self, runner: str, external: bool | None = None) -> None:
        """Refuse invalid combinations before any host is contacted.

        :param external: whether an external launcher starts the ranks; None: as the runner has it.
        :raises UsageError: for the first such thing.
        """
        external = runner in _EXTERNAL if external is None else external
        if self.algo is not None:
            OrderRequest(self.algo)  # refuses what is none
        if self.log_dir is not None:
            check_folder(self.log_dir)
        if self.sync and external:
            raise UsageError(f"--sync needs plink's agents on the hosts; --runner {runner} starts none")
        if self.sync and self.workdir:
            raise UsageError("--sync runs the job in the copy; omit --workdir")
        if self.slots and runner != "local":
            raise UsageError(
                "--slots goes with --runner local; the hosts file says how many ranks a host takes (slots=N)"
            )
        if self.autotune and (self.backend is None or runner not in ("ssh", "local")):
            raise UsageError("--autotune goes with --backend, and with --runner ssh or local")
        if self.backend in ("phub", "phub-2l") and runner not in HUB_RUNNERS:
            raise UsageError(f"--backend {self.backend} goes with --runner ssh or local, which start the hubs")
        if self.launcher_args is not None and not external:
            raise UsageError(f"--launcher-args: --runner {runner} takes no launcher arguments")
        if self.runner == "slurm":
            from runners.launchers.slurm import check_step_options

            check_step_options(self.launcher_args or ())
        if (external or runner == "kubernetes") and self.settings.preflight == "strict":
            raise UsageError(f"--set preflight=strict needs plink's agents on the hosts; --runner {runner} starts none")
        if not self.autotune:
            self.settings.check("--autotune")

    def applied(self, job: "Job") -> "Job":
        """Return the job with the options that were typed."""
        settings = self.settings
        return replace(
            job,
            timeout_s=self.timeout_s or job.timeout_s,
            interface=self.interface or job.interface,
            master_port=settings.master_port or job.master_port,
            allow_version_mismatch=settings.allow_version_mismatch or job.allow_version_mismatch,
            sync=self.sync or job.sync,
            launcher_args=self.launcher_args or job.launcher_args,
        )


def misplaced(program: str, args: list[str]) -> str | None:
    """The first option of these that stands behind the program, whose text does not have it; None if there is none.

    Programs whose text cannot be read may know any option.
    """
    files = (Path(word) for word in (program, *args) if word.endswith(".py"))
    text = "".join(path.read_text(errors="replace") for path in files if path.is_file()).replace("_", "-")
    names = {name for declared in fields_of(JobRequest) for name in declared.names}
    before = args[: args.index("--")] if "--" in args else args
    return next(
        (word for word in before if text and (n := word.partition("=")[0]) in names and n[2:] not in text), None
    )

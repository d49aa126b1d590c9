"""Options of commands that start jobs: each is declared once, and all are checked together."""

import inspect
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from plink.cli.completion import NAMES
from plink.errors import UsageError
from plink.model.request import parse_environment

_ORDER = "Hosts and rank order"
RUN_PANEL = "Execution"
_BACKEND = "All-reduces (--backend)"
_PIPELINE = "Pipelines (--pipeline)"
_RARE = "Rare settings"
CHECKPOINT_HELP = "Folder for checkpoints."
RESTORE_HELP = "Go on from the latest checkpoint in there."
MAX_MINIBATCHES = 1 << 40
MAX_RESTARTS = 1000
PREFLIGHT = ("off", "warn", "strict")
PIPELINE_SETTINGS = ("message-timeout", "checkpoint-every", "restarts")
_OUTPUT = "Output"
KEEP_HOSTS_ORDER = "given"  # of --order: as the hosts file has them; a file of that name is ./given
PROGRAM_FIRST = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False}

# External launchers start the ranks: no agent of plink runs on the hosts.
_EXTERNAL = ("mpirun", "mpich", "slurm")

Algorithm = StrEnum("Algorithm", {name: name for name in NAMES})  # type: ignore[misc]


class RunnerName(StrEnum):
    """Name of a runner: what starts the ranks of a job."""

    SSH = "ssh"
    LOCAL = "local"
    TORCHRUN = "torchrun"
    MPIRUN = "mpirun"
    MPICH = "mpich"
    SLURM = "slurm"


Program = Annotated[str, typer.Argument(metavar="PROGRAM", help="A .py file or a command.", show_default=False)]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the program.")]


@dataclass(frozen=True)
class LaunchSettings:
    """Rarely changed settings: each is a NAME=VALUE of ``--set``."""

    max_network_age_s: float = 86400.0
    master_port: int = 0
    allow_version_mismatch: bool = False
    autotune_every_s: float = 2.0
    autotune_threshold: float | None = None
    message_timeout_s: float | None = None
    checkpoint_every: int | None = None
    restarts: int = 0
    preflight: str = "warn"


def option(panel: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option under that heading of the help."""
    return typer.Option(*names, rich_help_panel=panel, help=text, **more)


@dataclass(frozen=True)
class JobOptions:
    """Job options as typed. One that the command lacks, or that was not typed, is None, False or empty."""

    # fmt: off
    hosts_file: Annotated[Path | None, option(
        _ORDER, "Hosts file; default: the hosts of .plink/network.json (not for elastic jobs).", "--hosts")] = None
    order: Annotated[str | None, option(
        _ORDER, "Rank order: an order, a plan, or one host name per line; given: as in the hosts file. Default: "
        ".plink/order.json, else hosts are probed and ordered first.", metavar="[FILE|given]")] = None
    algo: Annotated[Algorithm | None, option(
        _ORDER, "Algorithm of the collective to order for; default: that of the last order, or ring.",
        metavar="[ring|2lha|...]")] = None
    runner: Annotated[RunnerName | None, option(
        RUN_PANEL, "Launcher of the ranks; default: ssh.")] = None
    slots: Annotated[int | None, option(
        RUN_PANEL, "With --runner local: number of ranks (default: one per core), or hosts of an elastic job (2).",
        min=1, max=65536)] = None
    launcher_args: Annotated[str | None, option(
        RUN_PANEL, "Arguments for mpirun, srun or sbatch, split as in a shell.", metavar="TEXT")] = None
    env: Annotated[list[str] | None, option(
        RUN_PANEL, "Set a variable in every rank's environment; repeatable.")] = None
    python: Annotated[str | None, option(
        RUN_PANEL, "Interpreter for .py files; default: this interpreter's path, else python3.",
        metavar="PYTHON")] = None
    workdir: Annotated[str | None, option(
        RUN_PANEL, "Working directory on the hosts; default: the current one's path, else the home.",
        metavar="DIR")] = None
    sync: Annotated[Path | None, option(
        RUN_PANEL, "Copy this folder to hosts that lack it, and run in the copy.", metavar="DIR")] = None
    interface: Annotated[str | None, option(
        RUN_PANEL, "Interface for Gloo and NCCL (eth0, or eth0,eth1); default: that of the route to the other hosts.",
        metavar="IFACE")] = None
    timeout: Annotated[str | None, option(
        RUN_PANEL, "Terminate the job after this time (2h) and print its ranks' stacks.")] = None
    backend: Annotated[str | None, option(
        _BACKEND, "Run PyTorch's all-reduces by this algorithm or schedule file; auto: the cheapest for each size.",
        metavar="[auto|ALGORITHM|FILE]")] = None
    autotune: Annotated[bool, option(
        _BACKEND, "With --backend 2lha or flat: move work between ranks when the network changes.",
        "--autotune")] = False
    pipeline: Annotated[Path | None, option(
        _PIPELINE, "Plan of a pipeline: hosts, ranks and stages. The program defines make(arguments), which returns a "
        "PipelineApp.", metavar="PLAN")] = None
    checkpoint: Annotated[Path | None, option(_PIPELINE, CHECKPOINT_HELP, metavar="DIR")] = None
    restore: Annotated[Path | None, option(_PIPELINE, RESTORE_HELP, metavar="DIR")] = None
    settings: Annotated[list[str] | None, option(
        _RARE, "max-network-age=24h, preflight=warn (off, strict: refuse hosts and links slower than measured), "
        "master-port=N, allow-version-mismatch=yes, autotune-every=2s, autotune-threshold=0.2; with --pipeline "
        "message-timeout=5m, checkpoint-every=1000 (minibatches), restarts=0.",
        "--set")] = None
    accept_new_host_keys: Annotated[bool, option(
        _RARE, "Note unknown SSH host keys instead of refusing them.", "--accept-new-host-keys")] = False
    log_dir: Annotated[Path | None, option(
        _OUTPUT, "Folder for each rank's output; default: in the run's folder.", metavar="DIR")] = None
    tail: Annotated[int | None, option(
        _OUTPUT, "Show only the last N lines of each rank, at the end.", min=0)] = None
    dry_run: Annotated[bool, option(
        _OUTPUT, "Check everything and show the commands, but do not start the program.", "--dry-run")] = False
    as_json: Annotated[bool, option(
        _OUTPUT, "Print the result as JSON; the ranks' output goes to stderr.", "--json")] = False
    # fmt: on

    @property
    def environment(self) -> dict[str, str]:
        """Variables of ``--env``.

        :raises UsageError: as :func:`plink.model.request.parse_environment`.
        """
        return parse_environment(self.env or [])

    @property
    def launcher_words(self) -> tuple[str, ...]:
        """Words of ``--launcher-args``. :raises UsageError: for a quote that is not closed.

        :raises UsageError: for a quote that is not closed.
        """
        try:
            return tuple(shlex.split(self.launcher_args or ""))
        except ValueError as error:
            raise UsageError(f"--launcher-args {self.launcher_args}: {error}") from None

    @property
    def timeout_s(self) -> float | None:
        """Seconds of ``--timeout``.

        :raises UsageError: for what is no time, or leaves none.
        """
        from plink.model.units import parse_limit

        return parse_limit(self.timeout) if self.timeout else None

    def check(self, runner: str, external: bool | None = None) -> LaunchSettings:
        """Refuse invalid options and combinations before any host is contacted, and return ``--set``.

        :param external: whether an external launcher starts the ranks; None: as the runner has it.
        :raises UsageError: for the first such thing.
        """
        from plink.model.storage import check_folder

        external = runner in _EXTERNAL if external is None else external
        if self.log_dir is not None:
            check_folder(self.log_dir)
        if self.sync and external:
            raise UsageError(f"--sync needs plink's agents on the hosts; --runner {runner} starts none")
        if self.sync and self.workdir:
            raise UsageError("--sync runs the job in the copy; omit --workdir")
        if self.slots and runner != RunnerName.LOCAL:
            raise UsageError(
                "--slots goes with --runner local; the hosts file says how many ranks a host takes (slots=N)"
            )
        if self.autotune and (self.backend is None or runner not in (RunnerName.SSH, RunnerName.LOCAL)):
            raise UsageError("--autotune goes with --backend, and with --runner ssh or local")
        if self.backend in ("hub", "hub-2l") and runner not in (RunnerName.SSH, RunnerName.LOCAL):
            raise UsageError(f"--backend {self.backend} goes with --runner ssh or local, which start the hubs")
        if self.launcher_args is not None and not external:
            raise UsageError(f"--launcher-args: --runner {runner} takes no launcher arguments")
        # Read for the sake of what they refuse.
        _ = self.environment, self.launcher_words, self.timeout_s
        settings = launch_settings(self.settings or [])
        tuned = [word for word in self.settings or [] if word.startswith("autotune-")]
        if external and settings.preflight == "strict":
            raise UsageError(f"--set preflight=strict needs plink's agents on the hosts; --runner {runner} starts none")
        if tuned and not self.autotune:
            raise UsageError(f"--set {tuned[0]}: goes with --autotune")
        if self.backend is not None:
            from plink.features.launch.backend import check_backend

            check_backend(self.backend, settings.autotune_every_s if self.autotune else None)
        return settings


def misplaced(program: str, args: list[str]) -> str | None:
    """The first option of these that stands behind the program, whose text does not have it; None if there is none.

    Programs whose text cannot be read may know any option.
    """
    files = (Path(word) for word in (program, *args) if word.endswith(".py"))
    text = "".join(path.read_text(errors="replace") for path in files if path.is_file()).replace("_", "-")
    declared = {
        name: get_args(hint)[1].default for name, hint in get_type_hints(JobOptions, include_extras=True).items()
    }
    names = {typed if isinstance(typed, str) else f"--{name}".replace("_", "-") for name, typed in declared.items()}
    before = args[: args.index("--")] if "--" in args else args
    return next(
        (word for word in before if text and (n := word.partition("=")[0]) in names and n[2:] not in text), None
    )


def launch_settings(words: list[str]) -> LaunchSettings:
    """Parse the NAME=VALUE words of ``--set``.

    :raises UsageError: for a name that there is none of, or a value that cannot be.
    """
    from plink.model.units import parse_duration, parse_limit

    readers: dict[str, tuple[str, Callable[[str], Any], str]] = {
        "max-network-age": ("max_network_age_s", parse_duration, "24h"),
        "preflight": (
            "preflight",
            {name: name for name in PREFLIGHT}.__getitem__,
            "off, warn or strict",
        ),
        "master-port": ("master_port", _number(int, 0, 65535), "a port, 0 to 65535"),
        "allow-version-mismatch": ("allow_version_mismatch", {"yes": True, "no": False}.__getitem__, "yes or no"),
        "autotune-every": ("autotune_every_s", parse_duration, "2s"),
        "autotune-threshold": ("autotune_threshold", _number(float, 0.01, 0.99), "a share, 0.01 to 0.99"),
        "message-timeout": ("message_timeout_s", parse_limit, "5m"),
        "checkpoint-every": ("checkpoint_every", _number(int, 1, MAX_MINIBATCHES), "minibatches, 1 or more"),
        "restarts": ("restarts", _number(int, 0, MAX_RESTARTS), f"a number, 0 to {MAX_RESTARTS}"),
    }
    values = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in readers:
            raise UsageError(f"--set {word}: write NAME=VALUE, with one of {', '.join(readers)}")
        key, read, example = readers[name]
        try:
            values[key] = read(value)
        except (ValueError, KeyError, UsageError):
            raise UsageError(f"--set {word}: write {name}= and {example}") from None
    return LaunchSettings(**values)


def _number(kind: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not low <= (number := kind(text)) <= high:
            raise ValueError
        return number

    return read


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function with parameters that are dataclasses of options; each field is an option.

    :param names: the fields of :class:`JobOptions` that this command has; of other dataclasses it has all.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            kind = parameter.annotation
            if is_dataclass(kind):
                options = _options(kind, names if kind is JobOptions else [entry.name for entry in fields(kind)])
                groups[parameter.name] = kind, [option.name for option in options]
                parameters += options
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        def command(**typed: Any) -> None:
            for name, (kind, keys) in groups.items():
                typed[name] = kind(**{key: typed.pop(key) for key in keys})
            function(**typed)

        command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return wrap


def _options(kind: Any, names: Iterable[str]) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as parameters."""
    declared, hints = {field.name: field for field in fields(kind)}, get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared[name].default, annotation=hints[name])
        for name in names
    ]

"""Values of options: what help calls them or which there are, and what the shell completes.

Bash, Zsh and Fish start plink at every press of the tabulator. So nothing is imported here but words, files are read
only where they are small, and whatever goes wrong offers nothing: the shell then completes names of files by itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from plink.model.request import Choices
from plink.model.storage import read_document
from plink.records import workspace

_MAX_FILE_BYTES = 8 << 20  # of a network file: what is read in a moment
_LABS = Path("/run/plink/labs")
ALGORITHMS = (
    "ring", "ring-chunked", "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "bcube", "2lha",
    "flat", "hubs", "ps", "phub", "phub-2l", "bml", "multi-ring", "gloo", "nccl-ring", "nccl-tree", "openmpi-ring",
    "openmpi-recursive-doubling", "openmpi-rabenseifner", "lightgbm",
)  # fmt: skip
NAMES = (*ALGORITHMS, "nccl")
FORMATS = (
    "order", "hosts", "openmpi", "openmpi-rankfile", "mpich", "slurm", "torchrun", "torchrun-env", "deepspeed",
    "horovod", "lightgbm", "kubernetes",
)  # fmt: skip
_SETTINGS = (
    "max-network-age=", "preflight=", "master-port=", "allow-version-mismatch=", "autotune-every=",
    "autotune-threshold=",
)  # fmt: skip
_JOB_COMMANDS = ("launch", "submit", "compare", "manifests", "runs rerun", "elastic run")
_MAX_SHOWN_LIMIT = 10_000_000  # a limit above that is the computer's, and says nothing to a person
_MAX_METAVAR_CHARS = 22  # what Rich leaves whole in a terminal of 80 columns
_BY_KIND: dict[Any, str] = {Path: "FILE", int: "N", float: "X", str: "TEXT"}
# By option, and by command and option where one of that name differs.
VALUES: dict[str, tuple[str, ...]] = {
    "--algo": NAMES,
    "schedule --algo": ALGORITHMS,
    "--backend": ("auto", *(name for name in ALGORITHMS if name != "gloo")),
    "--collective": ("all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast"),
    "--device": ("auto", "cpu", "cuda"),
    "--format": FORMATS,
    "topology export --format": ("slurm-conf", "slurm-yaml", "topograph", "kubectl", "simgrid"),
    "--model": ("auto", "latency", "alpha-beta", "contention", "simulated"),
    "advise --format": ("nccl-tuner", "rccl-tuner", "ncclx"),
    "advise --model": ("auto", "alpha-beta", "contention", "simulated"),
    "--preemption-source": ("aws", "gcp", "azure"),
    "--set": ("fan-out=", "base=", "levels=", "segments=", "sharded=", "colocated=", "servers=", "root="),
    **{f"{command} --set": _SETTINGS for command in _JOB_COMMANDS},
}


@dataclass(frozen=True)
class Suggestion:
    """Completion as Click expects it. ``type`` is always ``plain``."""

    value: str
    help: str | None = None
    type: str = "plain"


Offer = Callable[[Any, str], Iterable[str]]


def attach(command: Any, words: tuple[str, ...] = ()) -> None:
    """Give every option and argument of the command, and of all under it, a name for its value (a flag has none) and
    completion. ``words``: what is typed before it.

    Of releases of Typer that keep the kind of a value elsewhere, arguments stay as they are.
    """
    typed = " ".join(words)
    for parameter in command.params:
        if offer := _offer(typed, parameter):
            parameter.shell_complete = partial(_suggest, offer)
        if parameter.param_type_name == "argument":
            _name_kind(parameter)
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        else:
            if parameter.metavar is None or isinstance(parameter.metavar, Choices):
                _name_value(parameter, choices(typed, parameter))
            low, high = (getattr(parameter, end, None) for end in ("min", "max"))
            if high is not None and hasattr(parameter, "_get_number_range_help_str"):
                range_text = None if high > _MAX_SHOWN_LIMIT else f"{low or 0:.10g}-{high:.10g}"
                parameter._get_number_range_help_str = lambda range_text=range_text: range_text
    _strip_help(command)
    for name, child in getattr(command, "commands", {}).items():
        attach(child, (*words, name))


def _strip_help(command: Any) -> None:
    """Give ``--help``, a flag that Typer makes late, no metavar."""
    original = command.get_help_option

    def without_metavar(context: Any) -> Any:
        option = original(context)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = without_metavar


def _name_kind(argument: Any) -> None:
    """Show the kind of an argument's value beside its name."""
    kind = _kind(argument)
    if kind is not None and hasattr(argument, "display_type_rich"):
        argument.display_type_rich = lambda ctx: kind if argument.nargs == 1 else f"{kind}..."


def _name_value(option: Any, values: tuple[str, ...]) -> None:
    """Set the metavar of an option: its choices, or the kind of its value. Choices that do not fit end its help."""
    if not values:
        option.metavar = _kind(option)
    elif "2lha" in values:  # algorithms, too many to list
        option.metavar = "[ring|2lha|...]"
    else:
        shown = len(values)
        while len(_brackets(values, shown)) > _MAX_METAVAR_CHARS:
            shown -= 1
        option.metavar = _brackets(values, shown)
        if shown < len(values):
            option.help = f"{option.help} Choices: {', '.join(values)}."


def _brackets(values: tuple[str, ...], shown: int) -> str:
    return f"[{'|'.join((*values[:shown], *(['...'] if shown < len(values) else [])))}]"


def _kind(parameter: Any) -> str | None:
    """Return the kind of a value, for a list that of its items; None if unknown."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return _BY_KIND.get(annotation)


def _suggest(offer: Offer, ctx: Any, incomplete: str) -> list[Suggestion]:
    try:
        return [Suggestion(word) for word in offer(ctx, incomplete) if word.startswith(incomplete)]
    except Exception:  # a broken file is for the command to complain of, not for a half-typed line
        return []


def choices(words: str, parameter: Any) -> tuple[str, ...]:
    """Return the values of an option of the command ``words``; empty where they are no closed list."""
    if isinstance(parameter.metavar, Choices):
        return parameter.metavar.values
    keys = (key for option in parameter.opts for key in (f"{words} {option}", option))
    return next((VALUES[key] for key in keys if key in VALUES), ())


def _offer(words: str, parameter: Any) -> Offer | None:
    if values := choices(words, parameter):
        return lambda ctx, incomplete: values
    if "--algos" in parameter.opts:
        return _algorithm_list
    if "--pin" in parameter.opts:
        return lambda ctx, incomplete: (f"{name}=" for name in _measured_hosts())
    if parameter.metavar in ("RUN", "ID", "LOG"):
        return lambda ctx, incomplete: _run_ids()
    if words.startswith("lab ") and parameter.metavar in ("HOST", "TARGET", "FROM", "TO"):
        return lambda ctx, incomplete: _lab_hosts(ctx, links=parameter.metavar == "TARGET")
    if words.partition(" ")[0] == "lab" and "--name" in parameter.opts:
        return lambda ctx, incomplete: sorted(path.name for path in _LABS.iterdir() if path.is_dir())
    if words.startswith("elastic ") and parameter.metavar == "HOST...":
        return lambda ctx, incomplete: _hosts_of_run(ctx)
    return None


def _algorithm_list(ctx: Any, incomplete: str) -> Iterable[str]:
    before, comma, _ = incomplete.rpartition(",")
    return (f"{before}{comma}{name}" for name in NAMES if name not in before.split(","))


def _read_names(path: Path) -> list[str]:
    """Return the names of the hosts in a network or run file."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        return []
    return [str(host["name"]) for host in read_document(path).get("hosts", [])]


def _measured_hosts() -> list[str]:
    """Return the hosts of the last network: the file on the command line is not parsed yet."""
    return _read_names(workspace.NETWORK)


def _run_ids() -> list[str]:
    return ["last", *sorted((path.parent.name for path in workspace.RUNS.glob("*/run.json")), reverse=True)]


def _hosts_of_run(ctx: Any) -> list[str]:
    from plink.records.runs import run_named  # here and below: each page of help loads this module

    return _read_names(run_named(workspace.RUNS, str(ctx.params.get("name") or "last")).folder / "run.json")


def _lab_hosts(ctx: Any, links: bool) -> list[str]:
    """Return the lab's hosts in order, with its racks, pods, switches and interfaces where one is accepted."""
    file = str(_LABS / str(ctx.params.get("name") or "lab") / "lab.json")
    from runners.lab.blueprint import from_json

    blueprint = from_json(read_document(file), file)
    names = sorted(place.name for place in blueprint.places)
    if not links:
        return names
    count = blueprint.settings.interfaces if blueprint.switches else 0
    interfaces = [f"{name}/eth{number}" for name in names for number in range(count)]
    return [*names, *blueprint.racks, *blueprint.pods, *blueprint.switches, *interfaces]

"""Shell completion of values: algorithms, formats, hosts and runs.

Bash, Zsh and Fish start plink at every press of the tabulator. So nothing is imported here but words, files are read
only where they are small, and whatever goes wrong offers nothing: the shell then completes names of files by itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plink.model.request import Choices
from plink.model.storage import read_document
from plink.records import workspace
from plink.records.runs import run_named
from runners.lab.blueprint import from_json

_MAX_FILE_BYTES = 8 << 20  # of a network file: what is read in a moment
_LABS = Path("/run/plink/labs")
ALGORITHMS = (
    "ring", "ring-chunked", "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "bcube", "2lha",
    "flat", "ps", "hub", "hub-2l", "bml", "multi-ring", "gloo", "nccl-ring", "nccl-tree", "openmpi-ring",
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
# By option, and by command and option where one of that name differs.
VALUES: dict[str, tuple[str, ...]] = {
    "--algo": NAMES,
    "schedule --algo": ALGORITHMS,
    "--backend": ("auto", *(name for name in ALGORITHMS if name != "gloo")),
    "--collective": ("all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast"),
    "--device": ("auto", "cpu", "cuda"),
    "--format": FORMATS,
    "topology export --format": ("slurm-conf", "slurm-yaml", "topograph", "kubectl", "simgrid"),
    "--method": ("stamp", "icmp", "tcp", "iperf3", "auto"),
    "--model": ("auto", "latency", "alpha-beta", "contention", "simulated"),
    "advise --model": ("auto", "alpha-beta", "contention", "simulated"),
    "--preemption-source": ("aws", "gcp", "azure"),
    "probe --pairs": ("all", "adaptive"),
    "--set": ("fan-out=", "base=", "levels=", "segments=", "sharded=", "colocated=", "servers=", "root="),
    **{f"{command} --set": _SETTINGS for command in _JOB_COMMANDS},
}


@dataclass(frozen=True)
class Suggestion:
    """Completion as Click expects it. ``type`` is always ``plain``."""

    value: str
    help: str | None = None
    type: str = "plain"


def attach(command: Any, words: tuple[str, ...] = ()) -> None:
    """Attach completion to a command and all its subcommands. ``words``: what is typed before it."""
    for parameter in command.params:
        offer = _offer(" ".join(words), parameter)
        if offer is not None:
            parameter.shell_complete = partial(_suggest, offer)
    for name, child in getattr(command, "commands", {}).items():
        attach(child, (*words, name))


Offer = Callable[[Any, str], Iterable[str]]


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
    return _read_names(run_named(workspace.RUNS, str(ctx.params.get("name") or "last")).folder / "run.json")


def _lab_hosts(ctx: Any, links: bool) -> list[str]:
    """Return the lab's hosts in order, with its racks, pods, switches and interfaces where one is accepted."""
    file = str(_LABS / str(ctx.params.get("name") or "lab") / "lab.json")
    blueprint = from_json(read_document(file), file)
    names = sorted(place.name for place in blueprint.places)
    if not links:
        return names
    count = blueprint.settings.interfaces if blueprint.switches else 0
    interfaces = [f"{name}/eth{number}" for name in names for number in range(count)]
    return [*names, *blueprint.racks, *blueprint.pods, *blueprint.switches, *interfaces]

"""Which options of ``plink launch`` do not go together, or with a runner."""

import re
import shlex

from plink.errors import UsageError
from runners.choice import KUBERNETES, known_runner

# Launchers of others start the ranks: no agent of plink's is on the hosts.
_OF_OTHERS = ("mpirun", "mpich", "slurm")


def refuse_together(runner: str, **typed: object) -> None:
    """``typed``: the options' values by name, None for those that were not typed.

    :raises UsageError: for the first thing that cannot be.
    """
    known_runner(runner)
    there = {name for name, value in typed.items() if value is not None}
    if runner == KUBERNETES and there & {"sync", "ab"}:
        raise UsageError("--sync and --ab need hosts that plink starts the job on, which --runner kubernetes does not")
    if runner in _OF_OTHERS and "sync" in there:
        raise UsageError(f"--sync goes with agents of plink's on the hosts; --runner {runner} has none")
    if {"sync", "workdir"} <= there:
        raise UsageError("--sync runs the job in the copy; leave --workdir away")
    if "figure" in there and "ab" not in there:
        raise UsageError("--figure and --higher-is-better go with --ab")
    if "ab" in there and there & {"given", "again", "dry_run", "submit"}:
        raise UsageError("--ab runs both orders anew; leave --given, --again, --dry-run and --submit away")
    if "slots" in there and runner != "local":
        raise UsageError("--slots goes with --runner local; the hosts file says how many ranks a host takes (slots=N)")
    if runner == KUBERNETES and "backend" in there:
        raise UsageError(
            "--backend: pods get their schedule from a file in the image; set PLINK_BACKEND and PLINK_PLAN"
        )
    if {"backend", "ab"} <= there:
        raise UsageError("--backend has a schedule for one order; --ab runs two (start the job with and without it)")
    if "autotune" in there and ("backend" not in there or runner not in ("ssh", "local") or "submit" in there):
        raise UsageError("--autotune goes with --backend, and with --runner ssh or local")
    if "tuning" in there and "autotune" not in there:
        raise UsageError("--autotune-every and --autotune-change go with --autotune")
    if "launcher_args" in there and runner not in _OF_OTHERS:
        raise UsageError(f"--launcher-args: --runner {runner} has no launcher of others that would take them")
    if "submit" in there and runner != "slurm":
        raise UsageError(f"--submit: --runner {runner} has no queue; `--runner slurm` has")


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def named_values(settings: list[str]) -> dict[str, str]:
    """NAME=VALUE words as a dictionary.

    :raises UsageError: for one that is written otherwise, or whose name no shell would take.
    """
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env {setting}: write NAME=VALUE")
        found[name] = value
    return found


def split_words(text: str | None) -> tuple[str, ...]:
    """``--launcher-args`` as words.

    :raises UsageError: for a quote that is not closed.
    """
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise UsageError(f"--launcher-args {text}: {error}") from None

"""What hosts say of themselves before a job: reasons not to start it, in one line that names them."""

from collections.abc import Mapping, Sequence

from plink.errors import PlinkError
from runners.job.job import Job

BACKEND = "PLINK_BACKEND"  # set where the ranks' all-reduces are to go by a schedule (plink/runtime/torch_backend.py)


def refuse(
    bad: Sequence[tuple[str, Sequence[str]]], versions: Mapping[str, Mapping[str, str | None] | None], job: Job
) -> None:
    """Stop before anything is run where hosts cannot run the program, or would run it with other versions.

    :param bad: hosts, in rank order, and their problems.
    :param versions: of Python and PyTorch, by host; None: unknown.
    :raises PlinkError: naming hosts.
    """
    by_why: dict[str, list[str]] = {}
    for name, problems in bad:
        by_why.setdefault("; ".join(problems), []).append(name)
    _stop(by_why)
    if BACKEND in job.env:
        without = [name for name, found in versions.items() if found is not None and found.get("plink") is None]
        needs = "--backend needs plink in the Python there (install the wheel: docs/install.md)"
        _stop({needs: without} if without else {})
    kinds: dict[tuple[str | None, str | None], list[str]] = {}
    for name, found in versions.items():
        if found is not None:
            kinds.setdefault((found.get("python"), found.get("torch")), []).append(name)
    if len(kinds) > 1 and not job.mixed_versions:
        said = [
            f"{_version(kind)} on {_some(names)}" for kind, names in sorted(kinds.items(), key=lambda k: -len(k[1]))
        ]
        raise PlinkError(f"hosts differ: {', '.join(said)}; nothing was run (--set allow-version-mismatch=yes runs it)")


def refuse_unreached(first: str, address: str, port: int, why: Mapping[str, str]) -> None:
    """Stop where hosts cannot reach the first rank's, at which the ranks of a job meet. ``why``, by host.

    :raises PlinkError: naming them.
    """
    by_why: dict[str, list[str]] = {}
    for name, reason in why.items():
        by_why.setdefault(f"cannot reach port {port} of {address} ({first}, rank 0's host): {reason}", []).append(name)
    _stop(by_why)


def _stop(by_why: Mapping[str, Sequence[str]]) -> None:
    """One line for hosts that have the same trouble."""
    if by_why:
        said = [f"{_first(list(dict.fromkeys(names)), why)}" for why, names in by_why.items()]
        more = f" | and {len(said) - 3} more kinds of trouble" if len(said) > 3 else ""
        raise PlinkError(f"{' | '.join(said[:3])}{more}; nothing was run")


def _first(names: Sequence[str], why: str) -> str:
    more = ""
    if len(names) > 1:
        more = f" (and {len(names) - 1} more hosts: {', '.join(names[1:4])}{' ...' if len(names) > 4 else ''})"
    return f"{names[0]}: {why}{more}"


def _version(kind: tuple[str | None, str | None]) -> str:
    python, torch = kind
    return f"Python {python} {f'with PyTorch {torch}' if torch else 'without PyTorch'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

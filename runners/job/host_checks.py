"""Checks of hosts before a job; what they refuse is one line that names hosts."""

from collections.abc import Mapping, Sequence

from plink.errors import PlinkError
from runners.job.job import Job

BACKEND = "PLINK_BACKEND"  # set where all-reduces follow a schedule (plink/runtime/torch_backend.py)


def check_hosts(
    invalid_hosts: Sequence[tuple[str, Sequence[str]]],
    versions: Mapping[str, Mapping[str, str | None] | None],
    job: Job,
) -> None:
    """Refuse hosts that cannot run the program, or would run it with different versions.

    :param invalid_hosts: in rank order, and their problems.
    :param versions: of Python and PyTorch, by host; None: unknown.
    :raises PlinkError: naming hosts.
    """
    hosts_by_problem: dict[str, list[str]] = {}
    for name, problems in invalid_hosts:
        hosts_by_problem.setdefault("; ".join(problems), []).append(name)
    _refuse(hosts_by_problem)
    if BACKEND in job.env:
        without_plink = [
            name for name, installed in versions.items() if installed is not None and installed.get("plink") is None
        ]
        requirement = "--backend needs plink in the hosts' Python (install the wheel: docs/install.md)"
        _refuse({requirement: without_plink} if without_plink else {})
    hosts_by_version: dict[tuple[str | None, str | None], list[str]] = {}
    for name, installed in versions.items():
        if installed is not None:
            hosts_by_version.setdefault((installed.get("python"), installed.get("torch")), []).append(name)
    if len(hosts_by_version) > 1 and not job.allow_version_mismatch:
        groups = [
            f"{_version(version)} on {_name_some(names)}"
            for version, names in sorted(hosts_by_version.items(), key=lambda item: -len(item[1]))
        ]
        raise PlinkError(
            f"hosts differ: {', '.join(groups)}; nothing was run (--set allow-version-mismatch=yes runs it)"
        )


def check_connectivity(first: str, address: str, port: int, errors: Mapping[str, str]) -> None:
    """Refuse hosts that cannot reach rank 0's host, where the rendezvous is.

    :param errors: by host. :raises PlinkError: naming them.
    """
    hosts_by_problem: dict[str, list[str]] = {}
    for name, reason in errors.items():
        hosts_by_problem.setdefault(
            f"cannot reach port {port} of {address} ({first}, rank 0's host): {reason}", []
        ).append(name)
    _refuse(hosts_by_problem)


def _refuse(hosts_by_problem: Mapping[str, Sequence[str]]) -> None:
    """Raise one error for hosts by their problems."""
    if hosts_by_problem:
        texts = [f"{_name_first(list(dict.fromkeys(names)), problem)}" for problem, names in hosts_by_problem.items()]
        more = f" | and {len(texts) - 3} more problems" if len(texts) > 3 else ""
        raise PlinkError(f"{' | '.join(texts[:3])}{more}; nothing was run")


def _name_first(names: Sequence[str], problem: str) -> str:
    more = ""
    if len(names) > 1:
        more = f" (and {len(names) - 1} more hosts: {', '.join(names[1:4])}{' ...' if len(names) > 4 else ''})"
    return f"{names[0]}: {problem}{more}"


def _version(version: tuple[str | None, str | None]) -> str:
    python, torch = version
    return f"Python {python} {f'with PyTorch {torch}' if torch else 'without PyTorch'}"


def _name_some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

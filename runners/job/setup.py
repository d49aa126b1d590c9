"""Setup of hosts before a job: agents, a copy of the user's folder, what each host would run, and connectivity.

Whatever keeps the job from running is reported before anything of the user's is started.
"""

import base64
import hashlib
import itertools
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plink.errors import HostError, PlinkError, UsageError
from plink.model.hosts import HUB
from plink.records.scratch import scratch_folder
from plink.transport.fleet import sample_peers
from runners.job.agent_pool import AgentPool
from runners.job.messages import (
    Connected,
    CopyFound,
    Extracted,
    FlowPort,
    FlowRate,
    HostReady,
    HostSetup,
    ListenerClosed,
    ListenerOpened,
    PartStored,
    PlacementReport,
    Versions,
)
from runners.job.placement import Located, RankAssignment, check_placement, verify_placement
from runners.job.runner import Flow, FlowResults, Job, RunContext

HostSetups = dict[str, HostSetup]
_COPY_ANSWERS: type[PartStored | Extracted] = PartStored | Extracted  # type: ignore[assignment]
_EXTRACT_TIMEOUT_S = 300.0
_PARTS_IN_FLIGHT = 4  # to one host
_MAX_NAMED_HOSTS = 4
_HUB_MODULE = "plink.runtime.allreduce.hub"


_FLOW_S = 0.5  # as the flows that measure hosts (:mod:`probes.host_flows`), so that rates compare
_MAX_FLOW_BYTES = 64_000_000
_ACCEPT_S = 0.7  # until a flow has connected
BACKEND = "PLINK_BACKEND"  # set where all-reduces follow a schedule (plink/runtime/torch_backend.py)
# Not part of a program, or created again.
EXCLUDED_FOLDERS = frozenset({".git", ".hg", ".plink", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"})
_MAX_BYTES = 1 << 30
_PART_BYTES = 1 << 16  # about a second at the slowest rates that anybody trains over


def set_up_hosts(
    pool: AgentPool, progress: Callable[[str, int, int], None], peers: Sequence[str] = (), low_priority: bool = False
) -> HostSetups:
    """Start agents on all hosts and return what each host would run.

    :param progress: see :class:`runners.job.runner.RunObserver`.
    :param peers: addresses of hosts of the job beside these.
    :param low_priority: agents run at low priority until ranks start.
    :raises PlinkError: when hosts cannot be reached, or could not run the job; names them.
    """
    hosts, job = pool.hosts, pool.job
    done = itertools.count(1)
    settings: dict[str, object] = {"low_priority": True} if low_priority else {}
    failures = pool.fleet.start(hosts, settings, lambda: progress("connecting", next(done), len(hosts)))
    if failures:
        raise _merged_error(list(failures.values()))
    samples = sample_peers([*peers, *(host.address for host in hosts)])
    for host in hosts:
        pool.fleet.send(host.name, method="begin", address=host.address, peers=samples[host.address])
    pool.identities = pool.each(HostReady, hosts.names)
    samples = sample_peers([*peers, *(pool.identities[name].address for name in hosts.names)])
    copies = {} if job.sync is None else _copy_folder(pool, job.sync, progress)
    for host in hosts:
        host_job = job if host.name not in copies else _job_in_copy(job, copies[host.name])
        if host.role == HUB:
            host_job = replace(job, program="-m", args=(_HUB_MODULE,), workdirs=("/",))
        pool.fleet.send(
            host.name,
            method="set_up",
            peers=samples[pool.identities[host.name].address],
            program=host_job.program,
            args=list(host_job.args),
            workdirs=list(host_job.workdirs),
            pythons=list(host_job.pythons),
            pythonpath=host_job.env.get("PYTHONPATH", ""),
            interface=host_job.interface,
            port=host_job.master_port if host is hosts.members[0] else 0,
        )
    setups = pool.each(HostSetup, hosts.names)
    invalid = [(name, setups[name].problems) for name in hosts.names if setups[name].problems]
    check_hosts(invalid, {name: setups[name].versions for name in hosts.names}, job)
    if len(hosts) > 1:
        _check_connectivity(pool, setups)
    return setups


def verify_hosts(assignments: list[RankAssignment], pool: AgentPool) -> None:
    """Verify, before ranks start, the placement that they would have, by the identities that agents report.

    :raises PlacementError: when a rank would be on another host.
    """
    reports: dict[int, tuple[str | None, Located]] = {}
    for rank in assignments:
        identity = pool.identities[rank.host]
        reports[rank.rank] = rank.host, PlacementReport(rank.rank, 0, identity.hostname, identity.addresses)
    check_placement(verify_placement(assignments, reports))


def _check_connectivity(pool: AgentPool, setups: HostSetups) -> None:
    """Check that every host reaches the port on rank 0's host where the job's rendezvous will be."""
    first, *others = pool.hosts.names
    address, port = setups[first].address, setups[first].port
    pool.fleet.send(first, method="open_listener", address=address, port=port)
    error = pool.each(ListenerOpened, [first])[first].error
    if error is not None:
        check_hosts([(first, [f"port {port} of {address} cannot be used: {error}"])], {}, pool.job)
    for name in others:
        pool.fleet.send(name, method="connect", address=address, port=port)
    answers = pool.each(Connected, others)
    pool.fleet.send(first, method="close_listener")
    pool.each(ListenerClosed, [first])
    check_connectivity(first, address, port, {name: error for name in others if (error := answers[name].error)})


def _copy_folder(pool: AgentPool, folder: Path, progress: Callable[[str, int, int], None]) -> dict[str, str]:
    """Copy the user's folder to the hosts that lack it; return the path of the copy by host.

    A host is sent the next part when it has stored another, so that lease renewals, and Ctrl-C, are not held up.
    """
    with scratch_folder() as scratch:
        archive = archive_folder(folder, scratch / "archive.tar")
        names = pool.hosts.ranked().names
        for name in names:
            pool.fleet.send(name, method="has_digest", digest=archive.digest)
        copies = {name: answer.path for name, answer in pool.each(CopyFound, names).items()}
        paths = {name: path for name, path in copies.items() if path is not None}
        uploads = {name: archive.parts() for name in names if name not in paths}
        total, stored = len(uploads) * archive.size, 0
        pending = set(uploads)
        for name, parts in uploads.items():
            for _ in range(_PARTS_IN_FLIGHT):
                _send_next(pool, name, parts, archive.digest)
        while pending:
            try:
                name, answer = pool.next_of(_COPY_ANSWERS, _EXTRACT_TIMEOUT_S)
            except TimeoutError:
                named = ", ".join(sorted(pending)[:_MAX_NAMED_HOSTS])
                raise PlinkError(f"{named}: no answer for {_EXTRACT_TIMEOUT_S:.0f} s while copying {folder}") from None
            if name not in pending:
                continue
            if isinstance(answer, PartStored):
                stored += answer.bytes
                progress("copying", min(stored, total), total)
                _send_next(pool, name, uploads[name], archive.digest)
            elif answer.path is None:
                raise HostError(name, f"cannot store a copy of {folder}: {answer.error or 'no reason given'}")
            else:
                paths[name] = answer.path
                pending.discard(name)
    return paths


def _send_next(pool: AgentPool, name: str, parts: Iterator[bytes], digest: str) -> None:
    """Send the next part, and after the last one the request to extract."""
    part = next(parts, None)
    if part is not None:
        pool.fleet.send(name, method="upload_part", data=base64.b64encode(part).decode())
        return
    # Sent once for each part in flight; the agent extracts at the first.
    pool.fleet.send(name, method="extract", digest=digest)


def _job_in_copy(job: Job, copy: str) -> Job:
    """Return the job with its folder replaced by a copy.

    :raises UsageError: for a program that is not in the folder.
    """
    assert job.sync is not None
    folder, workdir = job.sync.resolve(), Path(job.workdirs[0]).resolve()
    copied_workdir = Path(copy, workdir.relative_to(folder) if workdir.is_relative_to(folder) else ".")
    if "/" not in job.program and not job.program.endswith(".py"):
        return replace(job, workdirs=(str(copied_workdir),))
    path = Path(workdir, job.program)
    program = path.parent.resolve() / path.name
    if not program.is_relative_to(folder):
        if job.program.endswith(".py"):
            raise UsageError(f"--sync {job.sync}: {job.program} is not in it, so it would not be the copy that runs")
        return replace(job, workdirs=(str(copied_workdir),))
    copied = os.path.relpath(Path(copy, program.relative_to(folder)), copied_workdir)
    return replace(job, workdirs=(str(copied_workdir),), program=copied if "/" in copied else f"./{copied}")


def _merged_error(errors: list[HostError]) -> PlinkError:
    error = errors[0]
    return type(error)(error.host, error.reason + _and_others([other.host for other in errors]))


def check_network(pool: AgentPool, context: RunContext) -> None:
    """Have the network checked, where that was asked for, between the addresses that hosts were measured at.

    :raises PlinkError: what the check refuses, and when an agent is lost meanwhile.
    """
    if context.check_network is not None:
        addresses = {name: identity.address for name, identity in pool.identities.items()}
        context.check_network(lambda flows: _run_flows(pool, addresses, flows))


def _run_flows(pool: AgentPool, addresses: dict[str, str], flows: Sequence[Flow]) -> FlowResults:
    receivers = [receiver for _, receiver in flows]
    for name in receivers:
        pool.fleet.send(name, method="flow_listen", address=addresses[name])
    ports = {name: answer.port for name, answer in pool.each(FlowPort, receivers).items()}
    results: FlowResults = {flow: f"{flow[1]} cannot listen for a flow" for flow in flows if ports[flow[1]] is None}
    requests: dict[str, dict[str, object]] = {}
    for sender, receiver in flows:
        if ports[receiver] is not None:
            token = secrets.token_hex(32)
            requests.setdefault(receiver, {})["receive_token"] = token
            requests.setdefault(sender, {}).update(send_token=token, peer=[addresses[receiver], ports[receiver]])
    limits = {"seconds": _FLOW_S, "max_bytes": _MAX_FLOW_BYTES, "accept_s": _ACCEPT_S}
    for name, request in requests.items():
        pool.fleet.send(name, method="flow_exchange", **request, **limits)
    answers = pool.each(FlowRate, list(requests))
    for flow in flows:
        if flow not in results:
            rate = answers[flow[1]].gbps
            reasons = [answers[name].error for name in reversed(flow)]
            results[flow] = rate if rate is not None else next(filter(None, reasons), "no rate was reported")
    return results


def check_hosts(
    invalid_hosts: Sequence[tuple[str, Sequence[str]]], versions: Mapping[str, Versions | None], job: Job
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
            name for name, installed in versions.items() if installed is not None and installed.plink is None
        ]
        requirement = "--backend needs plink in the hosts' Python (install the wheel: docs/install.md)"
        _refuse({requirement: without_plink} if without_plink else {})
    hosts_by_version: dict[tuple[str | None, str | None], list[str]] = {}
    for name, installed in versions.items():
        if installed is not None:
            hosts_by_version.setdefault((installed.python, installed.torch), []).append(name)
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
    return f"{names[0]}: {problem}{_and_others(names)}"


def _and_others(names: Sequence[str]) -> str:
    """Return what follows an error of the first of these hosts."""
    number = len(names) - 1
    others = f"{', '.join(names[1:4])}{' ...' if number > 3 else ''}"
    return f" (and {number} more host{'s' * (number > 1)}: {others})" if number else ""


def _version(version: tuple[str | None, str | None]) -> str:
    python, torch = version
    return f"Python {python} {f'with PyTorch {torch}' if torch else 'without PyTorch'}"


def _name_some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@dataclass(frozen=True)
class WorkspaceArchive:
    """An archive file.

    :param digest: SHA-256 of the archive, hexadecimal.
    """

    digest: str
    file: Path

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return self.file.stat().st_size

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes in parts."""
        with self.file.open("rb") as file:
            while part := file.read(_PART_BYTES):
                yield part


def archive_folder(folder: Path, target: Path) -> WorkspaceArchive:
    """Archive a folder's files into ``target``, without :data:`EXCLUDED_FOLDERS`; follows links.

    :raises UsageError: when it is no folder, or too large. :raises PlinkError: when it cannot be read or written.
    """
    if not folder.is_dir():
        raise UsageError(f"--sync {folder}: no such folder")
    try:
        size = 0
        with tarfile.open(target, "w", dereference=True) as tar:
            for path in _files(folder):
                size += path.stat().st_size
                if size > _MAX_BYTES:
                    raise UsageError(
                        f"--sync {folder}: more than {_MAX_BYTES >> 30} GiB; copy the program's folder only, "
                        f"and keep data on a file system that the hosts share"
                    )
                entry = tar.gettarinfo(path, str(path.relative_to(folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                entry.mtime = 0
                entry.mode &= 0o755
                with path.open("rb") as file:
                    tar.addfile(entry, file)
        with target.open("rb") as archive:
            digest = hashlib.file_digest(archive, "sha256").hexdigest()
    except OSError as error:
        raise PlinkError(f"cannot archive {folder}: {error.strerror or error}") from None
    return WorkspaceArchive(digest, target)


def _files(folder: Path) -> Iterator[Path]:
    """Yield regular files, sorted by name; follows links, but not back to a folder above them."""
    yield from _files_in(folder, (folder.resolve(),))


def _files_in(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and path.name not in EXCLUDED_FOLDERS and (real := path.resolve()) not in above:
            yield from _files_in(path, (*above, real))

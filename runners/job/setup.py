"""Setup of hosts before a job: agents, a copy of the user's folder, what each host would run, and connectivity.

Whatever keeps the job from running is reported before anything of the user's is started.
"""

import base64
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plink.errors import HostError, PlinkError, UsageError
from plink.model.hosts import HUB
from plink.records.scratch import scratch_folder
from plink.transport.peers import sample_peers
from runners.job.agent_pool import AgentPool
from runners.job.archive import archive_folder
from runners.job.host_checks import check_connectivity, check_hosts
from runners.job.job import Job
from runners.job.placement import RankAssignment, verify_placement
from runners.job.result import check_placement

# By host: what it would run (:func:`runners.job.execution_environment.resolve_execution`), and ``identity``.
HostSetups = dict[str, dict[str, Any]]
_EXTRACT_TIMEOUT_S = 300.0
_PARTS_IN_FLIGHT = 4  # to one host
_MAX_NAMED_HOSTS = 4
_HUB_MODULE = "plink.runtime.allreduce.hub"


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
    identities = pool.each("ready", hosts.names)
    samples = sample_peers([*peers, *(identities[name]["address"] for name in hosts.names)])
    copies = {} if job.sync is None else _copy_folder(pool, job.sync, progress)
    for host in hosts:
        host_job = job if host.name not in copies else _job_in_copy(job, copies[host.name])
        if host.role == HUB:
            host_job = replace(job, program="-m", args=(_HUB_MODULE,), workdirs=("/",))
        pool.fleet.send(
            host.name,
            method="set_up",
            peers=samples[identities[host.name]["address"]],
            program=host_job.program,
            args=list(host_job.args),
            workdirs=list(host_job.workdirs),
            pythons=list(host_job.pythons),
            interface=host_job.interface,
            port=host_job.master_port if host is hosts.members[0] else 0,
        )
    setups = pool.each("set_up", hosts.names)
    for name in hosts.names:
        setups[name]["identity"] = identities[name]
    invalid = [(name, setups[name]["problems"]) for name in hosts.names if setups[name]["problems"]]
    check_hosts(invalid, {name: setups[name]["versions"] for name in hosts.names}, job)
    if len(hosts) > 1:
        _check_connectivity(pool, setups)
    return setups


def verify_hosts(assignments: list[RankAssignment], setups: HostSetups) -> None:
    """Verify, before ranks start, the placement that they would have, by the identities that agents report.

    :raises PlacementError: when a rank would be on another host.
    """
    reports = {name: {**setup["identity"], "pid": 0} for name, setup in setups.items()}
    by_rank = {assignment.rank: (assignment.host, reports[assignment.host]) for assignment in assignments}
    check_placement(verify_placement(assignments, by_rank))


def _check_connectivity(pool: AgentPool, setups: HostSetups) -> None:
    """Check that every host reaches the port on rank 0's host where the job's rendezvous will be."""
    first, *others = pool.hosts.names
    address, port = setups[first]["address"], setups[first]["port"]
    pool.fleet.send(first, method="open_listener", address=address, port=port)
    error = pool.each("listener_opened", [first])[first]["error"]
    if error is not None:
        check_hosts([(first, [f"port {port} of {address} cannot be used: {error}"])], {}, pool.job)
    for name in others:
        pool.fleet.send(name, method="connect", address=address, port=port)
    errors = {name: answer["error"] for name, answer in pool.each("connected", others).items()}
    pool.fleet.send(first, method="close_listener")
    pool.each("listener_closed", [first])
    check_connectivity(first, address, port, {name: errors[name] for name in others if errors[name]})


def _copy_folder(pool: AgentPool, folder: Path, progress: Callable[[str, int, int], None]) -> dict[str, str]:
    """Copy the user's folder to the hosts that lack it; return the path of the copy by host.

    A host is sent the next part when it has stored another, so that lease renewals, and Ctrl-C, are not held up.
    """
    with scratch_folder() as scratch:
        archive = archive_folder(folder, scratch / "archive.tar")
        names = pool.hosts.ranked().names
        for name in names:
            pool.fleet.send(name, method="has_digest", digest=archive.digest)
        paths = {name: answer["path"] for name, answer in pool.each("digest", names).items()}
        uploads = {name: archive.parts() for name, path in paths.items() if path is None}
        total, stored = len(uploads) * archive.size, 0
        pending = set(uploads)
        for name, parts in uploads.items():
            for _ in range(_PARTS_IN_FLIGHT):
                _send_next(pool, name, parts, archive.digest)
        while pending:
            try:
                name, answer = pool.next_of(("part_stored", "extracted"), _EXTRACT_TIMEOUT_S)
            except TimeoutError:
                named = ", ".join(sorted(pending)[:_MAX_NAMED_HOSTS])
                raise PlinkError(f"{named}: no answer for {_EXTRACT_TIMEOUT_S:.0f} s while copying {folder}") from None
            if name not in pending:
                continue
            if answer["type"] == "part_stored":
                stored += answer["bytes"]
                progress("copying", min(stored, total), total)
                _send_next(pool, name, uploads[name], archive.digest)
            elif answer["path"] is None:
                raise HostError(name, f"cannot store a copy of {folder}: {answer['error'] or 'no reason given'}")
            else:
                paths[name] = answer["path"]
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
    if len(errors) == 1:
        return error
    others = ", ".join(other.host for other in errors[1:4]) + (" ..." if len(errors) > 4 else "")
    return type(error)(error.host, f"{error.reason} (and {len(errors) - 1} more hosts: {others})")

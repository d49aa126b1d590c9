"""Before a job: agents on all hosts, the user's folder where it was to be copied, what each host would run, and whether
the ranks can meet. Whatever keeps the job from running is told before anything of the user's is started.
"""

import base64
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plink.errors import HostError, PlinkError, UsageError
from plink.records.scratch import scratch_folder
from plink.remote.peers import few_peers
from runners.job.crew import Crew
from runners.job.job import Job
from runners.job.packing import pack
from runners.job.preflight import refuse, refuse_unreached
from runners.job.proof import Seat, verify
from runners.job.result import kept

Prepared = dict[str, dict[str, Any]]
_UNPACK_S = 300.0
_AHEAD = 4  # pieces on their way to a host


def prepare(
    crew: Crew,
    connected: Callable[[int, int], None],
    copied: Callable[[int, int], None],
    peers: Sequence[str] = (),
    stands_back: bool = False,
) -> Prepared:
    """What each host would run, by name (:func:`runners.job.workplace.workplace`).

    :param peers: addresses of hosts that these are to reach beside each other.
    :param stands_back: agents leave the cores to what else runs there until ranks are let go.
    :raises PlinkError: when hosts cannot be reached, or could not run the job; names them.
    """
    hosts = crew.hosts
    done = itertools.count(1)
    failures = crew.fleet.start(
        hosts, {"stands_back": True} if stands_back else {}, lambda: connected(next(done), len(hosts))
    )
    if failures:
        raise _first_of(list(failures.values()))
    others = few_peers([*peers, *(host.address for host in hosts)])
    for host in hosts:
        crew.fleet.send(host.name, do="begin", asked=host.address, peers=others[host.address])
    ready = crew.each("ready", hosts.names)
    others = few_peers([*peers, *(ready[name]["address"] for name in hosts.names)])
    copies = {} if crew.job.sync is None else _copy(crew, crew.job.sync, copied)
    for host in hosts:
        job = crew.job if host.name not in copies else _in_copy(crew.job, copies[host.name])
        crew.fleet.send(
            host.name,
            do="prepare",
            peers=others[ready[host.name]["address"]],
            program=job.program,
            args=list(job.args),
            workdirs=list(job.workdirs),
            pythons=list(job.pythons),
            interface=job.interface,
            port=job.master_port if host is hosts.members[0] else 0,
        )
    prepared = crew.each("prepared", hosts.names)
    for name in hosts.names:
        prepared[name]["machine"] = ready[name]
    bad = [(name, prepared[name]["problems"]) for name in hosts.names if prepared[name]["problems"]]
    refuse(bad, {name: prepared[name]["versions"] for name in hosts.names}, crew.job)
    if len(hosts) > 1:
        _meet(crew, prepared)
    return prepared


def placed(asked: list[Seat], prepared: Prepared) -> None:
    """Compare where ranks would be with where they were asked to be, by what the agents say of their machines.

    :raises OrderNotKept: when one would be elsewhere.
    """
    machines = {name: {**here["machine"], "pid": 0} for name, here in prepared.items()}
    kept(verify(asked, {seat.rank: (seat.host, machines[seat.host]) for seat in asked}))


def _meet(crew: Crew, prepared: Prepared) -> None:
    """Every host reaches the port on the first rank's where the job's rendezvous will be."""
    first, *others = crew.hosts.names
    at = {"address": prepared[first]["address"], "port": prepared[first]["port"]}
    crew.fleet.send(first, do="listen", **at)
    answer = crew.each("listening", [first])[first]
    if answer["why"] is not None:
        refuse([(first, [f"port {at['port']} of {at['address']} cannot be used: {answer['why']}"])], {}, crew.job)
    for name in others:
        crew.fleet.send(name, do="reach", **at)
    reached = crew.each("reached", others)
    crew.fleet.send(first, do="hang up")
    crew.each("hung up", [first])
    refuse_unreached(first, **at, why={name: reached[name]["why"] for name in others if reached[name]["why"]})


def _copy(crew: Crew, folder: Path, copied: Callable[[int, int], None]) -> dict[str, str]:
    """The user's folder on every host; returns where, by host. Hosts that have it already are sent nothing.

    A host is sent the next piece when it has taken another, so that renewals of its lease, and Ctrl-C, are not held up.
    """
    with scratch_folder() as scratch:
        package = pack(folder, scratch / "archive.tar")
        crew.fleet.send_all(do="have", digest=package.digest)
        where = {name: answer["path"] for name, answer in crew.each("has", crew.hosts.names).items()}
        left = {name: package.pieces() for name, path in where.items() if path is None}
        total, taken = len(left) * package.size, 0
        waited_for = set(left)
        for name, pieces in left.items():
            for _ in range(_AHEAD):
                _send_next(crew, name, pieces, package.digest)
        while waited_for:
            try:
                ((name, answer),) = crew.gather_any(("took", "unpacked"), _UNPACK_S)
            except TimeoutError:
                silent = ", ".join(sorted(waited_for)[:4])
                raise PlinkError(f"{silent}: nothing was heard of the copy of {folder} for {_UNPACK_S:.0f} s") from None
            if name not in waited_for:
                continue
            if answer["is"] == "took":
                taken += answer["bytes"]
                copied(min(taken, total), total)
                _send_next(crew, name, left[name], package.digest)
            elif answer["path"] is None:
                raise HostError(name, f"cannot keep a copy of {folder}: {answer['why'] or 'it does not say why'}")
            else:
                where[name] = answer["path"]
                waited_for.discard(name)
    return where


def _send_next(crew: Crew, name: str, pieces: Iterator[bytes], digest: str) -> None:
    """The next piece, and after the last one the word to unpack."""
    piece = next(pieces, None)
    if piece is not None:
        crew.fleet.send(name, do="piece", data=base64.b64encode(piece).decode())
        return
    # Told once for each piece that was ahead; the agent unpacks at the first.
    crew.fleet.send(name, do="unpack", digest=digest)


def _in_copy(job: Job, copy: str) -> Job:
    """The job as it stands in a copy of its folder: what would be done in that folder is done in the copy.

    :raises UsageError: for a program that is not in the folder.
    """
    assert job.sync is not None
    folder, here = job.sync.resolve(), Path(job.workdirs[0]).resolve()
    inside = Path(copy, here.relative_to(folder) if here.is_relative_to(folder) else ".")
    if "/" not in job.program and not job.program.endswith(".py"):
        return replace(job, workdirs=(str(inside),))
    typed = Path(here, job.program)
    program = typed.parent.resolve() / typed.name
    if not program.is_relative_to(folder):
        if job.program.endswith(".py"):
            raise UsageError(f"--sync {job.sync}: {job.program} is not in it, so it would not be the copy that runs")
        return replace(job, workdirs=(str(inside),))
    copied = os.path.relpath(Path(copy, program.relative_to(folder)), inside)
    return replace(job, workdirs=(str(inside),), program=copied if "/" in copied else f"./{copied}")


def _first_of(errors: list[HostError]) -> PlinkError:
    error = errors[0]
    if len(errors) == 1:
        return error
    others = ", ".join(other.host for other in errors[1:4]) + (" ..." if len(errors) > 4 else "")
    return type(error)(error.host, f"{error.reason} (and {len(errors) - 1} more hosts: {others})")

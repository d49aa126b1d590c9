"""What a launcher starts in the place of the user's program: it reports who and where it is, then runs that program.

Runs on the hosts: standard library only. The report is one frame on standard output, which every launcher forwards to
where it was started; nothing else of the network is needed. The process id in it is that of the process that becomes
the user's program.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any, NamedTuple

from plink.remote.addresses import local_addresses
from plink.remote.supervisor import NOT_STARTED, supervise
from runners.job.execution_environment import workplace
from runners.launchers import gate, given
from runners.launchers.frames import REPORT
from runners.launchers.rank_supervisor import HANDED_ON, RankSupervisor, write

_HOLD_S = 2.0  # a launcher ends all when the first ends: others that have the same trouble shall have told it


class RankEnvironments(NamedTuple):
    """What the ranks' environments have beside what the launcher gives them.

    ``by_rank``: without the names of interfaces, which are known on the hosts. ``common``: to every rank.
    ``interface_variables``: set where they are not set yet; ``{}`` in a value stands for the interface.
    ``passthrough``: whether the user's own variables are to arrive (:mod:`runners.launchers.environment_passthrough`).
    """

    by_rank: list[dict[str, str]]
    common: dict[str, str]
    interface_variables: dict[str, str]
    passthrough: bool


class Placement(NamedTuple):
    """Where the ranks were found by the job that only reported.

    ``machines``: ``hostname`` and ``addresses`` of each rank's machine; the program does not run on another.
    ``barrier``: ``address`` and ``port`` on ``host``, the first rank's, which all have to reach, and a ``token``; None
    where there is one host only.
    """

    machines: list[dict[str, Any]]
    barrier: dict[str, Any] | None


def main(
    rank_variables: list[str], ask: dict[str, Any], environments: dict[str, Any], placement: dict[str, Any] | None,
    follows: bool, timeout_s: float | None,
) -> None:  # fmt: skip
    """Report, and run the user's program where there is one.

    :param rank_variables: the launcher puts the rank into the first of these that is set.
    :param ask: of :func:`runners.job.execution_environment.workplace`.
    :param environments: fields of :class:`RankEnvironments`.
    :param placement: fields of :class:`Placement`; None: it is not known yet.
    :param follows: whether the program is run, for ``timeout_s`` at most.
    """
    variables = RankEnvironments(**environments)
    expected = None if placement is None else Placement(**placement)
    ranks = len(variables.by_rank)
    rank = next((int(os.environ[name]) for name in rank_variables if name in os.environ), -1)
    own_words = given.taken()
    with contextlib.suppress(OSError):
        os.chdir(os.path.expanduser("~"))  # which folders are relative to, as with SSH
    here = workplace({**ask, "port": ask["port"] if rank == 0 else 0})
    problems = here["problems"]
    if not 0 <= rank < ranks:
        problems.insert(0, f"none of {', '.join(rank_variables)} tells a rank below {ranks}")
    if variables.passthrough and own_words is None:
        problems.append(f"what --env gives did not arrive: let the launcher export {given.VARIABLE}")
    hostname, addresses = socket.gethostname(), local_addresses()
    moved = bool(expected and not problems and not _same(expected.machines[rank], hostname, addresses))
    apart = None
    if expected is not None and expected.barrier is not None and not problems and not moved:
        apart = _apart(expected.barrier, rank, ranks)
        problems += [apart] if apart else []
    keeper = None
    if follows and not problems and not moved:
        interface = here["interface"]
        own = {name: value.format(interface) for name, value in variables.interface_variables.items()}
        usual = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": "=" + interface}
        env = {**own, **os.environ, **usual, **variables.by_rank[rank], **variables.common, **(own_words or {})}
        supervise(HANDED_ON, ends_with_parent=True)
        keeper = RankSupervisor(here["argv"], here["workdir"], env)
    report = {"rank": rank, "pid": keeper.pid if keeper else os.getpid(), "hostname": hostname, "addresses": addresses,
              "moved": moved, "workdir": here["workdir"], "port": here["port"], "address": here["address"],
              "versions": here["versions"], "problems": problems}  # fmt: skip
    write(REPORT, json.dumps(report).encode())
    if keeper is not None:
        os._exit(keeper.run(timeout_s))
    if apart is not None:
        time.sleep(_HOLD_S)
    os._exit(NOT_STARTED if problems or moved else 0)


def _apart(barrier: dict[str, Any], rank: int, ranks: int) -> str | None:
    """None when all ranks have reached the first one's port, else why this one knows of that not to be so."""
    address, port, token = barrier["address"], barrier["port"], barrier["token"]
    if rank == 0:
        return gate.keep(address, port, token, ranks - 1)
    try:
        why = gate.come(address, port, token, rank)
    except gate.BarrierClosed:
        os._exit(NOT_STARTED)
    return why and f"cannot reach port {port} of {address} ({barrier['host']}, rank 0's host): {why}"


def _same(place: dict[str, Any], hostname: str, addresses: list[str]) -> bool:
    known = set(place["addresses"])
    return bool(place["hostname"] == hostname and (not known or known & set(addresses)))

"""Shim that an external launcher starts in place of the user's program: reports its location, then runs the program.

Runs on the hosts: standard library only. The report is one frame on standard output, which every launcher forwards to
where it was started; it needs no other network connection. The process id in it is that of the process that becomes
the user's program.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any, NamedTuple

from plink.transport.addresses import local_addresses
from plink.transport.supervisor import NOT_STARTED, supervise
from runners.job.execution_environment import resolve_execution
from runners.launchers import environment_passthrough
from runners.launchers.frames import REPORT
from runners.launchers.rank_supervisor import FORWARDED_SIGNALS, RankSupervisor, write_frame
from runners.launchers.start_barrier import BarrierClosed, serve_barrier, wait_at_barrier

_HOLD_S = 2.0  # a launcher ends all ranks when the first ends: others with the same problem shall report it before


class RankEnvironments(NamedTuple):
    """What the ranks' environments have besides what the launcher sets.

    ``by_rank``: without the names of interfaces, which are known on the hosts. ``common``: to every rank.
    ``interface_variables``: set where they are not set yet; ``{}`` in a value stands for the interface.
    ``passthrough``: whether the user's own variables are to arrive (:mod:`runners.launchers.environment_passthrough`).
    """

    by_rank: list[dict[str, str]]
    common: dict[str, str]
    interface_variables: dict[str, str]
    passthrough: bool


class ExpectedPlacement(NamedTuple):
    """Where the dry run found the ranks.

    ``identities``: ``hostname`` and ``addresses`` of each rank's host; the program does not run on another.
    ``barrier``: ``address`` and ``port`` on ``host``, rank 0's, to which all have to connect, and a ``token``; None
    where there is one host only.
    """

    identities: list[dict[str, Any]]
    barrier: dict[str, Any] | None


def main(
    rank_variables: list[str], request: dict[str, Any], environments: dict[str, Any],
    placement: dict[str, Any] | None, runs_program: bool, timeout_s: float | None,
) -> None:  # fmt: skip
    """Report, and run the user's program if asked to.

    :param rank_variables: the launcher puts the rank into the first of these that is set.
    :param request: of :func:`runners.job.execution_environment.resolve_execution`.
    :param environments: fields of :class:`RankEnvironments`.
    :param placement: fields of :class:`ExpectedPlacement`; None in the dry run.
    :param runs_program: whether the program is run, for ``timeout_s`` at most.
    """
    variables = RankEnvironments(**environments)
    expected = None if placement is None else ExpectedPlacement(**placement)
    rank_count = len(variables.by_rank)
    rank = next((int(os.environ[name]) for name in rank_variables if name in os.environ), -1)
    user_env = environment_passthrough.unpack_environment()
    with contextlib.suppress(OSError):
        os.chdir(os.path.expanduser("~"))  # which folders are relative to, as with SSH
    execution = resolve_execution({**request, "port": request["port"] if rank == 0 else 0})
    problems = execution["problems"]
    if not 0 <= rank < rank_count:
        problems.insert(0, f"none of {', '.join(rank_variables)} is a rank below {rank_count}")
    if variables.passthrough and user_env is None:
        problems.append(
            f"the variables of --env did not arrive: let the launcher export {environment_passthrough.VARIABLE}"
        )
    hostname, addresses = socket.gethostname(), local_addresses()
    moved = bool(expected and not problems and not _is_same_host(expected.identities[rank], hostname, addresses))
    barrier_error = None
    if expected is not None and expected.barrier is not None and not problems and not moved:
        barrier_error = _pass_barrier(expected.barrier, rank, rank_count)
        problems += [barrier_error] if barrier_error else []
    supervisor = None
    if runs_program and not problems and not moved:
        interface = execution["interface"]
        launcher_env = {name: value.format(interface) for name, value in variables.interface_variables.items()}
        interface_env = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": "=" + interface}
        env = {**launcher_env, **os.environ, **interface_env, **variables.by_rank[rank], **variables.common,
               **(user_env or {})}  # fmt: skip
        supervise(FORWARDED_SIGNALS, ends_with_parent=True)
        supervisor = RankSupervisor(execution["argv"], execution["workdir"], env)
    report = {"rank": rank, "pid": supervisor.pid if supervisor else os.getpid(), "hostname": hostname,
              "addresses": addresses, "moved": moved,
              **{key: execution[key] for key in ("workdir", "port", "address", "versions", "problems")}}  # fmt: skip
    write_frame(REPORT, json.dumps(report).encode())
    if supervisor is not None:
        os._exit(supervisor.run(timeout_s))
    if barrier_error is not None:
        time.sleep(_HOLD_S)
    os._exit(NOT_STARTED if problems or moved else 0)


def _pass_barrier(barrier: dict[str, Any], rank: int, rank_count: int) -> str | None:
    """Return None when all ranks have connected to rank 0's port, else why they have not, as far as this one knows."""
    address, port, token = barrier["address"], barrier["port"], barrier["token"]
    if rank == 0:
        return serve_barrier(address, port, token, rank_count - 1)
    try:
        error = wait_at_barrier(address, port, token, rank)
    except BarrierClosed:
        os._exit(NOT_STARTED)
    return error and f"cannot reach port {port} of {address} ({barrier['host']}, rank 0's host): {error}"


def _is_same_host(identity: dict[str, Any], hostname: str, addresses: list[str]) -> bool:
    expected = set(identity["addresses"])
    return bool(identity["hostname"] == hostname and (not expected or expected & set(addresses)))

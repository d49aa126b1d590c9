"""An MPIJob: workers report their nodes, and the launcher gives mpirun their names in rank order.

The operator writes a host file by the numbers of its workers, which says nothing of nodes. The launcher listens for
the workers instead, writes a file of its own with a line a rank, and has mpirun follow it (the sequential mapper). Each
rank, before it becomes the user's program, checks that it is on its node.

Runs in pods: standard library only. Open MPI 4.1 and 5.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

from plink.transport.command_output import run_to_end
from plink.transport.supervisor import exec_program
from runners.job.execution_environment import resolve_execution
from runners.kubernetes.inside.ranks import (
    REFUSED,
    RankLayout,
    enlist,
    find_group,
    refuse,
    report_rank,
    say,
    say_placed,
)
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, resolve_server

_CHECK_TIMEOUT_S = 300.0
_VERSION_TIMEOUT_S = 60.0
_HOSTFILE = "OMPI_MCA_orte_default_hostfile"  # which the operator sets for the launcher
_RANK = "OMPI_COMM_WORLD_RANK"
_MASTER = "PLINK_MASTER"


def main(**settings: Any) -> None:
    """Run a process of the job; its first argument is its role: launcher, worker, check or rank.

    :param settings: as for :func:`runners.kubernetes.inside.pod.main`, and ``folder``, for files of this pod, and
        ``sshd``, the command that a worker becomes when it has reported.
    """
    role, program, args = sys.argv[1], sys.argv[2], sys.argv[3:]
    if role == "launcher":
        _launcher(settings, [program, *args])
    elif role == "worker":
        _worker(settings, program, args)
    else:
        _rank(settings, program, args, check_only=role == "check")


def _worker(settings: dict[str, Any], program: str, args: list[str]) -> None:
    bootstrap = Bootstrap(**settings["bootstrap"])
    identity = find_group(settings["nodes"], bootstrap)
    with open(_identity_file(settings), "w", encoding="utf-8") as file:
        json.dump(identity, file)
    port = settings["request"]["port"] if identity["group"] == 0 else 0  # only rank 0's pod serves the rendezvous
    execution = _resolve(settings, program, args, resolve_server(bootstrap), port)
    enlist(bootstrap, {**identity, "hostname": socket.gethostname()}, execution)
    os.execv(settings["sshd"][0], settings["sshd"])


def _launcher(settings: dict[str, Any], command: list[str]) -> None:
    nodes, slots = settings["nodes"], settings["slots"]
    reports, refused = RendezvousServer(nodes, Bootstrap(**settings["bootstrap"])).finish()
    if refused is not None:
        refuse(refused)
    names = _operator_names()
    lines = []
    for group, count in enumerate(slots):
        hostname = reports[group]["hostname"]
        lines += [names.get(hostname, hostname)] * count
    hostfile = os.path.join(settings["folder"], "plink-hostfile")
    with open(hostfile, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    master = f"{_MASTER}={reports[0]['address']} {reports[0]['port']}"
    start = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "start.py")
    # The environment of a log-in by SSH may lack the image's paths.
    exports = [option for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ for option in ("-x", name)]
    ranks = [*_mpirun(hostfile), "-n", str(len(lines)), "-x", master, *exports, "python3", start]
    try:
        check = subprocess.run(
            [*ranks, "check", *command], stdin=subprocess.DEVNULL, timeout=_CHECK_TIMEOUT_S
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"mpirun: {error}")
        check = REFUSED
    if check:
        refuse(f"mpirun did not place every rank on its node, or could not start (exit code {check})")
    say_placed(len(lines), command[0])
    os.execvp(ranks[0], [*ranks, "rank", *command])


def _rank(settings: dict[str, Any], program: str, args: list[str], check_only: bool) -> None:
    nodes, layout = settings["nodes"], RankLayout(settings["slots"])
    rank = int(os.environ.get(_RANK, "-1"))
    consequence = "nothing was run" if check_only else "it was not started"  # others may have been, by now
    with open(_identity_file(settings), encoding="utf-8") as file:
        identity = json.load(file)
    group = identity["group"]
    if rank not in layout.ranks(group):
        ranks = ", ".join(map(str, layout.ranks(group)))
        refuse(f"mpirun put rank {rank} on the node {identity['node']}, which has the ranks {ranks}", consequence)
    address, port = os.environ[_MASTER].split()
    execution = _resolve(settings, program, args, address, 0)
    if execution["problems"]:  # a log-in by SSH may find less than the pod did
        refuse(f"{identity['node']}: {'; '.join(execution['problems'])}", consequence)
    if check_only:
        return
    report_rank(rank, nodes[group], identity, os.getpid())
    env = layout.environment(group, rank, {"address": address, "port": port}, execution["interface"])
    exec_program(execution["argv"], execution["workdir"], {**os.environ, **env, **settings["env"]})
    os._exit(REFUSED)


def _resolve(settings: dict[str, Any], program: str, args: list[str], server: str | None, port: int) -> dict[str, Any]:
    peers = [] if server is None else [server]
    return resolve_execution({**settings["request"], "program": program, "args": args, "peers": peers, "port": port})


def _identity_file(settings: dict[str, Any]) -> str:
    """Return the file with this pod's identity: a log-in by SSH has none of the pod's environment."""
    return os.path.join(settings["folder"], f"plink-{socket.gethostname()}.json")


def _operator_names() -> dict[str, str]:
    """Return the workers' names as the operator writes them, by host name."""
    with open(os.environ.get(_HOSTFILE, "/etc/mpi/hostfile"), encoding="utf-8") as file:
        names = [line.split()[0] for line in file if line.strip()]
    return {name.split(".")[0]: name for name in names}


def _mpirun(hostfile: str) -> list[str]:
    output = ""
    try:
        output = run_to_end(["mpirun", "--version"], _VERSION_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        refuse(f"`mpirun --version` fails in the launcher's image ({error})")
    if not re.search(r"\((?:Open MPI|OpenRTE)\) \d", output):
        refuse(f"mpirun is not of Open MPI: {output.strip().splitlines()[:1]}")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # `seq:FILE=` crashes version 5.0.11.
    return ["mpirun", *root, "--hostfile", hostfile, "--map-by", "seq"]

"""An MPIJob: workers say on which node they are, and the launcher gives mpirun their names in the order of the ranks.

The operator writes a host file by the numbers of its workers, which says nothing of nodes. The launcher listens for
the workers instead, writes a file of its own with a line a rank, and has mpirun follow it (the sequential mapper). Each
rank, before it becomes the user's program, looks up what its pod knows of its node.

Runs in pods: standard library only. Open MPI 4.1; its version 5 is asked for the same in its own words.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import Any

from runners.job.execution_environment import workplace
from runners.kubernetes.inside.rendezvous import Bootstrap, RendezvousServer, address_towards, report_to
from runners.kubernetes.inside.ranks import REFUSED
from runners.kubernetes.inside.assignment import Members, say, say_placed, seat, stray, tell

_STRAY_S = 10.0  # to tell the others why they need not wait
_CHECK_S = 300.0
_HOSTFILE = "OMPI_MCA_orte_default_hostfile"  # which the operator sets for the launcher
_RANK = "OMPI_COMM_WORLD_RANK"
_MASTER = "PLINK_MASTER"


def main(**settings: Any) -> None:
    """As :func:`runners.kubernetes.inside.pod.main`, and: ``folder``, for files of this pod, ``sshd``, what a worker is
    when it has reported. The first argument says what this process is: launcher, worker, check or rank."""
    role, program, args = sys.argv[1], sys.argv[2], sys.argv[3:]
    if role == "launcher":
        _launcher(settings, [program, *args])
    elif role == "worker":
        _worker(settings, program, args)
    else:
        _rank(settings, program, args, check_only=role == "check")


def _refuse(why: str, so: str = "nothing was run") -> None:
    say(f"{why}; {so}")
    sys.exit(REFUSED)


def _worker(settings: dict[str, Any], program: str, args: list[str]) -> None:
    nodes, bootstrap = settings["nodes"], Bootstrap(**settings["bootstrap"])
    group, who = seat(nodes)
    if group is None:
        why = stray(who["node"], nodes)
        report_to(bootstrap, {**who, "group": None, "problems": [why]}, _STRAY_S)
        _refuse(why)
    with open(_own_file(settings), "w", encoding="utf-8") as file:
        json.dump({**who, "group": group}, file)
    port = settings["ask"]["port"] if group == 0 else 0  # only there is the rendezvous served
    work = _work(settings, program, args, address_towards(bootstrap), port)
    report = {**who, "group": group, "hostname": socket.gethostname(), "address": work["address"],
              "port": work["port"], "versions": work["versions"], "problems": work["problems"]}  # fmt: skip
    answer = report_to(bootstrap, report, _STRAY_S if work["problems"] else bootstrap.wait_s)
    if work["problems"]:
        _refuse(f"{who['node']}: {'; '.join(work['problems'])}")
    if "refused" in answer:
        _refuse(answer["refused"])
    os.execv(settings["sshd"][0], settings["sshd"])


def _launcher(settings: dict[str, Any], words: list[str]) -> None:
    nodes, slots = settings["nodes"], settings["slots"]
    reports, refused = RendezvousServer(nodes, Bootstrap(**settings["bootstrap"])).end()
    if refused is not None:
        _refuse(refused)
    names = _names_of_the_operator()
    lines = []
    for group, number in enumerate(slots):
        hostname = reports[group]["hostname"]
        lines += [names.get(hostname, hostname)] * number
    hostfile = os.path.join(settings["folder"], "plink-hostfile")
    with open(hostfile, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    master = f"{_MASTER}={reports[0]['address']} {reports[0]['port']}"
    start = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "start.py")
    # A log-in by SSH may know other paths than the image does.
    kept = [word for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ for word in ("-x", name)]
    ranks = [*_mpirun(hostfile), "-n", str(len(lines)), "-x", master, *kept, "python3", start]
    try:
        check = subprocess.run([*ranks, "check", *words], stdin=subprocess.DEVNULL, timeout=_CHECK_S).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"mpirun: {error}")
        check = REFUSED
    if check:
        _refuse(f"mpirun did not put every rank where it was asked to be, or could not start (exit code {check})")
    say_placed(len(lines))
    os.execvp(ranks[0], [*ranks, "rank", *words])


def _rank(settings: dict[str, Any], program: str, args: list[str], check_only: bool) -> None:
    nodes, members = settings["nodes"], Members(settings["slots"])
    rank = int(os.environ.get(_RANK, "-1"))
    so = "nothing was run" if check_only else "it was not started"  # others may have been, by now
    with open(_own_file(settings), encoding="utf-8") as file:
        who = json.load(file)
    group = who["group"]
    if rank not in members.ranks(group):
        own = ", ".join(map(str, members.ranks(group)))
        _refuse(f"mpirun put rank {rank} on the node {who['node']}, which has the ranks {own}", so)
    address, port = os.environ[_MASTER].split()
    work = _work(settings, program, args, address, 0)
    if work["problems"]:  # a log-in by SSH may find less than the pod did
        _refuse(f"{who['node']}: {'; '.join(work['problems'])}", so)
    if check_only:
        return
    tell(rank, nodes[group], who, os.getpid())
    given = members.environment(group, rank, {"address": address, "port": port}, work["interface"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and exec would hand on
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(work["workdir"])
        os.execvpe(work["argv"][0], work["argv"], {**os.environ, **given, **settings["env"]})
    except OSError as error:
        say(f"cannot start {work['argv'][0]}: {error.strerror}")
    os._exit(REFUSED)


def _work(settings: dict[str, Any], program: str, args: list[str], towards: str | None, port: int) -> dict[str, Any]:
    peers = [] if towards is None else [towards]
    return workplace({**settings["ask"], "program": program, "args": args, "peers": peers, "port": port})


def _own_file(settings: dict[str, Any]) -> str:
    """What this pod knows of itself: a log-in by SSH has none of the pod's environment."""
    return os.path.join(settings["folder"], f"plink-{socket.gethostname()}.json")


def _names_of_the_operator() -> dict[str, str]:
    """The workers' names as the operator writes them, by host name."""
    with open(os.environ.get(_HOSTFILE, "/etc/mpi/hostfile"), encoding="utf-8") as file:
        names = [line.split()[0] for line in file if line.strip()]
    return {name.split(".")[0]: name for name in names}


def _mpirun(hostfile: str) -> list[str]:
    said = ""
    try:
        done = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
        said = done.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        _refuse(f"the launcher's image has no mpirun that answers ({error})")
    version = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", said)
    if version is None:
        _refuse(f"mpirun is no Open MPI: {said.strip().splitlines()[:1]}")
        raise AssertionError
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if int(version[1]) < 5:
        return ["mpirun", *root, "--hostfile", hostfile, "--mca", "rmaps", "seq"]
    return ["mpirun", *root, "--map-by", f"seq:FILE={hostfile}"]

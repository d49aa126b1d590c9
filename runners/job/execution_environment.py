"""Resolution of a job's execution environment on a host: program, folder and network interface.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Any

from plink.transport.addresses import family_of, interface_of, own_address_towards
from plink.transport.command_output import run_to_end

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from runners.job.placement import RankAssignment

_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "torch": of("torch"), "plink": of("plink-collectives")}))
"""
_VERSION_LIMIT_S = 20.0
_PYTHON = re.compile(r"python[0-9.]*")


def resolve_execution(request: dict[str, Any]) -> dict[str, Any]:
    """Return what this host would run, or the problems that keep it from running.

    :param request: ``program``, ``args``, ``workdirs``, ``pythons`` as in :class:`runners.job.runner.Job`; ``peers``,
        addresses or names of the other hosts, this one's own may be among them; ``interface``, the one to use, None for
        the one that leads to them; ``port``, where this host would serve the rendezvous, 0 for any free port;
        ``pythonpath``, where packages are besides those installed, none if left out.
    """
    problems: list[str] = []
    # "~" is the home of this host's user.
    folders = [os.path.expanduser(path) for path in request["workdirs"]]
    workdir = next((path for path in folders if os.path.isdir(path)), None)
    if workdir is None:
        problems.append(f"no such folder: {request['workdirs'][0]}")
    at = os.path.join(os.getcwd(), workdir or "/")
    argv, is_python = _command(request["program"], request["args"], request["pythons"], at, problems)
    interface, address = _route(request["peers"], request["interface"], problems)
    return {
        "argv": [*argv, *request["args"]],
        "workdir": workdir or "/",
        "interface": interface,
        "address": address,
        "port": _free_port(address, request["port"], problems),
        "versions": _versions(argv[0], _absolute(request.get("pythonpath", ""), at), problems) if is_python else None,
        "problems": problems,
    }


def _command(
    program: str, args: list[str], pythons: list[str], workdir: str, problems: list[str]
) -> tuple[list[str], bool]:
    """Return (the command before its arguments, whether it is an existing Python with an existing script)."""
    is_module = program == "-m"  # of a package that the interpreter has
    if not program.endswith(".py") and not is_module:
        path = _find_program(program, workdir)
        if path is None:
            problems.append(f"no such program: {program}")
            return [program], False
        is_python = bool(_PYTHON.fullmatch(os.path.basename(program)) and args and args[0].endswith(".py"))
        return [path], is_python and _check_script(args[0], workdir, problems)
    python = next((path for path in (_find_program(name, workdir) for name in pythons) if path), None)
    if python is None:
        problems.append(f"no such program: {pythons[0]}")
        return [program], False
    if is_module or _check_script(program, workdir, problems):
        return [python, program], True
    return [program], False


def _find_program(name: str, workdir: str) -> str | None:
    """Return the path of a program; a name with a slash is relative to the folder that it is started in."""
    return shutil.which(name if "/" not in name else os.path.join(workdir, name))


def _check_script(script: str, workdir: str, problems: list[str]) -> bool:
    exists = os.path.isfile(os.path.join(workdir, script))
    if not exists:
        problems.append(f"no such file: {os.path.join(workdir, script)}")
    return exists


def _route(peers: list[str], interface_option: str | None, problems: list[str]) -> tuple[str, str]:
    """Return (the interface, this host's address on the way to the others)."""
    if not peers:
        return interface_option or "lo", "127.0.0.1"
    address, error = own_address_towards(peers)
    problems += [error] if error is not None else []
    interface = interface_option or interface_of(address)
    if interface is None:
        problems.append(f"no interface has the address {address}")
    elif interface_option is not None:
        existing = [name for _, name in socket.if_nameindex()]
        problems += [f"no such interface: {name}" for name in interface_option.split(",") if name not in existing]
    return interface or "", address


def _free_port(address: str, port: int, problems: list[str]) -> int:
    with socket.socket(family_of(address)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
        except OSError as error:
            problems.append(f"port {port} of {address} cannot be used: {error.strerror}")
        return int(sock.getsockname()[1])


def _absolute(path: str, folder: str) -> str:
    return os.pathsep.join(os.path.join(folder, each) for each in path.split(os.pathsep)) if path else ""


def _versions(python: str, pythonpath: str, problems: list[str]) -> dict[str, str | None] | None:
    """Return the versions of Python, PyTorch and plink of that interpreter; None if it gives no valid answer."""
    try:
        env = {**os.environ, "PYTHONPATH": pythonpath} if pythonpath else None
        versions = json.loads(run_to_end([python, "-c", _VERSIONS], _VERSION_LIMIT_S, env=env, cwd="/").stdout)
    except OSError as error:
        problems.append(f"cannot start {python}: {error.strerror}")
        return None
    except (ValueError, RecursionError, subprocess.SubprocessError):
        return None
    # It may be any program; the controller would give up an agent that sent something invalid.
    if not isinstance(versions, dict):
        return None
    known_versions = {name: versions.get(name) for name in ("python", "torch", "plink")}
    return (
        known_versions
        if all(version is None or isinstance(version, str) for version in known_versions.values())
        else None
    )


def rank_environment(
    assignment: RankAssignment, group: int, hosts: Hosts, master: tuple[str, object]
) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank (PyTorch's documentation, "torchrun").

    :param group: index of its host. :param master: address and port of the rendezvous, on rank 0's host.
    """
    slots = hosts.members[group].slots
    env = {
        "RANK": str(assignment.rank),
        "LOCAL_RANK": str(assignment.local_rank),
        "WORLD_SIZE": str(sum(host.slots for host in hosts)),
        "LOCAL_WORLD_SIZE": str(slots),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(sum(host.slots > 0 for host in hosts)),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "PYTHONUNBUFFERED": "1",  # lines are shown when they are printed
        "PYTHONFAULTHANDLER": "1",  # a hung job is asked for its stacks by SIGABRT
    }
    if slots > 1:
        env["OMP_NUM_THREADS"] = "1"  # as torchrun does: ranks of one host would fight over its cores
    if assignment.hub is not None:
        env["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch warns of a store that ends with the job
    return env


def interface_environment(interface: str) -> dict[str, str]:
    """Return the variables that make Gloo and NCCL use an interface of this host (or several, ``eth0,eth1``)."""
    # "=": these very names, not every name that begins so.
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": "=" + interface}

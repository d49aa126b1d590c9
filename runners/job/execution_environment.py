"""What a host would run, in which folder, and over which interface.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from typing import Any

from plink.remote.addresses import family_of, interface_of, towards

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
_VERSIONS_S = 20.0
_PYTHON = re.compile(r"python[0-9.]*")


def workplace(ask: dict[str, Any]) -> dict[str, Any]:
    """What this host would run, or the problems that keep it from running.

    ``ask``: ``program``, ``args``, ``workdirs`` and ``pythons`` as in :class:`runners.job.job.Job`; ``peers``,
    addresses or names of the other hosts, this one's own may be among them; ``interface``, the one to use, None for the
    one that leads to them; ``port``, where this host would serve the rendezvous, 0 for any that is free.
    """
    problems: list[str] = []
    # "~" is the home of the user there, whoever started this here.
    folders = [os.path.expanduser(path) for path in ask["workdirs"]]
    workdir = next((path for path in folders if os.path.isdir(path)), None)
    if workdir is None:
        problems.append(f"there is no folder {ask['workdirs'][0]}")
    at = os.path.join(os.getcwd(), workdir or "/")
    argv, is_python = _command(ask["program"], ask["args"], ask["pythons"], at, problems)
    interface, address = _way(ask["peers"], ask["interface"], problems)
    return {
        "argv": [*argv, *ask["args"]],
        "workdir": workdir or "/",
        "interface": interface,
        "address": address,
        "port": _free_port(address, ask["port"], problems),
        "versions": _versions(argv[0], problems) if is_python else None,
        "problems": problems,
    }


def _command(
    program: str, args: list[str], pythons: list[str], workdir: str, problems: list[str]
) -> tuple[list[str], bool]:
    """(what stands before the arguments, whether the first of it is a Python that is there and has its script)."""
    if not program.endswith(".py"):
        found = _found(program, workdir)
        if found is None:
            problems.append(f"there is no program {program}")
            return [program], False
        runs = bool(_PYTHON.fullmatch(os.path.basename(program)) and args and args[0].endswith(".py"))
        return [found], runs and _has(args[0], workdir, problems)
    python = next((path for path in (_found(name, workdir) for name in pythons) if path), None)
    if python is None:
        problems.append(f"there is no {pythons[0]}")
        return [program], False
    return ([python, program], True) if _has(program, workdir, problems) else ([program], False)


def _found(name: str, workdir: str) -> str | None:
    """The path of a program; where its name holds a slash, relative to the folder that it is started in."""
    return shutil.which(name if "/" not in name else os.path.join(workdir, name))


def _has(script: str, workdir: str, problems: list[str]) -> bool:
    there = os.path.isfile(os.path.join(workdir, script))
    if not there:
        problems.append(f"there is no {os.path.join(workdir, script)}")
    return there


def _way(peers: list[str], asked: str | None, problems: list[str]) -> tuple[str, str]:
    """(the interface, this host's address on the way to the others)."""
    if not peers:
        return asked or "lo", "127.0.0.1"
    address, unknown = towards(peers)
    problems += [unknown] if unknown is not None else []
    interface = asked or interface_of(address)
    if interface is None:
        problems.append(f"no interface is known that holds {address}")
    elif asked is not None:
        there = [name for _, name in socket.if_nameindex()]
        problems += [f"there is no interface {name}" for name in asked.split(",") if name not in there]
    return interface or "", address


def _free_port(address: str, port: int, problems: list[str]) -> int:
    with socket.socket(family_of(address)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
        except OSError as error:
            problems.append(f"port {port} of {address} cannot be used: {error.strerror}")
        return int(sock.getsockname()[1])


def _versions(python: str, problems: list[str]) -> dict[str, str | None] | None:
    """Of Python, PyTorch and plink, as that interpreter has them; None when it does not tell."""
    try:
        said = subprocess.run(
            [python, "-c", _VERSIONS], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_VERSIONS_S
        )  # fmt: skip
        found = json.loads(said.stdout)
    except OSError as error:
        problems.append(f"cannot start {python}: {error.strerror}")
        return None
    except (ValueError, RecursionError, subprocess.TimeoutExpired):
        return None
    # It may be any program: what it says is not taken for the agent's own word, whose form the controller checks.
    if not isinstance(found, dict):
        return None
    known = {name: found.get(name) for name in ("python", "torch", "plink")}
    return known if all(version is None or isinstance(version, str) for version in known.values()) else None

"""What a lab, or a command that worked on it, has standing on this machine: namespaces, processes, folders, routes."""

import os
import subprocess
from pathlib import Path

from runners.lab import kernel
from runners.lab.blueprint import NETWORK, PREFIX
from runners.lab.state import LABS
from tests.conftest import Lab

HERE = Path("/")


def inside(lab: Lab, part: str, *command: str, timeout: float = 30) -> "subprocess.CompletedProcess[str]":
    """Run a command with the network of one part of a lab (a host, ``rack0``, ``core``, ``ctl``)."""
    return subprocess.run(
        ["ip", "netns", "exec", lab.blueprint.namespace(part), *command],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def command_line(pid: int) -> str:
    """The words of a running process, empty when it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def guests(lab: Lab) -> dict[int, str]:
    """Processes in the lab's namespaces other than the hosts' own sshd: agents, ranks, SSH sessions, traffic."""
    processes = {}
    for namespace in kernel.namespaces(f"{PREFIX}{lab.name}."):
        for pid in kernel.pids(namespace):
            words = command_line(pid)
            if words and "[listener]" not in words:
                processes[pid] = words
    return processes


def agents(lab: Lab) -> dict[int, str]:
    """The Python processes among them."""
    return {pid: words for pid, words in guests(lab).items() if "python" in words.split(" ", 1)[0]}


def routes_of_the_machine() -> list[str]:
    """Routes of the machine's own namespace into the labs' addresses."""
    shown = subprocess.run(["ip", "route", "show", "root", str(NETWORK)], capture_output=True, text=True, check=True)
    return [line.strip() for line in shown.stdout.splitlines()]


def left_of(name: str) -> list[str]:
    """Everything on this machine that belongs to a lab; empty when it is down."""
    leftovers = [f"namespace {namespace}" for namespace in kernel.namespaces(f"{PREFIX}{name}.")]
    leftovers += [f"file {path}" for path in LABS.glob("*") if path.name == name or path.name.startswith(f".{name}.")]
    for folder in Path("/proc").iterdir():
        # The hosts' sshd name the lab's folder; a namespace may be gone by name and live on in a process.
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            words = command_line(int(folder.name))
            if f"/run/plink/labs/{name}/" in words:
                leftovers.append(f"process {folder.name}: {words}")
    if not LABS.is_dir() or not any(path.is_dir() for path in LABS.iterdir()):
        leftovers += [f"route {route}" for route in routes_of_the_machine()]
    return leftovers

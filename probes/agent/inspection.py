"""Facts of a host that influence measurements: clock, MTU, NIC, governor, tools, counters of clouds' limits.

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

from plink.transport.addresses import interface_of, source_address_for
from plink.transport.command_output import run_to_end
from probes.agent.tools import which

# Packets that AWS's ENA driver counts as dropped or queued because an allowance of the instance was used up.
_ALLOWANCE = re.compile(r"\s*(\w+_allowance_exceeded|\w+_allowance_available):\s*(\d+)")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_TOOLS = {"fping": ["-v"], "iperf3": ["--version"], "ethtool": ["--version"], "mpirun": ["--version"]}
_LIMIT_S = 5.0


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def _output(argv: list[str], renew: Callable[[], None]) -> str:
    try:
        process = run_to_end(argv, _LIMIT_S, renew=renew)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout + process.stderr


def _version(tool: str, arguments: list[str], renew: Callable[[], None]) -> str | None:
    program = which(tool)
    if program is None:
        return None
    version = _VERSION.search(_output([program, *arguments], renew))
    return version.group() if version else "?"


def counters(interface: str, renew: Callable[[], None]) -> dict[str, int]:
    """Return the allowance counters of an interface, empty where the driver has none or ethtool is missing."""
    program = which("ethtool")
    if program is None:
        return {}
    rows = (_ALLOWANCE.match(line) for line in _output([program, "-S", interface], renew).splitlines())
    return {row.group(1): int(row.group(2)) for row in rows if row and row.group(1).endswith("exceeded")}


def inspect(address: str, peers: list[str], renew: Callable[[], None]) -> dict[str, Any]:
    """Return the host's facts; ``interface`` is the one towards the first of ``peers``,
    ``unix_time_s`` the time when all else was known."""
    try:
        interface = interface_of(source_address_for(peers[0]) if peers else address)
    except OSError:
        interface = None
    device = f"/sys/class/net/{interface}"
    speed = _read(f"{device}/speed")
    mtu = _read(f"{device}/mtu")
    return {
        "interface": interface,
        "mtu": int(mtu) if mtu else None,
        # A virtual interface has -1, or no number.
        "speed_mbps": int(speed) if speed and speed.isdigit() else None,
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": os.uname().release,
        "load": os.getloadavg()[0],
        "tools": {tool: _version(tool, arguments, renew) for tool, arguments in _TOOLS.items()},
        "counters": counters(interface, renew) if interface else {},
        "unix_time_s": time.time(),
    }

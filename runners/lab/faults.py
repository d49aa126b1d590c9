"""Faults of a lab, and their repair: slow links, cut links, dead hosts, cross traffic."""

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from plink.errors import PlinkError, UsageError
from runners.lab import kernel, links, sshd
from runners.lab.blueprint import Blueprint, Place
from runners.lab.state import State

MAX_LOAD_S = 600
_LOAD_PORT = 5990


@dataclass(frozen=True)
class HostStatus:
    """Status of one host; rates in bits per second."""

    name: str
    address: str
    alive: bool
    connected: bool
    rate: int


@dataclass(frozen=True)
class RackStatus:
    """Status of the uplink of one rack, or pod."""

    name: str
    connected: bool
    rate: int


@dataclass(frozen=True)
class _Uplink:
    """The uplink of a rack or pod: ``port`` of the router ``above`` it, ``routes`` of that router down to it."""

    above: str
    port: str
    routes: list[str]
    rate: int
    delay_us: int = 0


def _uplinks(blueprint: Blueprint) -> dict[str, _Uplink]:
    """Return the uplinks of racks, then of pods, by the name of the router below."""
    settings = blueprint.settings
    racks = {
        name: _Uplink(
            blueprint.namespace(blueprint.above(rack)), f"r{rack}", links.routes_down(blueprint, rack),
            settings.uplink_rate, settings.uplink_delay_us,
        )
        for rack, name in enumerate(blueprint.racks)
    }  # fmt: skip
    core = blueprint.namespace("core")
    return racks | {
        name: _Uplink(core, f"p{pod}", links.routes_to_pod(blueprint, pod), settings.pod_rate)
        for pod, name in enumerate(blueprint.pods)
    }


def _find(blueprint: Blueprint, target: str) -> Place | _Uplink:
    """Return a host, or the uplink of a rack (``rack2``) or pod.

    :raises UsageError: when the lab has neither.
    """
    for place in blueprint.places:
        if place.name == target:
            return place
    if uplink := _uplinks(blueprint).get(target):
        return uplink
    last = blueprint.places[-1].name
    pods = f", pods pod0 to {blueprint.pods[-1]}" if blueprint.pods else ""
    raise UsageError(
        f"lab {blueprint.settings.name!r} has no {target!r}; hosts are {blueprint.places[0].name} to {last}, "
        f"racks rack0 to {blueprint.racks[-1]}{pods}"
    )


def _router(blueprint: Blueprint, place: Place) -> str:
    return blueprint.namespace(f"rack{place.rack}")


def shape(blueprint: Blueprint, target: str, rate: int) -> None:
    """Limit what a host, or the uplink of a rack or pod, can send and receive."""
    place = _find(blueprint, target)
    if isinstance(place, Place):
        kernel.tc(links.shape("eth0", rate), blueprint.namespace(place.name))
        kernel.tc(links.shape(links.host_port(place), rate), _router(blueprint, place))
    else:
        kernel.tc(links.shape("up0", rate, place.delay_us), blueprint.namespace(target))
        kernel.tc(links.shape(place.port, rate, place.delay_us), place.above)


def cut(blueprint: Blueprint, target: str) -> None:
    """Unplug a host or the uplink of a rack or pod: packets vanish without an error."""
    place = _find(blueprint, target)
    if isinstance(place, Place):
        kernel.ip([f"link set {links.host_port(place)} down"], _router(blueprint, place))
    else:
        kernel.ip([f"link set {place.port} down"], place.above)


def part(blueprint: Blueprint, first: str, second: str) -> None:
    """Partition two racks from each other only: packets between them vanish without an error."""
    for target in (first, second):
        _find(blueprint, target)
    if not {first, second} <= set(blueprint.racks) or first == second:
        raise UsageError(f"only two racks can be partitioned: not {first} and {second}")
    racks = [blueprint.racks.index(first), blueprint.racks.index(second)]
    for here, there in (racks, racks[::-1]):
        away = [*(place.address for place in blueprint.in_rack(there)), blueprint.gateway(there)]
        lines = [f"route replace blackhole {address}/32" for address in away]
        kernel.ip(lines, blueprint.namespace(blueprint.racks[here]))


def kill(blueprint: Blueprint, target: str) -> None:
    """Power a host off: unplug it first, so that its connections do not end visibly, then kill every process."""
    place = _find(blueprint, target)
    if not isinstance(place, Place):
        kind = "rack" if target in blueprint.racks else "pod"
        raise UsageError(f"{target} is a {kind}: kill its hosts, or `cut {target}`")
    cut(blueprint, target)
    kernel.kill_all(blueprint.namespace(place.name))


def heal(blueprint: Blueprint, state: State) -> None:
    """Undo every fault: plug links in, reset rates, start dead hosts, end cross traffic."""
    settings = blueprint.settings
    for name, uplink in _uplinks(blueprint).items():
        kernel.ip([f"link set {uplink.port} up", *uplink.routes], uplink.above)
        shape(blueprint, name, uplink.rate)
    for rack, name in enumerate(blueprint.racks):
        kernel.ip(
            ["route flush type blackhole"]
            + [f"link set {links.host_port(place)} up" for place in blueprint.in_rack(rack)],
            blueprint.namespace(name),
        )
    for place in blueprint.places:
        _end_load(state, place)
        shape(blueprint, place.name, settings.host_rate)
        if sshd.process(blueprint, place.name, state) is None:
            kernel.kill_all(blueprint.namespace(place.name))
            sshd.start(blueprint, place, state)


def load(blueprint: Blueprint, state: State, source: str, sink: str, rate: int, seconds: int) -> None:
    """UDP cross traffic from one host to another, ended by itself after ``seconds`` (at most ten minutes).

    :raises UsageError: for two that are not hosts. :raises PlinkError: when one of them is dead.
    """
    if not 1 <= seconds <= MAX_LOAD_S:
        raise UsageError(f"--duration: give 1 s to {MAX_LOAD_S} s")
    here, there = (_find(blueprint, name) for name in (source, sink))
    if not (isinstance(here, Place) and isinstance(there, Place)) or here == there:
        raise UsageError("load runs from one host to another host")
    for place in (here, there):
        sshd.required_process(blueprint, place.name, state)
    _end_load(state, here)
    _end_load(state, there)
    client = ["-c", there.address, "-p", str(_LOAD_PORT), "-u", "-b", str(rate), "-t", str(seconds)]
    server = ["-s", "-1", "-B", there.address, "-p", str(_LOAD_PORT)]
    for place, words in ((there, server), (here, client)):
        pid_file = state.file(place.name, "load.pid")
        # The shell's script is fixed; it notes its own process id, which is timeout's after exec.
        script = 'echo $$ > "$1"; shift; exec timeout "$@"'
        argv = ["setsid", "--fork", "ip", "netns", "exec", blueprint.namespace(place.name), "sh", "-c", script, "sh"]
        try:
            nothing = subprocess.DEVNULL
            words = [*argv, str(pid_file), str(seconds + 5), "iperf3", *words]
            subprocess.run(words, check=True, stdin=nothing, stdout=nothing, stderr=nothing, timeout=10)
        except (OSError, subprocess.SubprocessError) as error:
            raise PlinkError(f"cannot start iperf3 on {place.name}: {error}") from None
        if place is there:
            _await_listener(blueprint, place)


def _await_listener(blueprint: Blueprint, place: Place) -> None:
    for _ in range(200):
        listening = kernel.query(
            ["ip", "netns", "exec", blueprint.namespace(place.name), "ss", "-Hltn", f"sport = :{_LOAD_PORT}"]
        )
        if listening.strip():
            return
        time.sleep(0.02)
    raise PlinkError(f"iperf3 does not listen on {place.name}; is it installed?")


def _end_load(state: State, place: Place) -> None:
    pid_file = state.file(place.name, "load.pid")
    if pid_file.exists():
        pid = int(pid_file.read_text().strip() or 0)
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if pid and "timeout" in _command(pid):
                os.kill(pid, signal.SIGTERM)
        pid_file.unlink()


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def status(blueprint: Blueprint, state: State) -> tuple[list[RackStatus], list[HostStatus]]:
    """Return the status of racks (then pods) and hosts, as the kernel reports it."""
    uplinks = _uplinks(blueprint)
    devices = {above: _devices(above) for above in {uplink.above for uplink in uplinks.values()}}
    racks = []
    for name, uplink in uplinks.items():
        up, rate = devices[uplink.above]
        racks.append(RackStatus(name, uplink.port in up, rate.get(uplink.port, 0)))
    ports = [_devices(blueprint.namespace(part)) for part in blueprint.racks]
    hosts = []
    for place in blueprint.places:
        up, rate = ports[place.rack]
        port = links.host_port(place)
        alive = sshd.process(blueprint, place.name, state) is not None
        hosts.append(HostStatus(place.name, place.address, alive, port in up, rate.get(port, 0)))
    return racks, hosts


def _devices(namespace: str) -> tuple[set[str], dict[str, int]]:
    """Return the devices that are up, and the rate (bit/s) of each one's tbf."""
    shown = json.loads(kernel.query(["ip", "-n", namespace, "-json", "link", "show"]))
    disciplines = json.loads(kernel.query(["tc", "-n", namespace, "-json", "qdisc", "show"]))
    up = {link["ifname"] for link in shown if "UP" in link["flags"]}
    # tc reports bytes per second
    return up, {q["dev"]: 8 * q["options"]["rate"] for q in disciplines if q["kind"] == "tbf"}

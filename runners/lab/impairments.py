"""Lossy and late cables of a lab: by netem where the kernel has it, else by a packet filter and a delay line.

The delay line is a program: IP packets that arrive at a device of a lab's router go on later. A packet socket sees what
arrives, a filter at the device drops it there, and a TUN device gives it to the router again when its time has come.
Both ends speak of segmentation in a virtio header, so that bursts of TCP stay whole.
"""

import contextlib
import fcntl
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.model.storage import read_document, write_document
from runners.lab import kernel, links
from runners.lab.blueprint import Blueprint
from runners.lab.links import Cable
from runners.lab.state import LabState

NETEM, ROUTER = "the kernel's netem", "the lab's own router"
MAX_DELAY_US = 1_000_000
_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM: where a filter of the kernel finds a random number
_DELAY_LINE = "runners.lab.impairments"  # run as a program
_ALL_PROTOCOLS, _IP = 0x0003, b"\x08\x00"
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_TUNSETIFF, _TUN_FLAGS = 0x400454CA, 0x0001 | 0x1000 | 0x4000  # IFF_TUN, IFF_NO_PI, IFF_VNET_HDR
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 16 << 20
_VIRTIO = struct.Struct("<BBHHHH")  # flags, kind of segmentation, bytes of headers, of a segment, checksum from, at
_NEEDS_CHECKSUM = 1
_ETHERNET_BYTES = 14
_MAX_PACKET_BYTES = 1 << 17
_BATCH = 64


@dataclass(frozen=True)
class Impairment:
    """What is wrong with the cables of a target. ``loss``: share of packets lost each way, 0 to 1; ``delay_us``: by
    how much later what the target sends arrives, so that its round trips are longer by it."""

    loss: float = 0.0
    delay_us: int = 0


def impairments(state: LabState) -> dict[str, Impairment]:
    """Return the impairments that were planted, by target."""
    path = _file(state)
    return {name: Impairment(*values) for name, values in read_document(path).items()} if path.exists() else {}


def impair(blueprint: Blueprint, state: LabState, target: str, cables: list[Cable], wanted: Impairment) -> str:
    """Make the cables of a target lossy or late, instead of what was wrong with them; return what does it.

    :raises UsageError: for values out of range, and for a delay that neither the kernel nor this lab's routers can
        make. :raises PlinkError: when the kernel refuses a step.
    """
    if not 0 <= wanted.loss <= 1:
        raise UsageError(f"--percent {100 * wanted.loss:g}: give 0 to 100")
    if not 0 <= wanted.delay_us <= MAX_DELAY_US:
        raise UsageError("--time: give at most 1s")
    if any(cable.rate == links.NO_LIMIT for cable in cables):
        raise UsageError(f"{target}: the management interface has no faults but cut")
    planted = impairments(state)
    _remove(state, cables)
    means = NETEM
    try:
        for cable in cables:
            _add_netem(cable, wanted)
    except PlinkError:
        means = ROUTER
        if wanted.delay_us and blueprint.settings.topology != "racks":
            raise UsageError(
                f"{target}: this kernel has no netem, and only the routers of racks can delay packets without it"
            ) from None
        for cable in cables:
            _add_filters(blueprint, state, cable, wanted)
    write_document(
        _file(state), {name: [item.loss, item.delay_us] for name, item in (planted | {target: wanted}).items()}
    )
    return means


def remove_all(state: LabState, cables: list[Cable]) -> None:
    """Undo all impairments; their cables keep neither a filter nor a delay, and netem only with their own delay."""
    if impairments(state):
        _remove(state, cables)
        _file(state).unlink()


def _file(state: LabState) -> Path:
    return state.file("impairments", "json")


def _add_netem(cable: Cable, wanted: Impairment) -> None:
    for (namespace, device), delay_us in ((cable.near, wanted.delay_us), (cable.far, 0)):
        what = f"delay {cable.delay_us + delay_us}us loss {100 * wanted.loss:g}% limit 10000"
        kernel.tc([f"qdisc replace dev {device} parent 1:1 handle 10: netem {what}"], namespace)


def _add_filters(blueprint: Blueprint, state: LabState, cable: Cable, wanted: Impairment) -> None:
    # The delay line is at the far end, which is a router's: it sees what the filter there drops, and loses its share.
    for (namespace, device), is_far in ((cable.near, False), (cable.far, True)):
        program = f"4,32 0 0 {_RANDOM},53 0 1 {_threshold(wanted.loss)},6 0 0 0,6 0 0 2"
        if is_far and wanted.delay_us:
            _start_delay_line(blueprint, state, namespace, device, wanted)
            program = "1,6 0 0 2"  # all of it
        elif not wanted.loss:
            continue
        lines = [
            f"qdisc replace dev {device} clsact",
            f"filter add dev {device} ingress protocol ip pref 1 bpf da bytecode '{program}'",
        ]
        kernel.tc(lines, namespace)


def _threshold(loss: float) -> int:
    """Return the least random number of 32 bits whose packet is kept."""
    return min(round(loss * (1 << 32)), (1 << 32) - 1)


def _start_delay_line(blueprint: Blueprint, state: LabState, namespace: str, device: str, wanted: Impairment) -> None:
    pid_file = state.file(f"{namespace}.{device}", "delay.pid")
    words = [device, *map(str, (blueprint.settings.mtu, wanted.delay_us / 1e6, wanted.loss))]
    # A session of its own: Ctrl-C at the terminal must not end it.
    process = subprocess.Popen(
        ["ip", "netns", "exec", namespace, sys.executable, "-m", _DELAY_LINE, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as output:
        if not output.readline():
            raise PlinkError(f"the router cannot delay what arrives at {device}: it needs /dev/net/tun")
    pid_file.write_text(str(process.pid))


def _remove(state: LabState, cables: list[Cable]) -> None:
    for cable in cables:
        for namespace, device in (cable.near, cable.far):
            shown = kernel.query(["tc", "-n", namespace, "qdisc", "show", "dev", device])
            if "clsact" in shown:
                kernel.tc([f"qdisc del dev {device} clsact"], namespace)
            if "netem" in shown:
                kernel.tc([f"qdisc del dev {device} root"], namespace)
                links.shape(namespace, device, cable.rate, cable.delay_us)
            pid_file = state.file(f"{namespace}.{device}", "delay.pid")
            if pid_file.exists():
                pid = int(pid_file.read_text())
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    if _DELAY_LINE in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(pid, signal.SIGTERM)
                pid_file.unlink()


def _without_ethernet(packet: bytes) -> bytes | None:
    """Return a packet with its virtio header for TUN, which has no Ethernet header; None for what is no IP."""
    if packet[_VIRTIO.size + 12 : _VIRTIO.size + _ETHERNET_BYTES] != _IP:
        return None
    flags, kind, headers, segment, start, offset = _VIRTIO.unpack_from(packet)
    headers = max(0, headers - _ETHERNET_BYTES)
    start = start - _ETHERNET_BYTES if flags & _NEEDS_CHECKSUM else 0
    return _VIRTIO.pack(flags, kind, headers, segment, start, offset) + packet[_VIRTIO.size + _ETHERNET_BYTES :]


def delay_line(device: str, mtu: int, delay_s: float, loss: float) -> None:
    """Delay what arrives at a device of this process's namespace, and lose a share of it, until the process is ended;
    prints a line first."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = f"late-{device}"
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_FLAGS))
    kernel.ip([f"link set {name} mtu {mtu} up"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as wire:
        wire.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        wire.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        wire.bind((device, _ALL_PROTOCOLS))
        wire.setblocking(False)
        print("ready", flush=True)
        _forward(wire, tun, delay_s, loss)


def _forward(wire: socket.socket, tun: int, delay_s: float, loss: float) -> None:
    waiting = deque[tuple[float, bytes]]()
    while True:
        select.select([wire], [], [], max(0.0, waiting[0][0] - time.monotonic()) if waiting else None)
        due = time.monotonic() + delay_s
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BATCH):
                packet = _without_ethernet(wire.recv(_MAX_PACKET_BYTES))
                if packet is not None and not (loss and random.random() < loss):
                    waiting.append((due, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            with contextlib.suppress(OSError):  # one that the kernel refuses is lost
                os.write(tun, waiting.popleft()[1])


if __name__ == "__main__":
    delay_line(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))

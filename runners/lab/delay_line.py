"""Delay line: IP packets that arrive at a device of a lab's router go on later, for kernels without netem.

A packet socket sees what arrives, a filter at the device drops it there, and a TUN device gives it to the router again
when its time has come. Both ends speak of segmentation in a virtio header, so that bursts of TCP stay whole.
"""

import contextlib
import fcntl
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque

from runners.lab import kernel

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


def device_name(device: str) -> str:
    """Return the name of the TUN device behind a device."""
    return f"late-{device}"


def _without_ethernet(packet: bytes) -> bytes | None:
    """Return a packet with its virtio header for TUN, which has no Ethernet header; None for what is no IP."""
    if packet[_VIRTIO.size + 12 : _VIRTIO.size + _ETHERNET_BYTES] != _IP:
        return None
    flags, kind, headers, segment, start, offset = _VIRTIO.unpack_from(packet)
    headers = max(0, headers - _ETHERNET_BYTES)
    start = start - _ETHERNET_BYTES if flags & _NEEDS_CHECKSUM else 0
    return _VIRTIO.pack(flags, kind, headers, segment, start, offset) + packet[_VIRTIO.size + _ETHERNET_BYTES :]


def main(device: str, mtu: int, delay_s: float, loss: float) -> None:
    """Delay what arrives at a device of this process's namespace, and lose a share of it, until the process is ended;
    prints a line first."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    name = device_name(device)
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
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))

"""Kernel timestamps of sent and received packets (SO_TIMESTAMPING, Linux Documentation/networking/timestamping.rst).

Runs on the hosts: standard library only. The kernel's clock readings leave out the time a process waits for a core,
which on a busy host is far longer than the network takes. All times are nanoseconds of system time.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

# Python's socket module has none of these (linux/net_tstamp.h, asm-generic/socket.h, linux/in.h).
SO_TIMESTAMPING = 37
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE, _OPT_ID, _OPT_TSONLY = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 1 << 11
IP_RECVTTL = 12
_TIMESPEC = struct.Struct("qq")
_INT = struct.Struct("i")
_ERROR = struct.Struct("12xI")  # struct sock_extended_err: ee_data is its last field
_ANCILLARY_BYTES = 256
# Plain integers: an "or" of Python's flag enumerations costs more than the system call.
_SOL_SOCKET = int(socket.SOL_SOCKET)
_ERROR_QUEUE = int(socket.MSG_ERRQUEUE) | int(socket.MSG_DONTWAIT)
_NS = 1_000_000_000


def enable(sock: socket.socket, transmit: bool) -> bool:
    """Enable receive stamps, and transmit stamps too; False when this kernel refuses.

    Transmit stamps carry the packet's number on its socket, which every call restarts at 0.
    """
    flags = _RX_SOFTWARE | _SOFTWARE | (_TX_SOFTWARE | _OPT_ID | _OPT_TSONLY if transmit else 0)
    try:
        # Disable it first: the kernel restarts its numbering when OPT_ID is enabled.
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    except OSError:
        return False
    return True


def receive(sock: socket.socket, size: int) -> tuple[bytes, Any, int, int]:
    """Receive (packet, sender, time of arrival, TTL or hop limit it came with); raises as ``recvmsg`` does.

    The time is negative when the kernel did not stamp the packet and it is this process's own reading.
    """
    packet, ancillary, _, peer = sock.recvmsg(size, _ANCILLARY_BYTES)
    arrived, ttl = 0, 0
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == _SOL_SOCKET:
            seconds, rest = _TIMESPEC.unpack_from(data)
            arrived = seconds * _NS + rest
        elif len(data) == _INT.size:
            ttl = _INT.unpack(data)[0]
    return packet, peer, arrived or -time.time_ns(), ttl


def sent_at(sock: socket.socket) -> list[tuple[int, int]]:
    """Return (number on this socket since :func:`enable`, time of departure) of the packets in the error queue."""
    departures: list[tuple[int, int]] = []
    while True:
        try:
            ancillary = sock.recvmsg(0, _ANCILLARY_BYTES, _ERROR_QUEUE)[1]
        except OSError:
            return departures
        stamp, number = 0, -1
        for level, kind, data in ancillary:
            if kind == SO_TIMESTAMPING and level == _SOL_SOCKET:
                seconds, rest = _TIMESPEC.unpack_from(data)
                stamp = seconds * _NS + rest
            elif len(data) >= _ERROR.size:
                number = _ERROR.unpack_from(data)[0]
        if stamp and number >= 0:
            departures.append((number, stamp))

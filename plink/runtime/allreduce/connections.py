"""Kernel statistics of the connections between ranks: bytes that arrived, and the time with any in flight.

Linux keeps both for every TCP connection (``struct tcp_info`` of linux/tcp.h): ``tcpi_bytes_acked``, and
``tcpi_busy_time``, microseconds in which something was unacknowledged, among them ``tcpi_rwnd_limited``, in which the
receiver had no room. Gloo writes a message only when its reception has begun, and short messages (:mod:`eager`) wait in
the receiver's kernel or for its room; so the difference is the network's. No clocks are compared, and waiting for a
program does not count. The thesis's Autotune reads the same (PLink thesis, 4.2.3: "collects per connection stats ...
through the OS").

Most sockets are Gloo's. They are read by descriptor through the C library: a Python socket made from one would be a
second owner, which keeps it open when the first closes it, and may change whether it blocks.
"""

import contextlib
import ctypes
import hashlib
import ipaddress
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Identities = npt.NDArray[np.int64]

_FOLDER = "/proc/self/fd"
_INFO_BYTES = 256  # requested; older kernels return fewer
_RTT, _ACKED, _BUSY, _RWND_LIMITED = 68, 120, 168, 176  # offsets in struct tcp_info
_ADDRESS_BYTES = 128  # sizeof(struct sockaddr_storage)
_US = 1e-6
_SAMPLED_CONNECTIONS = 16  # whose most common local address is this host's


def tcp_sockets() -> dict[int, int]:
    """Return this process's TCP connections, descriptor to inode; empty where the kernel is not Linux."""
    inodes = {}
    for fd in file_descriptors():
        with contextlib.suppress(OSError):
            link = os.readlink(f"{_FOLDER}/{fd}")
            if link.startswith("socket:[") and _ends(fd) is not None:
                inodes[fd] = int(link[8:-1])
    return inodes


def file_descriptors() -> set[int]:
    """Return all descriptors of this process; empty where the kernel is not Linux."""
    return {int(name) for name in os.listdir(_FOLDER)} if sys.platform == "linux" and os.path.isdir(_FOLDER) else set()


def own_addresses(descriptors: Iterable[int]) -> list[str]:
    """Return the most common local address of the first TCP connections of these descriptors; empty without any."""
    near = (ends[0].partition(" ")[0] for fd in sorted(descriptors) if (ends := _ends(fd)) is not None)
    return [address for address, _ in Counter(islice(near, _SAMPLED_CONNECTIONS)).most_common(1)]


class PeerConnections:
    """Connections of one rank to others: which of this process's sockets leads to which rank.

    :param inodes: descriptors and inodes of sockets, as :func:`tcp_sockets` returns them.
    """

    def __init__(self, inodes: dict[int, int], ranks: int) -> None:
        self._inodes, self._ranks = inodes, ranks
        self._peer_of: dict[int, int] = {}
        self._previous: dict[int, tuple[int, int]] = {}

    def identities(self, length: int) -> Identities:
        """Return a number for each connection that both of its ends compute, padded with 0, shape (length,)."""
        numbers = [_identity(fd, inode) for fd, inode in self._inodes.items()]
        return np.array([*numbers, *[0] * length][:length], dtype=np.int64)

    def match_peers(self, all_identities: Identities, rank: int) -> bool:
        """Find out which rank is at the other end of each connection, and return whether every other rank is at one.

        :param all_identities: of all ranks, shape (N, length).
        """
        owners = {int(number): peer for peer in range(self._ranks) if peer != rank for number in all_identities[peer]}
        owners.pop(0, None)
        for fd, inode in self._inodes.items():
            peer = owners.get(_identity(fd, inode))
            if peer is not None:
                self._peer_of[fd] = peer
        self.collect()
        return len(set(self._peer_of.values())) == self._ranks - 1

    def collect(self) -> Vector:
        """Return the traffic to each rank since the last call, shape (N, 3).

        Columns: bytes, busy seconds, round trip in seconds.

        Busy seconds, with any bytes in flight, are summed over parallel connections. The round trip is the kernel's
        current one, NaN for none.
        """
        traffic = np.zeros((self._ranks, 3))
        traffic[:, 2] = np.nan
        for fd, peer in self._peer_of.items():
            info = (
                _option(fd, socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES) if _is_open(fd, self._inodes[fd]) else b""
            )
            if len(info) < _RWND_LIMITED + 8:
                continue
            acked, busy, rwnd_limited = (
                struct.unpack_from("=Q", info, offset)[0] for offset in (_ACKED, _BUSY, _RWND_LIMITED)
            )
            busy -= min(busy, rwnd_limited)
            acked_before, busy_before = self._previous.get(fd, (0, 0))
            self._previous[fd] = acked, busy
            traffic[peer, 0] += acked - acked_before
            traffic[peer, 1] += (busy - busy_before) * _US
            traffic[peer, 2] = np.fmin(traffic[peer, 2], struct.unpack_from("=I", info, _RTT)[0] * _US)
        return traffic


def _is_open(fd: int, inode: int) -> bool:
    """Return whether the descriptor is still that socket: Gloo closes those of lost ranks."""
    try:
        return os.fstat(fd).st_ino == inode
    except OSError:
        return False


def _identity(fd: int, inode: int) -> int:
    """Return a number that is the same at both ends and not 0; 0 for a closed connection."""
    ends = _ends(fd) if _is_open(fd, inode) else None
    if ends is None:
        return 0
    digest = hashlib.blake2b("-".join(sorted(ends)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1


def _ends(fd: int) -> tuple[str, str] | None:
    """Return addresses and ports of both ends of a TCP connection; None for anything else."""
    if _option(fd, socket.SOL_SOCKET, socket.SO_TYPE, 4) != struct.pack("=i", socket.SOCK_STREAM):
        return None
    library = ctypes.CDLL(None)
    near, far = _address(library.getsockname, fd), _address(library.getpeername, fd)
    return None if near is None or far is None else (near, far)


def _address(function: "ctypes._NamedFuncPointer", fd: int) -> str | None:
    """Return one end's address and port; IPv4 addresses mapped into IPv6 are unmapped."""
    buffer, length = ctypes.create_string_buffer(_ADDRESS_BYTES), ctypes.c_uint32(_ADDRESS_BYTES)
    if function(fd, buffer, ctypes.byref(length)):
        return None
    family, port = struct.unpack_from("=H", buffer.raw)[0], struct.unpack_from("!H", buffer.raw, 2)[0]
    if family == socket.AF_INET:
        return f"{ipaddress.IPv4Address(buffer.raw[4:8])} {port}"
    if family != socket.AF_INET6:
        return None
    address = ipaddress.IPv6Address(buffer.raw[8:24])
    return f"{address.ipv4_mapped or address} {port}"


def _option(fd: int, level: int, name: int, length: int) -> bytes:
    """Return the value of a socket option; empty where getsockopt fails."""
    buffer, size = ctypes.create_string_buffer(length), ctypes.c_uint32(length)
    failed = ctypes.CDLL(None).getsockopt(fd, level, name, buffer, ctypes.byref(size))
    return b"" if failed else buffer.raw[: size.value]

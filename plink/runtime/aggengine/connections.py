"""What the kernel knows of the connections between ranks: bytes that arrived, and how long there were any under way.

Linux keeps both for every TCP connection (``struct tcp_info`` of linux/tcp.h): ``tcpi_bytes_acked``, and
``tcpi_busy_time``, microseconds in which something was unacknowledged, among them ``tcpi_rwnd_limited``, in which the
receiver had no room. Gloo writes a message only when its reception has begun, and short messages (:mod:`eager`) wait in
the receiver's kernel or for its room; so the difference is the network's: no clocks are compared, and nobody's waiting
counts. The thesis's Autotune reads the same (PLink thesis, 4.2.3: "collects per connection stats ... through the OS").

Most sockets are Gloo's. They are asked by number, through the C library: a socket of Python's made from one would be a
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
_INFO = 256  # bytes asked for; kernels give as many as they know
_RTT, _ACKED, _BUSY, _NO_ROOM = 68, 120, 168, 176  # offsets in struct tcp_info
_ADDRESS = 128  # sizeof(struct sockaddr_storage)
_US = 1e-6
_LOOKED_AT = 16  # connections that tell where this host is reached


def sockets() -> dict[int, int]:
    """Descriptors of this process's TCP connections, with the number that the kernel has for each; none where the
    kernel is not Linux."""
    found = {}
    for fd in descriptors():
        with contextlib.suppress(OSError):
            what = os.readlink(f"{_FOLDER}/{fd}")
            if what.startswith("socket:[") and _ends(fd) is not None:
                found[fd] = int(what[8:-1])
    return found


def descriptors() -> set[int]:
    """All of this process; none where the kernel is not Linux."""
    return {int(name) for name in os.listdir(_FOLDER)} if sys.platform == "linux" and os.path.isdir(_FOLDER) else set()


def own_address(among: Iterable[int]) -> str | None:
    """This host's address on most of the first TCP connections of these descriptors; None without any."""
    near = (ends[0].partition(" ")[0] for fd in sorted(among) if (ends := _ends(fd)) is not None)
    return next((address for address, _ in Counter(islice(near, _LOOKED_AT)).most_common(1)), None)


class Connections:
    """The connections of one rank to others: which of this process's sockets lead to whom.

    :param mine: descriptors and the kernel's numbers of sockets, as :func:`sockets` has them.
    """

    def __init__(self, mine: dict[int, int], ranks: int) -> None:
        self._mine, self._ranks = mine, ranks
        self._peer_of: dict[int, int] = {}
        self._before: dict[int, tuple[int, int]] = {}

    def identities(self, length: int) -> Identities:
        """A number for each connection that both its ends find, 0 where there are fewer, shape (length,)."""
        numbers = [_identity(fd, inode) for fd, inode in self._mine.items()]
        return np.array([*numbers, *[0] * length][:length], dtype=np.int64)

    def meet(self, all_identities: Identities, rank: int) -> bool:
        """Find out who is at the other ends; whether every other rank is at one.

        :param all_identities: of all ranks, shape (N, length).
        """
        owners = {int(number): peer for peer in range(self._ranks) if peer != rank for number in all_identities[peer]}
        owners.pop(0, None)
        for fd, inode in self._mine.items():
            peer = owners.get(_identity(fd, inode))
            if peer is not None:
                self._peer_of[fd] = peer
        self.since()
        return len(set(self._peer_of.values())) == self._ranks - 1

    def since(self) -> Vector:
        """What went to each rank since the last call, shape (N, 3): bytes, seconds in which there were any under way
        (summed over parallel connections), and the round trip in seconds that the kernel sees now, NaN for none."""
        found = np.zeros((self._ranks, 3))
        found[:, 2] = np.nan
        for fd, peer in self._peer_of.items():
            info = _option(fd, socket.IPPROTO_TCP, socket.TCP_INFO, _INFO) if _is(fd, self._mine[fd]) else b""
            if len(info) < _NO_ROOM + 8:
                continue
            acked, busy, no_room = (struct.unpack_from("=Q", info, offset)[0] for offset in (_ACKED, _BUSY, _NO_ROOM))
            busy -= min(busy, no_room)
            acked_before, busy_before = self._before.get(fd, (0, 0))
            self._before[fd] = acked, busy
            found[peer, 0] += acked - acked_before
            found[peer, 1] += (busy - busy_before) * _US
            found[peer, 2] = np.fmin(found[peer, 2], struct.unpack_from("=I", info, _RTT)[0] * _US)
        return found


def _is(fd: int, inode: int) -> bool:
    """Whether the descriptor is still that socket: Gloo closes those of ranks that went."""
    try:
        return os.fstat(fd).st_ino == inode
    except OSError:
        return False


def _identity(fd: int, inode: int) -> int:
    """The same at both ends, other than 0; 0 for a connection that has gone."""
    ends = _ends(fd) if _is(fd, inode) else None
    if ends is None:
        return 0
    digest = hashlib.blake2b("-".join(sorted(ends)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1


def _ends(fd: int) -> tuple[str, str] | None:
    """Addresses and ports of both ends of a TCP connection; None for anything else."""
    if _option(fd, socket.SOL_SOCKET, socket.SO_TYPE, 4) != struct.pack("=i", socket.SOCK_STREAM):
        return None
    library = ctypes.CDLL(None)
    near, far = _address(library.getsockname, fd), _address(library.getpeername, fd)
    return None if near is None or far is None else (near, far)


def _address(ask: "ctypes._NamedFuncPointer", fd: int) -> str | None:
    """One end; IPv4 addresses mapped into IPv6 as what they are."""
    room, length = ctypes.create_string_buffer(_ADDRESS), ctypes.c_uint32(_ADDRESS)
    if ask(fd, room, ctypes.byref(length)):
        return None
    family, port = struct.unpack_from("=H", room.raw)[0], struct.unpack_from("!H", room.raw, 2)[0]
    if family == socket.AF_INET:
        return f"{ipaddress.IPv4Address(room.raw[4:8])} {port}"
    if family != socket.AF_INET6:
        return None
    address = ipaddress.IPv6Address(room.raw[8:24])
    return f"{address.ipv4_mapped or address} {port}"


def _option(fd: int, level: int, name: int, length: int) -> bytes:
    """What getsockopt says; nothing where it fails."""
    room, size = ctypes.create_string_buffer(length), ctypes.c_uint32(length)
    failed = ctypes.CDLL(None).getsockopt(fd, level, name, room, ctypes.byref(size))
    return b"" if failed else room.raw[: size.value]

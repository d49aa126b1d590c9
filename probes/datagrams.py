"""Batches of datagrams in one system call, with the kernel's timestamps: recvmmsg(2).

Runs on the hosts: standard library only. Python's own ``recvmsg`` takes one packet a call and builds a handful of
objects for its ancillary data; at tens of thousands of packets a second that would take most of an agent's time.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import time

from probes.timestamps import SO_TIMESTAMPING

_SLOTS = 64
_PACKET, _NAME, _CONTROL = 128, 32, 192  # bytes of a slot; a longer packet is cut (none of plink's)
# struct mmsghdr: name, its length, iovec, how many, control, its length, flags; length received (native alignment).
_HEADER = struct.Struct("@PIPNPNi0PI0P")
_IOVEC = struct.Struct("@PN")
_CMSG = struct.Struct("@Nii")
_STAMP = struct.Struct("@ll")
_INT = struct.Struct("@i")
_ALIGN = struct.calcsize("N")
# The two usual control messages, in the order in which Linux writes them: three timespecs, then an int.
_USUAL = struct.Struct("@Nii6lNiii")
_STAMPED = struct.calcsize("@Nii6l")
_SENT = struct.Struct("@Niill")
_NUMBER = struct.Struct("@I")
_NUMBER_AT = _CMSG.size + 12  # ee_data in struct sock_extended_err, in the control message after the stamp's
_DONT_WAIT, _ERROR_QUEUE = int(socket.MSG_DONTWAIT), int(socket.MSG_ERRQUEUE)
_NS = 1_000_000_000


class Inbox:
    """Buffers for a batch of datagrams, allocated once. Not thread-safe; it returns copies."""

    def __init__(self) -> None:
        self._receive = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._packets = bytearray(_SLOTS * _PACKET)
        self._names = bytearray(_SLOTS * _NAME)
        self._controls = bytearray(_SLOTS * _CONTROL)
        self._iovecs = bytearray(_SLOTS * _IOVEC.size)
        self._headers = bytearray(_SLOTS * _HEADER.size)
        packets, names, controls, iovecs = map(_address, (self._packets, self._names, self._controls, self._iovecs))
        for i in range(_SLOTS):
            _IOVEC.pack_into(self._iovecs, i * _IOVEC.size, packets + i * _PACKET, _PACKET)
            name = (names + i * _NAME, _NAME)
            control = (controls + i * _CONTROL, _CONTROL)
            _HEADER.pack_into(self._headers, i * _HEADER.size, *name, iovecs + i * _IOVEC.size, 1, *control, 0, 0)
        self._fresh = bytes(self._headers)  # the kernel writes lengths into the headers: they are reset each time
        self._pointer = ctypes.c_void_p(_address(self._headers))

    def _fill(self, fd: int, flags: int) -> int:
        self._headers[:] = self._fresh
        count: int = self._receive(fd, self._pointer, _SLOTS, flags, None)
        if count < 0:
            raise OSError(ctypes.get_errno(), "recvmmsg")
        return count

    def receive(self, sock: socket.socket) -> list[tuple[bytes, bytes, int, int]]:
        """Return a batch of the datagrams that wait at a socket: (packet, sender, time of arrival in nanoseconds, TTL
        or 0).

        A sender is its address in network order and its port in the two bytes after it. The time is negative when the
        kernel did not stamp the packet and it is this process's own reading.

        :raises OSError: an ICMP error from an earlier packet, usually; datagrams may wait all the same.
        """
        try:
            count = self._fill(sock.fileno(), _DONT_WAIT)
        except BlockingIOError:
            return []
        # struct sockaddr_in: family, port, address; sockaddr_in6: family, port, flow, address.
        first, last = (4, 8) if sock.family == socket.AF_INET else (8, 24)
        datagrams = []
        for i in range(count):
            *_, length, _, size = _HEADER.unpack_from(self._headers, i * _HEADER.size)
            _, _, kind, seconds, rest, _, _, _, _, _, _, _, ttl = _USUAL.unpack_from(self._controls, i * _CONTROL)
            if kind == SO_TIMESTAMPING and length >= _STAMPED:
                arrived = seconds * _NS + rest
                if length < _USUAL.size:
                    ttl = 0
            else:
                arrived, ttl = self._unusual(i * _CONTROL, length)
            packet, name = i * _PACKET, i * _NAME
            peer = bytes(self._names[name + first : name + last] + self._names[name + 2 : name + 4])
            datagrams.append((bytes(self._packets[packet : packet + size]), peer, arrived or -time.time_ns(), ttl))
        return datagrams

    def _unusual(self, start: int, length: int) -> tuple[int, int]:
        """Return (time of arrival, TTL), 0 where missing, from control messages in any order."""
        arrived = ttl = 0
        end = start + length
        while start + _CMSG.size <= end:
            size, _, kind = _CMSG.unpack_from(self._controls, start)
            if kind == SO_TIMESTAMPING:
                seconds, rest = _STAMP.unpack_from(self._controls, start + _CMSG.size)
                arrived = seconds * _NS + rest
            elif size == _CMSG.size + _INT.size:
                ttl = _INT.unpack_from(self._controls, start + _CMSG.size)[0]
            start += max(_CMSG.size, -(-size // _ALIGN) * _ALIGN)
        return arrived, ttl

    def sent_at(self, sock: socket.socket) -> list[tuple[int, int]]:
        """Return (number on this socket since stamps were enabled, time of departure) of all packets in the error
        queue.

        It does not wait.
        """
        departures: list[tuple[int, int]] = []
        count = _SLOTS
        while count == _SLOTS:
            try:
                count = self._fill(sock.fileno(), _DONT_WAIT | _ERROR_QUEUE)
            except OSError:
                return departures
            for start in range(0, count * _CONTROL, _CONTROL):
                size, _, kind, seconds, rest = _SENT.unpack_from(self._controls, start)
                if kind == SO_TIMESTAMPING:
                    number = _NUMBER.unpack_from(self._controls, start + size + _NUMBER_AT)[0]
                    departures.append((number, seconds * _NS + rest))
        return departures


def _address(block: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(block)).from_buffer(block))

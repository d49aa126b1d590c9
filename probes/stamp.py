"""STAMP test packets, authenticated mode: RFC 8762 sections 4.2.2 and 4.3.2, with the SSID of RFC 8972 section 3.

Runs on the hosts: standard library only. Both packets are 112 bytes, big-endian, so that a reflector never sends more
than it got. The last 16 bytes are HMAC-SHA-256 over the 96 before them, truncated (RFC 8762 section 4.4)::

    sender     sequence 0  timestamp T1 16  error estimate 24  SSID 26                                      HMAC 96
    reflector  sequence 0  timestamp T3 16  error estimate 24  SSID 26  receive timestamp T2 32
               sender's sequence 48  sender's timestamp T1 64  sender's error estimate 72  sender's TTL 80  HMAC 96
"""

from __future__ import annotations

import hashlib
import hmac
import struct

SIZE = 112
_SIGNED = 96
_BLOCK = 64  # of SHA-256
_SENDER = struct.Struct("!I12xQHH68x")
_REFLECTOR = struct.Struct("!I12xQHH4xQ8xI12xQH6xB15x")
# S=0: not synchronised to UTC; Z=0: NTP format; scale 0, multiplier 1: an error of 2^-32 s (RFC 4656, 4.1.2)
ERROR_ESTIMATE = 1
_NTP_EPOCH_S = 2_208_988_800  # 1900 to 1970
_NS = 1_000_000_000


def ntp_from_ns(time_ns: int) -> int:
    """Return the 64-bit NTP timestamp (seconds since 1900, 32-bit fraction) of nanoseconds since 1970."""
    seconds, rest = divmod(time_ns, _NS)
    return (((seconds + _NTP_EPOCH_S) & 0xFFFFFFFF) << 32) | ((rest << 32) // _NS)


def ns_between(early: int, late: int) -> int:
    """Return the nanoseconds between two NTP timestamps (either sign), to 2^-32 s; eras wrap around."""
    difference = (late - early) & 0xFFFFFFFFFFFFFFFF
    if difference >= 1 << 63:
        difference -= 1 << 64
    return (difference * _NS) >> 32


class Key:
    """HMAC-SHA-256 (RFC 2104) with one key.

    Its two hash states are computed once, which halves the time of a packet.
    """

    def __init__(self, key: bytes) -> None:
        assert len(key) <= _BLOCK
        padded = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def signature(self, packet: bytes) -> bytes:
        """Return the HMAC of a packet's first 96 bytes, truncated to 16."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(packet[:_SIGNED])
        outer.update(inner.digest())
        return outer.digest()[:16]

    def is_signed(self, packet: bytes) -> bool:
        """Return whether a packet is of the right length and ends with its signature."""
        return len(packet) == SIZE and hmac.compare_digest(self.signature(packet), packet[_SIGNED:])


def pack_sender(key: Key, sequence: int, t1: int, ssid: int) -> bytes:
    """Return a Session-Sender packet; ``t1`` is an NTP timestamp."""
    packet = _SENDER.pack(sequence, t1, ERROR_ESTIMATE, ssid)
    return packet + key.signature(packet)


def unpack_sender(key: Key, packet: bytes) -> tuple[int, int, int, int] | None:
    """Return (sequence, T1, error estimate, SSID), or None for anything that this key did not sign."""
    return _SENDER.unpack_from(packet) if key.is_signed(packet) else None


def pack_reflector(key: Key, sequence: int, t3: int, t2: int, sender: tuple[int, int, int, int], ttl: int) -> bytes:
    """Return the Session-Reflector packet that answers ``sender``, the tuple of :func:`unpack_sender`."""
    sender_sequence, t1, error, ssid = sender
    packet = _REFLECTOR.pack(sequence, t3, ERROR_ESTIMATE, ssid, t2, sender_sequence, t1, error, ttl)
    return packet + key.signature(packet)


def unpack_reflector(key: Key, packet: bytes) -> tuple[int, int, int, int, int, int, int, int, int] | None:
    """Return (sequence, T3, error, SSID, T2, sequence, T1, error, TTL of the sender), or None if not signed."""
    return _REFLECTOR.unpack_from(packet) if key.is_signed(packet) else None

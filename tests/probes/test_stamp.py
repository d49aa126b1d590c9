"""STAMP packets in authenticated mode: every field where the RFC has it, signed, and refused when touched."""

import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from probes.stamp import (
    ERROR_ESTIMATE,
    SIZE,
    Key,
    ns_between,
    ntp_from_ns,
    pack_reflector,
    pack_sender,
    unpack_reflector,
    unpack_sender,
)

KEY = Key(bytes(range(32)))
U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SENDER = st.tuples(U32, U64, U16, U16)
# Nanoseconds since 1970 up to the year 2200: the NTP era that began in 1900 ends in 2036.
TIMES = st.integers(0, 230 * 366 * 86400 * 10**9)


def field(packet: bytes, first: int, last: int) -> int:
    """The big-endian number in bytes ``first`` to ``last``, as RFCs count them."""
    return int.from_bytes(packet[first : last + 1], "big")


def test_the_senders_packet_is_laid_out_as_rfc_8762_4_2_2_and_rfc_8972_3_say() -> None:
    packet = pack_sender(KEY, 0x01020304, 0x1112131415161718, 0xABCD)
    assert len(packet) == SIZE == 112
    assert field(packet, 0, 3) == 0x01020304
    assert field(packet, 16, 23) == 0x1112131415161718
    assert field(packet, 24, 25) == ERROR_ESTIMATE
    assert field(packet, 26, 27) == 0xABCD
    for first, last in ((4, 15), (28, 95)):  # must be zero
        assert field(packet, first, last) == 0
    assert packet[96:] == hmac.new(bytes(range(32)), packet[:96], hashlib.sha256).digest()[:16]


def test_reflector_packet_layout_is_rfc_8762_4_3_2_and_rfc_8972_3() -> None:
    sender = (0x21222324, 0x3132333435363738, 0x4142, 0x5152)
    packet = pack_reflector(KEY, 0x01020304, 0x1112131415161718, 0x6162636465666768, sender, 0x7F)
    assert len(packet) == SIZE
    assert field(packet, 0, 3) == 0x01020304  # its own number
    assert field(packet, 16, 23) == 0x1112131415161718  # T3
    assert field(packet, 24, 25) == ERROR_ESTIMATE
    assert field(packet, 26, 27) == 0x5152  # the sender's SSID
    assert field(packet, 32, 39) == 0x6162636465666768  # T2
    assert field(packet, 48, 51) == 0x21222324
    assert field(packet, 64, 71) == 0x3132333435363738
    assert field(packet, 72, 73) == 0x4142
    assert packet[80] == 0x7F
    for first, last in ((4, 15), (28, 31), (40, 47), (52, 63), (74, 79), (81, 95)):
        assert field(packet, first, last) == 0
    assert packet[96:] == hmac.new(bytes(range(32)), packet[:96], hashlib.sha256).digest()[:16]


@given(st.binary(min_size=1, max_size=64), st.binary(min_size=96, max_size=112))
def test_the_signature_is_hmac_sha_256_truncated(key: bytes, packet: bytes) -> None:
    assert Key(key).signature(packet) == hmac.new(key, packet[:96], hashlib.sha256).digest()[:16]


@given(U32, U64, U64, SENDER, st.integers(0, 255))
def test_what_is_packed_by_a_reflector_is_read_back(
    sequence: int, t3: int, t2: int, sender: tuple[int, int, int, int], ttl: int
) -> None:
    sender_sequence, t1, error, ssid = sender
    packet = pack_reflector(KEY, sequence, t3, t2, sender, ttl)
    assert unpack_reflector(KEY, packet) == (sequence, t3, ERROR_ESTIMATE, ssid, t2, sender_sequence, t1, error, ttl)


@given(st.integers(0, 8 * SIZE - 1))
def test_one_flipped_bit_is_refused(bit: int) -> None:
    for packet in (pack_sender(KEY, 7, 8, 9), pack_reflector(KEY, 1, 2, 3, (4, 5, 6, 7), 8)):
        touched = bytearray(packet)
        touched[bit // 8] ^= 1 << (bit % 8)
        assert unpack_sender(KEY, bytes(touched)) is None
        assert unpack_reflector(KEY, bytes(touched)) is None


@given(st.binary(max_size=200))
def test_garbage_of_any_length_is_refused(garbage: bytes) -> None:
    assert unpack_sender(KEY, garbage) is None
    assert unpack_reflector(KEY, garbage) is None


def test_a_packet_of_another_length_or_key_is_refused() -> None:
    packet = pack_sender(KEY, 1, 2, 3)
    for wrong in (packet[:-1], packet + b"\0", packet[:96], packet[:44]):
        assert unpack_sender(KEY, wrong) is None
    assert unpack_sender(Key(b"another run's key"), packet) is None


@given(TIMES, st.integers(-(2**31) * 10**9 + 1, 2**31 * 10**9 - 1))
def test_differences_survive_the_format_and_the_wrap_of_an_era(start_ns: int, difference_ns: int) -> None:
    """An NTP fraction is 0.23 ns: each end and the difference are rounded down once."""
    there = ns_between(ntp_from_ns(start_ns), ntp_from_ns(start_ns + difference_ns))
    assert abs(there - difference_ns) <= 1


def test_the_era_that_ends_in_2036_goes_on_in_the_next() -> None:
    last_second_ns = (2**32 - 2_208_988_800 - 1) * 10**9
    before, after = ntp_from_ns(last_second_ns), ntp_from_ns(last_second_ns + 2 * 10**9)
    assert after < before
    assert ns_between(before, after) == 2 * 10**9
    assert ns_between(after, before) == -2 * 10**9

"""A packet for a lab address never leaves by the machine's own interfaces, whole lab or half."""

import ctypes
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from runners.lab import kernel
from runners.lab.blueprint import NETWORK, PREFIX
from tests.conftest import Lab, plink
from tests.lab.traces import HERE, inside, left_of, routes_of_the_machine
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

UNUSED = "198.18.77.77"
_ETH_P_ALL = 0x0003
_CONTROL_PORT = 9


_LOOPBACK = 1  # its number in every namespace
_SO_ATTACH_FILTER = 26
# What comes over loopback is dropped but for UDP to the control port: other programs' would fill the buffer.
# Code, jump if true, jump if false, value (Linux, Documentation/networking/filter.rst).
_FILTER = (
    (0x20, 0, 0, 0xFFFFF008),  # the interface's number
    (0x15, 0, 4, _LOOPBACK),
    (0x30, 0, 0, 9),  # IPv4's protocol
    (0x15, 0, 3, socket.IPPROTO_UDP),
    (0x28, 0, 0, 22),  # UDP's destination port, after an IPv4 header without options
    (0x15, 0, 1, _CONTROL_PORT),
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)


class Sniffer:
    """All frames that the machine's own interfaces send or receive, loopback apart."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        program = b"".join(struct.pack("HBBI", *instruction) for instruction in _FILTER)
        buffer = ctypes.create_string_buffer(program)
        attached = struct.pack("HL", len(_FILTER), ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
        self._socket.setblocking(False)

    def seen(self) -> tuple[int, bool]:
        """Packets from or for lab addresses (ARP requests too), and whether the control packet was seen."""
        # A packet of our own, sent last: once it is here everything before it is.
        marker = os.urandom(8)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(marker, ("127.0.0.1", _CONTROL_PORT))
        count, control = 0, False
        deadline = time.monotonic() + 5
        while not control and time.monotonic() < deadline:
            try:
                packet = self._socket.recv(65535)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            control = marker in packet
            count += any(ipaddress.ip_address(address) in NETWORK for address in _addresses(packet))
        return count, control

    def close(self) -> None:
        self._socket.close()


def _addresses(packet: bytes) -> list[int]:
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        return [struct.unpack_from("!I", packet, offset)[0] for offset in (12, 16)]
    if len(packet) >= 28 and packet[:4] == b"\0\1\x08\0":  # ARP for IPv4
        return [struct.unpack_from("!I", packet, offset)[0] for offset in (14, 24)]
    return []


@pytest.fixture
def sniffer() -> Iterator[Sniffer]:
    """Listening from before the test sends anything."""
    made = Sniffer()
    yield made
    made.close()


def assert_refused_here(address: str) -> None:
    """The machine itself sends no packet there: the kernel refuses at once."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        pytest.raises(OSError, match=r"unreachable|No route"),
    ):
        sock.sendto(b"x", (address, 9))


def test_the_sniffer_sees_lab_packets_where_there_are_any(lab: Lab) -> None:
    """The judge of this file works: in the controller's namespace it does see a ping."""
    with kernel.inside(lab.blueprint.namespace("ctl")):
        control_sniffer = Sniffer()
        subprocess.run(["ping", "-c1", "-W2", lab.hosts.members[0].address], check=True, capture_output=True)
        count, control = control_sniffer.seen()
        control_sniffer.close()
    assert count >= 2
    assert control


def test_an_unused_address_is_unreachable_from_everywhere(lab: Lab, sniffer: Sniffer) -> None:
    """From a host, the controller, a router: a router says so; the machine refuses; no interface of it sees a thing."""
    for part in (lab.hosts.names[0], "ctl", "rack0", "core"):
        done = inside(lab, part, "ping", "-c1", "-W3", UNUSED)
        assert done.returncode != 0, done.stdout
        assert "nreachable" in done.stdout + done.stderr, f"{part}: {done.stdout}{done.stderr}"
    for address in (UNUSED, lab.hosts.members[0].address, lab.blueprint.gateway(0), lab.blueprint.uplink(0)[0]):
        assert_refused_here(address)
    assert sniffer.seen() == (0, True)


def test_hosts_reach_nothing_but_the_lab(lab: Lab, sniffer: Sniffer) -> None:
    """No default route in any namespace of a lab, so no way to the machine's own network or the Internet."""
    for namespace in kernel.namespaces(f"{PREFIX}{lab.name}."):
        assert kernel.query(["ip", "-n", namespace, "route", "show", "default"]) == ""
        assert kernel.query(["ip", "-n", namespace, "-6", "route", "show", "default"]) == ""
    for part in (lab.hosts.names[0], "ctl", "core", "rack0"):
        done = inside(lab, part, "ping", "-c1", "-W2", "192.0.2.1")
        assert done.returncode != 0
        assert "nreachable" in done.stdout + done.stderr
    assert sniffer.seen() == (0, True)


def test_lab_interfaces_are_not_in_the_root_namespace(lab: Lab) -> None:
    """Every link of a veth pair is in a namespace of the lab."""
    ours = {name for _, name in socket.if_nameindex()}
    assert not ours & {"up0", "br0", "ctl", "r0", "h0"}


def test_half_up_there_is_no_way_out_either(sniffer: Sniffer) -> None:
    """Stopped at several moments on the way up: the machine refuses already, and no namespace has a default route."""
    name = f"h{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", "lab", "up", "--name", name], cwd=HERE, stderr=subprocess.DEVNULL
    )
    moments = 0
    try:
        for wanted in (1, 5, 20):
            until(lambda n=wanted: len(kernel.namespaces(f"{PREFIX}{name}.")) >= n, 10, f"{wanted} namespaces")  # type: ignore[misc]
            process.send_signal(signal.SIGSTOP)
            assert process.poll() is None, "the lab came up before it could be looked at"
            assert "unreachable 198.18.0.0/15" in routes_of_the_machine()
            assert_refused_here(UNUSED)
            for namespace in kernel.namespaces(f"{PREFIX}{name}."):
                shown = subprocess.run(
                    ["ip", "-n", namespace, "route", "show", "default"], capture_output=True, text=True
                )
                assert shown.stdout == ""
                subprocess.run(["ip", "netns", "exec", namespace, "ping", "-c1", "-W1", UNUSED], capture_output=True)
                break
            moments += 1
            process.send_signal(signal.SIGCONT)
    finally:
        process.kill()
        process.wait(timeout=10)
        plink("lab", "down", "--name", name, cwd=HERE)
    assert moments == 3
    assert sniffer.seen() == (0, True)
    assert left_of(name) == []

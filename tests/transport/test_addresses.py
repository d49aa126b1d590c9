"""At which address others reach a host: as the controller did, or as the other hosts will."""

import socket
from typing import Any

import pytest

from plink.transport import addresses
from plink.transport.addresses import canonical, own_address_towards, reachable_address

# Documentation addresses (RFC 5737, RFC 3849): this host has the first two, the others are elsewhere.
OWN, SECOND, OTHER, PUBLIC, LOG_IN = "192.0.2.1", "198.51.100.1", "192.0.2.2", "203.0.113.1", "203.0.113.9"
NAMES = {"node-01": "127.0.1.1", "node-02": OTHER, "also-here": OWN, "localhost": "127.0.0.1", "outside": PUBLIC}
LINK = "fe80::1%eth7"


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """It takes its own name, node-01, for a loopback address, as Debian does; nobody came by SSH."""

    def resolved(host: str, *_: object, **__: object) -> list[Any]:
        if host not in NAMES and canonical(host) is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (NAMES.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(addresses, "source_address_for", lambda peer: {OTHER: OWN}.get(peer, SECOND))
    monkeypatch.setattr(addresses, "_inet6", lambda: [("fe80::1", "eth7", "20"), ("2001:db8::1", "eth7", "00")])
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    has(monkeypatch, OWN, SECOND, "2001:db8::1")
    return monkeypatch


def has(host: pytest.MonkeyPatch, *own: str) -> None:
    """The addresses of this host."""
    host.setattr(addresses, "local_addresses", lambda: [*own])


def by_ssh(host: pytest.MonkeyPatch, server: str) -> None:
    """The agent was started by an sshd that took the connection at that address."""
    host.setenv("SSH_CONNECTION", f"203.0.113.5 51000 {server} 22")


@pytest.mark.parametrize(
    ("dialled", "server", "address"),
    [
        (OWN, SECOND, OWN),
        ("2001:DB8:0::1", OWN, "2001:db8::1"),  # however it was written
        (PUBLIC, SECOND, SECOND),  # behind a NAT
        ("also-here", SECOND, SECOND),  # where the connection came, whatever else the name stands for
        ("also-here", LOG_IN, OWN),  # inherited from a log-in elsewhere
        (LINK, LINK, LINK),
        ("node-01", LINK, LINK),
    ],
)
def test_the_address_that_the_controller_used(
    host: pytest.MonkeyPatch, dialled: str, server: str, address: str
) -> None:
    by_ssh(host, server)
    assert reachable_address(dialled) == address


def test_a_controller_on_the_host_itself_that_came_by_its_own_name(host: pytest.MonkeyPatch) -> None:
    """`127.0.1.1 node-01` in /etc/hosts: others do not reach it there."""
    by_ssh(host, "127.0.1.1")
    assert reachable_address("node-01", ["node-02"]) == OWN
    assert reachable_address("node-01", [PUBLIC]) == SECOND
    assert reachable_address("127.0.0.1", ["no-such-name", OTHER]) == OWN


@pytest.mark.parametrize("server", [None, LOG_IN])
def test_launchers_that_do_not_say_where_they_came_in(host: pytest.MonkeyPatch, server: str | None) -> None:
    """srun, kubectl: nothing of SSH in the environment, or what the user's own log-in to another machine left there."""
    if server is not None:
        by_ssh(host, server)
    assert reachable_address("also-here", ["nobody"]) == OWN
    assert reachable_address("pod-0", ["node-02"]) == OWN
    has(host, SECOND)
    assert reachable_address("pod-0", ["pod-1"]) == SECOND
    has(host, SECOND, "2001:db8::1")
    assert reachable_address("pod-0", ["pod-1"]) == SECOND
    has(host, "2001:db8::1")
    assert reachable_address("pod-0", ["pod-1"]) == "2001:db8::1"


@pytest.mark.parametrize("dialled", ["pod-0", PUBLIC])
def test_one_of_several_addresses_is_not_guessed(dialled: str) -> None:
    with pytest.raises(OSError, match=f"which of {OWN}, {SECOND} do others reach this host at") as messages:
        reachable_address(dialled, ["pod-1"])
    assert "address=..." in str(messages.value)


def test_where_all_are_on_one_machine_loopback_stays(host: pytest.MonkeyPatch) -> None:
    assert reachable_address("127.0.0.1", ["127.0.0.2", "localhost"]) == "127.0.0.1"
    assert reachable_address("127.0.0.3") == "127.0.0.3"
    assert reachable_address("localhost", ["127.0.0.2"]) == "127.0.0.1"
    by_ssh(host, "127.0.0.2")
    assert reachable_address("an-alias", ["127.0.0.3"]) == "127.0.0.2"
    assert reachable_address("127.0.0.2", [OWN]) == OWN  # another's name for this host is no loopback


def test_a_host_without_a_network(host: pytest.MonkeyPatch) -> None:
    has(host)
    assert reachable_address("pod-0", ["pod-1"]) == "127.0.0.1"


def test_unknown_names_fail_soon(host: pytest.MonkeyPatch) -> None:
    """Each may take seconds."""
    request: list[str] = []

    def unknown(name: str, *_: object, **__: object) -> list[Any]:
        request.append(name)
        raise socket.gaierror(-2, "Name or service not known")

    host.setattr(socket, "getaddrinfo", unknown)
    assert own_address_towards([f"nobody-{k}" for k in range(50)]) == (
        "127.0.0.1",
        "no route to nobody-0: Name or service not known",
    )
    assert len(request) == 3


@pytest.mark.parametrize("name", ["a..b", f"{'x' * 64}.example"])
def test_a_name_that_cannot_be_one_is_no_way_either(host: pytest.MonkeyPatch, name: str) -> None:
    host.undo()
    assert own_address_towards([name])[1] == f"no route to {name}: no name that can be looked up"
    host.setattr(addresses, "local_addresses", lambda: [OWN])
    assert reachable_address(name, [name]) == OWN


def test_an_address_is_written_as_the_kernel_writes_it() -> None:
    wanted = {"10.0.0.1": "10.0.0.1", "FD00::2": "fd00::2", "fd00:0::3": "fd00::3", "fe80::1%eth0": "fe80::1%eth0",
              "101": None, "1.2": None, "1.2.3.4.5": None, "node-1": None, "": None, "::x": None}  # fmt: skip
    assert {written: canonical(written) for written in wanted} == wanted

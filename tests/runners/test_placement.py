"""Placement verification: every misplaced rank is found, and no correct one is blamed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from plink.model.hosts import Host, Hosts
from runners.job.messages import PlacementReport
from runners.job.placement import Located, RankLocation, assign_ranks, verify_placement

Reports = dict[int, tuple[str | None, Located]]


def report(hostname: str, *addresses: str) -> PlacementReport:
    """What a rank says."""
    return PlacementReport(0, 1, hostname, list(addresses))


HOSTS = Hosts((Host("a", "10.0.0.1", slots=2), Host("b", "10.0.0.2")))
IDENTITIES: dict[str, dict[str, Any]] = {
    "a": {"hostname": "ip-1", "addresses": ["10.0.0.1"]},
    "b": {"hostname": "ip-2", "addresses": ["10.0.0.2", "fd00::2"]},
}


def correct_reports() -> Reports:
    """Reports of ranks that are all where they should be."""
    return {
        0: ("a", report("ip-1", "10.0.0.1")),
        1: ("a", report("ip-1", "10.0.0.1")),
        2: ("b", report("ip-2", "10.0.0.2", "fd00::2")),
    }


def problems(hosts: Hosts, identities: dict[str, dict[str, Any]], reports: Reports) -> list[str | None]:
    """Return the problem of each rank."""
    return [location.problem for location in verify_placement(assign_ranks(hosts, identities), reports)]


@pytest.mark.parametrize("identities", [{}, IDENTITIES, {"a": {"hostname": "ip-1"}}])
def test_correct_placement_passes(identities: dict[str, dict[str, Any]]) -> None:
    assert problems(HOSTS, identities, correct_reports()) == [None, None, None]


def test_location_has_what_the_rank_reported() -> None:
    locations = verify_placement(assign_ranks(HOSTS, {}), correct_reports())
    assert locations[2] == RankLocation(2, "b", "ip-2", ("10.0.0.2", "fd00::2"), 1, None)
    assert to_builtins(locations[2].entry()) == {
        "rank": 2, "host": "b", "hostname": "ip-2", "addresses": ("10.0.0.2", "fd00::2"), "pid": 1, "wrong": None,
    }  # fmt: skip


def test_a_rank_of_another_agent() -> None:
    reports = correct_reports() | {1: ("b", report("ip-2", "10.0.0.2", "fd00::2"))}
    assert problems(HOSTS, {}, reports) == [None, "started on b", None]


def test_a_machine_other_than_the_one_that_was_measured() -> None:
    """The cloud gave the name to a new machine between probe and launch."""
    reports = correct_reports() | {2: ("b", report("ip-9", "10.0.0.2"))}
    assert problems(HOSTS, IDENTITIES, reports) == [None, None, "this name was measured on the machine 'ip-2'"]
    assert problems(HOSTS, {}, reports) == [None, None, None]


def test_a_machine_that_moved_to_another_address() -> None:
    hosts = Hosts((Host("a", "node-a", slots=2), Host("b", "node-b")))
    reports = correct_reports() | {2: ("b", report("ip-2", "10.0.0.7"))}
    assert problems(hosts, IDENTITIES, reports) == [None, None, "this name was measured at 10.0.0.2, fd00::2"]


def test_hosts_that_are_exchanged() -> None:
    """Each name leads to the other's machine: a resolver or a NAT that mixes them up."""
    reports = {0: correct_reports()[2], 1: correct_reports()[2], 2: correct_reports()[0]}
    swapped = {rank: ("a" if rank < 2 else "b", report) for rank, (_, report) in reports.items()}
    assert problems(HOSTS, {}, swapped) == ["has the address of b", "has the address of b", "has the address of a"]


def test_a_host_that_holds_its_own_address_and_one_more_is_right() -> None:
    """A virtual address that moves between hosts is no proof against the host that is reached at its own."""
    reports = correct_reports() | {2: ("b", report("ip-2", "10.0.0.1", "10.0.0.2"))}
    assert problems(HOSTS, {}, reports) == [None, None, None]


def test_two_names_of_one_machine() -> None:
    hosts = Hosts((Host("a", "node-a"), Host("b", "node-b")))
    reports = {0: ("a", report("ip-1", "10.0.0.1")), 1: ("b", report("ip-1", "10.0.0.1"))}
    assert problems(hosts, {}, reports) == [None, "is the same machine as a"]


def test_containers_with_one_private_address_differ_by_name() -> None:
    """Docker gives every host's containers 172.17.0.2: the same address on machines of different names is no proof."""
    hosts = Hosts((Host("a", "node-a"), Host("b", "node-b")))
    reports = {0: ("a", report("ip-1", "172.17.0.2")), 1: ("b", report("ip-2", "172.17.0.2"))}
    assert problems(hosts, {}, reports) == [None, None]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_ranks_are_assigned_in_blocks(slots: list[int]) -> None:
    hosts = Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}", slots=n) for i, n in enumerate(slots)))
    assignments = assign_ranks(hosts, {"h0": {"hostname": "ip-0"}})
    assert [assignment.rank for assignment in assignments] == list(range(sum(slots)))
    assert [(assignment.host, assignment.local_rank) for assignment in assignments] == [
        (f"h{i}", k) for i, n in enumerate(slots) for k in range(n)
    ]
    assert [assignment.identity is not None for assignment in assignments] == [
        assignment.host == "h0" for assignment in assignments
    ]


@pytest.mark.parametrize(
    ("address", "numeric"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00:0::2", "fd00::2"),
        ("node-1", None),
        ("1.2.example", None),
    ],
)
def test_only_numeric_addresses_are_compared(address: str, numeric: str | None) -> None:
    (assignment,) = assign_ranks(Hosts((Host("a", address),)), {})
    assert assignment.address == numeric


def test_addresses_are_the_same_however_they_are_written() -> None:
    hosts = Hosts((Host("a", "FD00::2"), Host("b", "fd00:0::3")))
    reports = {0: (None, report("ip-1", "fd00::2")), 1: (None, report("ip-2", "fd00::3"))}
    assert [location.problem for location in verify_placement(assign_ranks(hosts, {}), reports)] == [None, None]


def test_a_hub_may_be_on_the_machine_of_ranks_by_its_address_only() -> None:
    for address, problems_of_hub in (("10.0.0.1", 0), ("fat-1", 1)):
        hosts = Hosts((Host("a", "10.0.0.1"), Host("fat-1", address, 0, role="hub")))
        locations = verify_placement(
            assign_ranks(hosts, {}, ["fat-1"]),
            {0: ("a", report("ip-1", "10.0.0.1")), 1: ("fat-1", report("ip-1", "10.0.0.1"))},
        )
        assert [location.process for location in locations if location.problem] == ["hub-0"] * problems_of_hub

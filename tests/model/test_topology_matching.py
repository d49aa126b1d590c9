"""Hosts of a topology: whose path is whose."""

import pytest

from plink.errors import InputError
from plink.model.topology import Topology, paths_for
from tests.model.topologies import AWS, hosts, read


def test_hosts_that_a_file_lacks_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert paths_for(read("n1 r1\nn2 r2"), hosts("n1", "gone-1", "gone-2")) == [("r1",), None, None]
    assert "lacks 2 of the 3 hosts" in caplog.text
    assert "gone-1, gone-2" in caplog.text


def test_a_host_is_found_by_name_address_alias_or_first_label() -> None:
    topology = Topology(
        {"node-1.cluster.local": ("a",), "i-2": ("b",), "node-3": ("c",), "node-4": ("d",), "node-5": ("e",)},
        "aws",
        {"i-2": ("10.0.0.2", "ip-10-0-0-2.ec2.internal")},
    )
    job_hosts = hosts(
        "node-1", "node-3.elsewhere", "ip-10-0-0-2", "node-4.x", "10.0.0.9", two="10.0.0.2", five="node-5"
    )
    assert paths_for(topology, job_hosts) == [("a",), ("c",), ("b",), ("d",), None, ("b",), ("e",)]


def test_a_first_label_that_two_share_is_nobodys() -> None:
    topology = Topology({"a.x": ("1",), "a.y": ("2",), "b": ("3",), "c": ("4",)}, "aws")
    assert paths_for(topology, hosts("a", "a.x", "b.x", "b.y", "c")) == [None, ("1",), None, None, ("4",)]


def test_ipv6_addresses_have_several_spellings() -> None:
    topology = Topology({"fd00:0:0::1": ("1",), "b": ("2",)}, "list", {"b": ("fd00::2",)})
    assert paths_for(topology, hosts("fd00::1", b2="FD00:0::2")) == [("1",), ("2",)]


def test_an_alias_that_two_machines_share_is_nobodys_but_a_name_stays_a_name() -> None:
    topology = Topology({"a": ("1",), "b": ("2",)}, "aws", {"a": ("10.0.0.1", "b"), "b": ("10.0.0.1",)})
    assert paths_for(topology, hosts("a", "10.0.0.1", "b")) == [("1",), None, ("2",)]


def test_when_no_host_is_found_a_name_of_each_side_is_shown() -> None:
    with pytest.raises(InputError, match=r"t: it has none of the hosts: .*'node-1'.*'i-1111111111example'"):
        paths_for(read(AWS), hosts("node-1", "node-2"))

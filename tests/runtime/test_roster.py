"""Which host of an order a machine takes itself for, and what keeps a job from starting."""

import json
from pathlib import Path

import pytest

from plink.errors import HostError, InputError
from plink.model.hosts import Host
from plink.runtime.membership import (
    Registration,
    digest,
    find_self,
    is_loopback,
    missing,
    numeric,
    read_roster,
    refusal,
    registration_from,
)

ROSTER = (Host("alpha", "10.0.0.1"), Host("beta.cluster", "10.0.0.2"), Host("gamma", "gamma"), Host("delta", "delta"))


def nobody(name: str) -> list[str]:
    raise AssertionError(f"{name} was resolved")


def test_by_address_before_names() -> None:
    """A cloned machine that bears another's host name is told by its address; nothing is resolved."""
    assert find_self(ROSTER, "alpha", ["10.0.0.2", "172.17.0.1"], nobody).name == "beta.cluster"


@pytest.mark.parametrize(("hostname", "name"), [("gamma", "gamma"), ("beta", "beta.cluster"), ("delta.here", "delta")])
def test_by_host_name(hostname: str, name: str) -> None:
    assert find_self(ROSTER, hostname, ["192.0.2.7"], nobody).name == name


def test_by_what_names_resolve_to() -> None:
    table = {"gamma": ["192.0.2.3"], "delta": ["192.0.2.4"]}
    assert find_self(ROSTER, "ip-4", ["192.0.2.4"], table.__getitem__).name == "delta"


def test_none_of_them() -> None:
    with pytest.raises(HostError, match=r"other \(192.0.2.9\): not in the order; name its host by PLINK_NODE=NAME"):
        find_self(ROSTER, "other", ["192.0.2.9"], lambda name: [])


def test_several_of_them() -> None:
    """Two names of one machine: the host name decides where it can."""
    roster = (Host("a", "10.0.0.1"), Host("b", "10.0.0.1"))
    assert find_self(roster, "b", ["10.0.0.1"], nobody).name == "b"
    with pytest.raises(HostError, match="may be a or b of the order; name it by PLINK_NODE=NAME"):
        find_self(roster, "c", ["10.0.0.1"], nobody)


def test_an_address_is_the_same_however_it_is_written() -> None:
    """Kernels write lower case and leave zeros out."""
    roster = (Host("a", "FD00::1"), Host("b", "fd00:0::2"))
    assert find_self(roster, "ip-2", ["fd00::2"], nobody).name == "b"
    assert find_self(roster, "ip-1", ["10.0.0.1", "fd00::1"], nobody).name == "a"
    swapped = [came("a", addresses=["fd00::2"]), came("b", addresses=["fd00::1"])]
    assert refusal(roster, swapped) == "a is h (fd00::2): the order gives that address to b"
    assert refusal(roster, [came("a", addresses=["fd00::1"]), came("b", addresses=["fd00::2"])]) is None


def test_a_host_called_by_a_number_is_a_name() -> None:
    """It is looked up, and the resolver's guess at it is not taken; nor is 10 the host of 10.0.0.1."""
    roster = (Host("101", "101"), Host("102", "102"))
    assert find_self(roster, "102", ["192.0.2.2"], nobody).name == "102"
    assert find_self(roster, "ip-1", ["192.0.2.1"], {"101": ["192.0.2.1"], "102": []}.__getitem__).name == "101"
    assert numeric("101") == []
    with pytest.raises(HostError, match="not in the order"):
        find_self((Host("a", "10.0.0.1"),), "10", ["192.0.2.1"], nobody)


@pytest.mark.parametrize(
    ("address", "everywhere"),
    [("127.0.0.2", True), ("::1", True), ("0:0::1", True), ("127.example", False), ("127", False), ("10.0.0.1", False)],
)
def test_what_every_machine_holds(address: str, everywhere: bool) -> None:
    assert is_loopback(address) == everywhere


def test_what_orders_are_read_from(tmp_path: Path) -> None:
    """plink.order/1, a list of names, a hosts file; addresses and slots from a hosts file or a network's hosts."""
    (tmp_path / "o.json").write_text('{"schema": "plink.order/1", "algo": "ring", "hosts": ["b", "a"]}')
    (tmp_path / "names").write_text("b\na\n")
    (tmp_path / "hosts").write_text("a address=10.0.0.1 slots=2\nb address=10.0.0.2\n")
    network = {"hosts": [{"name": "a", "address": "10.0.0.1", "slots": 2}, {"name": "b", "address": "10.0.0.2"}]}
    (tmp_path / "net.json").write_text(json.dumps(network))
    assert read_roster(tmp_path / "names", None) == read_roster(tmp_path / "o.json", None)
    both = [read_roster(tmp_path / order, tmp_path / hosts) for order in ("o.json", "names")
            for hosts in ("hosts", "net.json")]  # fmt: skip
    assert all(roster_ == both[0] for roster_ in both)
    assert [(host.name, host.address, host.slots) for host in both[0]] == [("b", "10.0.0.2", 1), ("a", "10.0.0.1", 2)]
    (tmp_path / "hosts").write_text("a\n")
    with pytest.raises(InputError, match=r"no host 'b', which is in .*names"):
        read_roster(tmp_path / "names", tmp_path / "hosts")


def test_a_digest_is_of_names_order_and_slots() -> None:
    a, b = Host("a", "10.0.0.1"), Host("b", "10.0.0.2")
    assert digest((a, b)) == digest((Host("a", "a"), b))
    assert len({digest((a, b)), digest((b, a)), digest((a, Host("b", "b", slots=2)))}) == 3


def came(name: str | None, processes: int | None = 1, **more: object) -> Registration:
    """A node that has come."""
    fields = {"name": name, "hostname": "h", "addresses": ("10.0.0.9",), "pid": 5, "digest": "d", "nodes": 2}
    return Registration(**{**fields, "processes": processes, **more})


PAIR = (Host("a", "a"), Host("b", "b"))


def test_nothing_is_wrong() -> None:
    assert refusal(PAIR, [came("b"), came("a")]) is None
    assert missing(PAIR, [came("b")]) == ["a"]


def test_processes_without_slots_need_only_be_the_same() -> None:
    """A list of names gives every host one slot, which says nothing."""
    assert refusal(PAIR, [came("a", 8), came("b", 8)]) is None
    assert refusal(PAIR, [came("a", None), came("b", 8)]) is None
    message = "--nproc-per-node differs and the order has no slots: 8 on a, 4 on b"
    assert refusal(PAIR, [came("a", 8), came("b", 4)]) == message


def test_trouble_comes_first() -> None:
    assert refusal(PAIR, [came("a"), came(None, error="o.json: no such file", digest="x")]) == (
        "h (10.0.0.9): o.json: no such file"
    )


def test_a_node_that_gives_itself_out_for_another() -> None:
    """Swapped PLINK_NODEs, or two addresses swapped in the hosts file that all read."""
    pair = (Host("a", "10.0.0.1"), Host("b", "10.0.0.2"))
    right = [came("a", addresses=["10.0.0.1", "172.17.0.1"]), came("b", addresses=["10.0.0.2", "172.17.0.1"])]
    assert refusal(pair, right) is None
    wrong = [came("b", addresses=["10.0.0.1"]), came("a", addresses=["10.0.0.2"])]
    assert refusal(pair, wrong) == "b is h (10.0.0.1): the order gives that address to a"
    # A host behind an address that it does not hold itself (NAT) is not accused.
    assert refusal(pair, [came("a", addresses=["192.168.0.7"]), came("b", addresses=["10.0.0.2"])]) is None


def test_a_node_may_have_a_name_that_is_no_text() -> None:
    """Such a one is refused by its name, as one that is in no order."""
    node = Registration("n\udcff", "machine\udcff", ("10.0.0.1",), 7, "digest", 2, None)
    assert registration_from(node.encode()) == node

"""The hosts file: what is read, what is refused and where, and that it is written as it is read."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import InputError, UsageError
from plink.model.hostlist import check_name
from plink.model.hosts import Host, Hosts, hosts_from_json, parse_hosts, read_hosts, render_hosts

NAMES = st.from_regex(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,30}", fullmatch=True).filter(
    lambda name: not re.fullmatch(r"[^:]+:[0-9]*", name)  # host:slots
)
HOST = st.builds(
    Host,
    name=NAMES,
    address=NAMES,
    slots=st.integers(1, 65536),
    tier=st.sampled_from(["reliable", "transient"]),
    user=st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,20}", fullmatch=True),
    port=st.none() | st.integers(1, 65535),
    key=st.none() | st.text(string.ascii_letters + string.digits + "~/._-=", min_size=1, max_size=30),
    price=st.none() | st.floats(1e-9, 1e11) | st.just(0.0) | st.sampled_from([1e-5, 0.1 + 0.2]),
)
HUBS = st.builds(Host, name=NAMES, address=NAMES, slots=st.just(0), role=st.just("hub"))
HOSTS = st.builds(
    Hosts,
    st.lists(HOST | HUBS, min_size=1, max_size=8, unique_by=lambda host: host.name).map(tuple),
    st.none() | st.from_regex(r"[a-z0-9][a-z0-9-]{0,15}", fullmatch=True),
)


def test_every_setting_of_a_line_is_read() -> None:
    line = "ann@node-1 slots=8 tier=transient address=10.0.0.1 port=2222 key=~/.ssh/id price=0.35"
    text = f"# ours\n\n{line}  # fast\nnode-2\n"
    first, second = parse_hosts(text, "hosts.txt")
    assert first == Host("node-1", "10.0.0.1", 8, "transient", "ann", 2222, "~/.ssh/id", 0.35)
    assert second == Host("node-2", "node-2")


def test_hubs_take_no_ranks() -> None:
    hosts = parse_hosts("node-1 slots=2\nfat-1 role=hub\nnode-2 role=rank\n", "hosts.txt")
    assert [(host.name, host.slots) for host in hosts.ranked()] == [("node-1", 2), ("node-2", 1)]
    assert hosts.hubs == (Host("fat-1", "fat-1", 0, role="hub"),)
    with pytest.raises(UsageError, match="all hosts have role=hub"):
        parse_hosts("fat-1 role=hub\n", "hosts.txt").ranked()


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("aa slots=2 max_slots=4\nbb slots = 3 max-slots = 3\n// Open MPI\ncc\n", [2, 3, 1]),
        ("aa cpus=2\nbb count=3 sockets=2 cores_per_socket=4\ncc cpu=1 slots_max=4\n", [2, 3, 1]),
        ("# comment\naa slots=2\nbb slots=3\n\ncc slots=1\n", [2, 3, 1]),  # DeepSpeed, Horovod
        ("aa\naa\nbb\nbb\nbb\ncc\n", [2, 3, 1]),  # Open MPI, PBS, Slurm: a line a slot
        ("aa\nbb\ncc\naa\nbb\nbb\n", [2, 3, 1]),
        ("aa:2\nbb:3 # MPICH\ncc:1\n", [2, 3, 1]),
        ("aa:1 binding=map=[0]\nbb:2 ifhn=bb-ib\naa:1\nbb\ncc\n", [2, 3, 1]),  # Intel MPI, Hydra
        ("aa:2,bb:3,cc\n", [2, 3, 1]),  # Horovod's -H
        ("aa: 2\nbb: 3\ncc:\n", [2, 3, 1]),
        ("0 aa\n1 aa\n5 cc\n2 bb\n3 bb\n4 bb\n", [2, 3, 1]),  # pods, sorted as text
        ("RANK=1 A=1  # bb\nRANK=0 A=1  # aa\nRANK=2 A=1  # cc\n", [1, 1, 1]),
        ("rank 1=bb slot=0\nrank 2=cc slot=0\nrank 0=aa slot=0\n", [1, 1, 1]),
        ("".join(f"torchrun --node-rank={rank} --nproc-per-node=2 X  # {host}\n" for rank, host in
                 ((2, "cc"), (0, "aa"), (1, "bb"))), [2, 2, 2]),
        ("aa 2\nbb 3\ncc 1\n", [2, 3, 1]),
        ("aa 2 all.q@aa UNDEFINED\nbb 3 all.q@bb <NULL>\ncc 1 all.q@cc 0,1:0,2\n", [2, 3, 1]),  # Grid Engine
        ("aa np=2\nbb ppn=3\ncc\n", [2, 3, 1]),  # Torque
        ("aa 12400\naa 12401\nbb 12400\nbb 12401\nbb 12402\ncc 12400\n", [2, 3, 1]),  # LightGBM
        ("aa:12400\naa:12401\nbb:12400\nbb:12401\nbb:12402\ncc:12400\n", [2, 3, 1]),
        ("rank 0=aa slot=0\nrank 1 = aa slots=1:0-2\nrank 2=bb slot=0\nrank 3=bb slot=1\nrank 4=bb slot=2\n"
         "rank 5=cc slot=0\n", [2, 3, 1]),
    ],
)  # fmt: skip
def test_hostfiles_of_launchers_are_read_as_they_are(text: str, slots: list[int]) -> None:
    hosts = parse_hosts(text, "hostfile")
    assert hosts.names == ["aa", "bb", "cc"]
    assert [host.slots for host in hosts] == slots


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[1-2,4]", {"node1": 1, "node2": 1, "node4": 1}),
        ("node[009-010]-ib slots=8", {"node009-ib": 8, "node010-ib": 8}),
        ("rack[1-2]n[3-4]:2,login", {"rack1n3": 2, "rack1n4": 2, "rack2n3": 2, "rack2n4": 2, "login": 1}),
        ("::1 slots=2", {"::1": 2}),
        ("fd00::2:3", {"fd00::2:3": 1}),
        ("[::1]", {"::1": 1}),
        ("[fd00::1]:2\n[fe80::1%eth0]:12400", {"fd00::1": 2, "fe80::1%eth0": 1}),
    ],
)
def test_lists_and_ipv6_addresses(text: str, hosts: dict[str, int]) -> None:
    assert {host.name: host.slots for host in parse_hosts(text, "h")} == hosts


@pytest.mark.parametrize("port", [22, 2222])
@pytest.mark.parametrize("text", ["ubuntu@a:{}", "a:{} user=ubuntu", "a:{} slots=4", "[a::1]:{} slots=4", "a:{} key=k"])
def test_port_of_ssh_where_it_can_be_no_other(text: str, port: int) -> None:
    (host,) = parse_hosts(text.format(port), "h")
    assert (host.port, host.slots) == (port, 4 if "slots" in text else 1)
    assert f":{port}" not in host.name


def test_what_is_not_followed_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    parse_hosts("a:1 binding=map\nb:1 binding=map\na:1 sockets=2\nc 12400\nd 12401\ne:22\n", "h")
    assert sorted(record.getMessage().split(":")[1] for record in caplog.records) == ["1", "3", "3", "4", "6"]


def test_the_lab_is_named_in_a_comment() -> None:
    assert parse_hosts("# plink-lab: demo-7\nnode-1 address=198.18.1.1\n", "h").lab == "demo-7"
    assert parse_hosts("# a plink-lab: demo-7\nnode-1\n", "h").lab is None


@pytest.mark.parametrize(
    ("text", "location", "reason"),
    [
        ("", "h.txt", "no hosts in it"),
        ("a\nb\n\na slots=2\n", "h.txt:4", "'a' is listed twice (first on line 1)"),
        ("a slots=2\nb\na slots=2\n", "h.txt:3", "'a' is listed twice (first on line 1)"),
        ("a user=ann\na user=bob\n", "h.txt:2", "'a' is listed twice (first on line 1)"),
        ("a:2 3\n", "h.txt:1", "slots are given twice"),
        ("a SLOTS=2\n", "h.txt:1", "unknown key 'SLOTS'; did you mean slots=?"),
        ("a gpus=8\n", "h.txt:1", "unknown key 'gpus'; did you mean slots=?"),
        ("0 a\n2 b\n", "h.txt:2", "rank 2 is there, and rank 1 is not"),
        ("rank 0=a slot=0\nrank 0=b slot=0\n", "h.txt:2", "rank 0 is given twice"),
        ("RANK=0 X=1  # a\nb\n", "h.txt:2", "no rank is on this line"),
        ("a 2 b 2\n", "h.txt:1", "write one host a line"),
        ("a slots=\n", "h.txt:1", "not of the form key=value"),
        ("a key== =\n", "h.txt:1", "not of the form key=value"),
        ("a:0\n", "h.txt:1", "slots=0 is not a whole number"),
        ("bob@a:2222 port=22\n", "h.txt:1", "ports are given twice"),
        ("node[1-65536]\ngpu[1-9]\n", "h.txt:2", "more than 65536 hosts"),
        ("node[4-1]\n", "h.txt:1", "ends before it begins"),
        ("a b c\n", "h.txt:1", "one host a line"),
        ("^a\n", "h.txt:1", "cannot be a host name"),
        ("a\nb colour=red\n", "h.txt:2", "unknown key 'colour'"),
        ("a slots=\n", "h.txt:1", "'slots=' is not of the form key=value"),
        ("a slots=2 slots=3\n", "h.txt:1", "slots is given twice"),
        ("a slots=0\n", "h.txt:1", "slots=0 is not a whole number"),
        ("a price=-1\n", "h.txt:1", "price=-1 is not a plain number from 0 up"),
        ("a price=inf\n", "h.txt:1", "price=inf is not a plain number"),
        ("a price=\u0661\n", "h.txt:1", "is not a plain number"),
        ("a slots=" + "9" * 5000 + "\n", "h.txt:1", "is not a whole number"),
        ("a port=65536\n", "h.txt:1", "port=65536 is not a whole number"),
        ("a tier=cheap\n", "h.txt:1", "tier=cheap is neither reliable nor transient"),
        ("a role=server\n", "h.txt:1", "role=server is neither rank nor hub"),
        ("a\nb role=hub slots=1\n", "h.txt:2", "role=hub takes no ranks; omit slots=1"),
        ("a:4 role=hub\n", "h.txt:1", "role=hub takes no ranks; omit slots=4"),
        ("@a\n", "h.txt:1", "'' cannot be a user name"),
        ("a address=-oProxyCommand\n", "h.txt:1", "cannot be an address"),
        ("# plink-lab: ../../etc\na\n", "h.txt:1", "cannot be a lab's name"),
    ],
)
def test_a_bad_line_is_named(text: str, location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_hosts(text, "h.txt")
    assert caught.value.location == location
    assert reason in caught.value.reason
    assert caught.value.exit_code == 2


@given(
    st.text(string.ascii_letters, max_size=3),
    st.sampled_from(" \t\n;&|<>$`\\\"'(){}[]*?!~#=,@/\0"),
    st.text(max_size=3),
)
def test_no_name_holds_what_a_shell_would_read(before: str, character: str, after: str) -> None:
    with pytest.raises(InputError, match="cannot be a host name"):
        check_name(before + character + after, "here")


def test_what_is_no_name_is_refused() -> None:
    for name in ("-n", "", ".", "nöde", "node\n", "x" * 254, None, 7, ["a"]):
        with pytest.raises(InputError, match="cannot be a host name"):
            check_name(name, "here")


@settings(max_examples=40)
@given(HOSTS)
def test_what_is_rendered_is_parsed_back(hosts: Hosts) -> None:
    assert parse_hosts(render_hosts(hosts), "h") == hosts


@settings(max_examples=40)
@given(HOSTS)
def test_what_is_written_as_json_is_read_back(hosts: Hosts) -> None:
    assert hosts_from_json([host.to_json() for host in hosts], hosts.lab, "n.json") == hosts


@pytest.mark.parametrize(
    ("value", "location", "reason"),
    [
        (None, "n: hosts", "expected a list"),
        ([], "n: hosts", "1 or more"),
        (["a"], "n: hosts[0]", "expected an object"),
        ([{"name": "a"}, {"name": "a"}], "n: hosts[1]", "'a' is listed twice"),
        ([{"name": "a", "address": "$(id)"}], "n: hosts[0].address", "expected a host name"),
        ([{"name": "a", "slots": 1.5}], "n: hosts[0].slots", "expected a whole number"),
        ([{"name": "a", "tier": ["reliable"]}], "n: hosts[0].tier", "reliable"),
        ([{"name": "a", "slots": 2, "role": "hub"}], "n: hosts[0]", "role=hub takes no ranks"),
        ([{"name": "a", "key": "id#1"}], "n: hosts[0]", "cannot be a key file's name"),
        ([{"name": "a", "price": float("inf")}], "n: hosts[0]", "price=inf is not a plain number"),
        ([{"name": "a", "price": 10**400}], "n: hosts[0].price", "number"),
    ],
)
def test_a_bad_entry_of_a_json_list_is_named(value: object, location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        hosts_from_json(value, None, "n")
    assert caught.value.location == location
    assert reason in caught.value.reason


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_bytes(b"node-1\n\xff\xfe\n")
    with pytest.raises(InputError, match="not a text file"):
        read_hosts(path)


def test_a_small_number_after_a_user_s_host_is_slots() -> None:
    host = parse_hosts("ann@a:4\n", "h").members[0]
    assert (host.user, host.slots, host.port) == ("ann", 4, None)
    with pytest.raises(InputError, match="twice"):
        parse_hosts("a:2 slots=4\n", "h")

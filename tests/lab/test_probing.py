"""Probing lab hosts: what the file says is what the lab is, by every method, whole or in parts."""

import json
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.model.network import Network
from solvers.affinity import paia
from tests.conftest import Lab, plink
from tests.lab.probing import (
    QUICK,
    datagrams,
    document,
    firewall,
    holes,
    network,
    of,
    partly,
    probe,
    succeeded,
    used,
)
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
ROUTERS = 3  # a packet from rack to rack passes its own router, the core, the other's


def hops(lab: Lab, measured: Network) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Routers between every two hosts, in the file's order."""
    racks = np.array([lab.racks[name] for name in measured.hosts.names])
    return np.where(racks[:, None] == racks[None, :], 0.0, float(ROUTERS))


@pytest.fixture(scope="module")
def everything(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a probe of all sixteen hosts."""
    folder = tmp_path_factory.mktemp("everything")
    succeeded(probe(lab, folder, "--count", "400", "--no-shared-links"))
    return folder


def test_every_pair_is_measured_both_ways_by_the_kernels_clock(everything: Path) -> None:
    network_document = document(everything)
    assert holes(network_document) == set()
    assert set(used(network_document, "method").values()) == {"stamp"}
    assert set(used(network_document, "clock").values()) == {"kernel"}
    off = ~np.eye(16, dtype=bool)
    assert (np.array(network_document["samples"])[off] >= 150).all()  # of 200: a busy machine may lose some
    assert (np.array(network_document["loss_forward"], dtype=float)[off] <= 0.25).all()
    ordered = [
        network_document["percentiles_us"]["1"],
        network_document["latency_us"],
        *(network_document["percentiles_us"][p] for p in ("50", "90", "99")),
    ]
    for low, high in pairwise(np.array(ordered, dtype=float)):
        assert (low[off] <= high[off]).all()
    assert all(
        machine["hostname"] == host["name"]
        for machine, host in zip(network_document["machines"], network_document["hosts"], strict=True)
    )


def test_hops_and_distances_identify_the_racks(lab: Lab, everything: Path) -> None:
    measured = network(everything)
    truth = hops(lab, measured)
    assert np.array_equal(
        np.array(measured.details.hops, dtype=float)[~np.eye(16, dtype=bool)], truth[~np.eye(16, dtype=bool)]
    )
    assert paia(np.fmax(measured.latency_us, measured.latency_us.T), truth) >= 0.9


def test_few_pairs_are_enough_when_the_rest_is_predicted(lab: Lab, tmp_path: Path) -> None:
    done = probe(lab, tmp_path, *QUICK, "--pairs", "adaptive")
    succeeded(done)
    network_document = document(tmp_path)
    assert network_document["plan"] == "adaptive"
    assert "predicted" in done.stderr
    predicted = np.array(network_document["predicted_us"], dtype=float)
    assert np.isfinite(predicted).all()


@pytest.fixture
def captured(small_lab: Lab, tmp_path: Path) -> tuple[str, list[Any]]:
    """A host's UDP packets during a probe of the small lab, in order, as Scapy reads them."""
    from scapy.layers.inet import UDP
    from scapy.utils import rdpcap

    host, file = small_lab.hosts.names[0], tmp_path / "wire.pcap"
    namespace = small_lab.blueprint.namespace(host)
    argv = ["ip", "netns", "exec", namespace, "tcpdump", "-i", "eth0", "-U", "-Z", "root", "-w", str(file), "udp"]
    before = datagrams(small_lab, host)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tcpdump:
        try:
            assert tcpdump.stderr is not None
            assert any("listening on" in line for line in tcpdump.stderr)
            succeeded(probe(small_lab, tmp_path, "--count", "300", "--no-shared-links"))
            sent = datagrams(small_lab, host) - before

            def seen() -> list[Any]:
                packets = [packet for packet in rdpcap(str(file)) if UDP in packet]
                own = small_lab.hosts.by_name()[host].address
                return packets if sum(packet["IP"].src == own for packet in packets) >= sent else []

            packets = until(seen, 20, "all packets of the host in the capture")
        finally:
            tcpdump.terminate()
    return small_lab.hosts.by_name()[host].address, packets


def test_the_wire_holds_nothing_but_signed_probes_and_answers_of_one_size(captured: tuple[str, list[Any]]) -> None:
    """Three pairs of 150 probes each way, and a few greetings; no answer is longer than its question."""
    own, packets = captured
    payloads = [bytes(packet["UDP"].payload) for packet in packets]
    assert {len(payload) for payload in payloads} == {112}
    assert {packet["IP"].ttl for packet in packets if packet["IP"].src == own} == {255}
    out = sum(packet["IP"].src == own for packet in packets)
    assert out >= 3 * 150 * 2
    assert len(packets) - out >= 3 * 150 * 2
    assert all(any(payload[96:]) for payload in payloads)
    # Each source port is a path of its own; what is answered is sent from the reflector's.
    assert len({packet["UDP"].sport for packet in packets if packet["IP"].src == own}) == 4 + 1
    # T1 of the questions and T1 in the answers to them are the same.
    probes_sent = {
        payload[16:24]
        for packet, payload in zip(packets, payloads, strict=True)
        if packet["IP"].src == own and not any(payload[28:96])
    }
    answers_sent = {
        payload[64:72]
        for packet, payload in zip(packets, payloads, strict=True)
        if packet["IP"].src != own and any(payload[64:72])
    }
    assert answers_sent <= probes_sent
    assert len(answers_sent) >= 3 * 150


def test_a_host_is_in_one_pair_at_a_time(captured: tuple[str, list[Any]]) -> None:
    own, packets = captured
    peers = [packet["IP"].dst if packet["IP"].src == own else packet["IP"].src for packet in packets]
    changes = [peers[0], *(b for a, b in pairwise(peers) if a != b)]
    assert len(changes) == len(set(changes)) == 3


def test_one_connection_a_host_and_nothing_left_of_it(small_lab: Lab, tmp_path: Path) -> None:
    def accepted(name: str) -> int:
        return small_lab.state.file(name, "sshd.log").read_text().count("Accepted publickey")

    before = {name: accepted(name) for name in small_lab.hosts.names}
    succeeded(probe(small_lab, tmp_path, *QUICK))
    assert {name: accepted(name) - before[name] for name in small_lab.hosts.names} == dict.fromkeys(before, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.txt", "n.json"]


@pytest.mark.parametrize("method", ["icmp", "tcp"])
def test_other_methods_measure_every_pair(method: str, small_lab: Lab, tmp_path: Path) -> None:
    succeeded(probe(small_lab, tmp_path, *QUICK, "--method", method))
    network_document = document(tmp_path)
    assert holes(network_document) == set()
    assert set(used(network_document, "method").values()) == {method}
    latency = np.array(network_document["latency_us"])
    assert (latency[~np.eye(4, dtype=bool)] > 0).all()


@pytest.mark.parametrize("words", [("--method", "iperf3"), ("--bandwidth",), ("--bandwidth", "--streams", "2")])
def test_bandwidth_is_what_the_hosts_may_send(words: tuple[str, ...], small_lab: Lab, tmp_path: Path) -> None:
    """200 Mbit/s each, by flows or by iperf3."""
    two = small_lab.hosts.names[:2]
    succeeded(probe(small_lab, tmp_path, *QUICK, *words, "--bandwidth-time", "1s", names=two))
    measured = network(tmp_path)
    assert measured.bandwidth_gbps is not None
    assert measured.bandwidth_gbps[0, 1] == pytest.approx(0.19, rel=0.15)
    assert measured.bandwidth_gbps[1, 0] == pytest.approx(0.19, rel=0.15)
    assert np.isfinite(measured.latency_us).all()


def test_auto_takes_icmp_for_the_host_that_udp_does_not_reach(small_lab: Lab, tmp_path: Path) -> None:
    odd = small_lab.hosts.names[1]
    with firewall(small_lab, odd, "ipproto udp"):
        done = probe(small_lab, tmp_path, *QUICK, "--method", "auto", "--timeout", "100ms")
    succeeded(done)
    assert "three hosts by stamp, one host by icmp" in done.stderr
    network_document = document(tmp_path)
    expected = dict.fromkeys(of(small_lab.hosts.names, small_lab.hosts.names), "stamp")
    assert used(network_document, "method") == expected | dict.fromkeys(of([odd], small_lab.hosts.names), "icmp")


def test_auto_takes_tcp_where_nothing_else_gets_through(small_lab: Lab, tmp_path: Path) -> None:
    two = small_lab.hosts.names[:2]
    with firewall(small_lab, two[0], "ipproto udp", "ipproto icmp"):
        succeeded(probe(small_lab, tmp_path, *QUICK, "--method", "auto", "--timeout", "100ms", names=two))
    assert set(used(document(tmp_path), "method").values()) == {"tcp"}


@pytest.mark.parametrize("number", [2, 3])
def test_a_few_hosts_are_enough(number: int, small_lab: Lab, tmp_path: Path) -> None:
    names = small_lab.hosts.names[:number]
    succeeded(probe(small_lab, tmp_path, *QUICK, names=names))
    network_document = document(tmp_path)
    assert [host["name"] for host in network_document["hosts"]] == names
    assert holes(network_document) == set()


def test_a_spent_budget_leaves_what_was_measured_and_resume_goes_on(small_lab: Lab, tmp_path: Path) -> None:
    """A round that has begun is finished; connecting counts too, so a busy machine may need a second more."""
    for budget_s in (2, 4, 8):
        words = ("--count", "40000", "--no-shared-links", "--budget", f"{budget_s}s")
        assert "the budget is spent" in partly(probe(small_lab, tmp_path, *words))
        first = network(tmp_path)
        measured = np.isfinite(first.latency_us) & ~np.eye(4, dtype=bool)
        if measured.any():
            break
    assert 0 < measured.sum() < 12
    assert np.array_equal(measured, measured.T)
    succeeded(probe(small_lab, tmp_path, "--count", "40", "--no-shared-links", "--resume"))
    second = network(tmp_path)
    assert np.isfinite(second.latency_us).all()
    assert np.array_equal(second.latency_us[measured], first.latency_us[measured])
    assert (np.array(second.details.samples)[~measured] <= 20).all()


def test_resume_needs_the_same_hosts(small_lab: Lab, tmp_path: Path) -> None:
    succeeded(probe(small_lab, tmp_path, *QUICK, names=small_lab.hosts.names[:2]))
    before = (tmp_path / "n.json").read_bytes()
    done = probe(small_lab, tmp_path, *QUICK, "--resume")
    assert done.returncode == 2
    assert "is about other hosts" in done.stderr
    assert (tmp_path / "n.json").read_bytes() == before


def test_resume_of_what_is_whole_measures_nothing(small_lab: Lab, tmp_path: Path) -> None:
    two = small_lab.hosts.names[:2]
    succeeded(probe(small_lab, tmp_path, *QUICK, names=two))
    before = document(tmp_path)
    sent = datagrams(small_lab, two[0])
    succeeded(probe(small_lab, tmp_path, *QUICK, "--resume", names=two))
    assert datagrams(small_lab, two[0]) == sent
    assert document(tmp_path)["latency_us"] == before["latency_us"]


def test_lab_hosts_are_found_by_the_line_that_names_their_lab(small_lab: Lab, tmp_path: Path) -> None:
    """Without -o the result is the folder's last network."""
    done = plink("probe", str(small_lab.hosts_file), *QUICK, cwd=tmp_path)
    succeeded(done)
    assert json.loads((tmp_path / ".plink" / "network.json").read_text())["lab"] == small_lab.name

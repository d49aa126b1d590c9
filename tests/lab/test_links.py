"""The lab's network is what it says: hops, rates, and what is shared."""

import concurrent.futures
import json
import re
import statistics
from itertools import pairwise

import pytest

from tests.conftest import Lab
from tests.lab.traces import inside
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

PORT = 5300


def pairs(lab: Lab) -> tuple[tuple[str, str], tuple[str, str]]:
    """Two hosts of one rack, two hosts of different racks."""
    first = lab.hosts.names[0]
    mate = next(name for name in lab.hosts.names[1:] if lab.racks[name] == lab.racks[first])
    far = next(name for name in lab.hosts.names[1:] if lab.racks[name] != lab.racks[first])
    return (first, mate), (first, far)


def address(lab: Lab, name: str) -> str:
    """A host's address."""
    return lab.hosts.by_name()[name].address


def routers_between(lab: Lab, source: str, sink: str) -> int:
    """Routers on the way, told by the TTL that an answer comes back with (hosts send with 64)."""
    done = inside(lab, source, "ping", "-c1", "-W2", address(lab, sink))
    match = re.search(r"ttl=(\d+)", done.stdout)
    assert match, done.stdout
    return 64 - int(match.group(1))


def serve(lab: Lab, host: str, port: int = PORT) -> None:
    """An iperf3 that serves one test on a host and then ends, at the latest after half a minute."""
    inside(lab, host, "sh", "-c", f"setsid -f timeout 30 iperf3 -s -1 -p {port} >/dev/null 2>&1")
    until(lambda: inside(lab, host, "ss", "-Hltn", f"sport = :{port}").stdout.strip(), 10, f"iperf3 on {host}")


def transfer(lab: Lab, source: str, sink: str, seconds: int = 1, port: int = PORT) -> float:
    """Mbit/s that TCP gets from one host to another, as the receiver counted it."""
    serve(lab, sink, port)
    done = inside(lab, source, "iperf3", "-J", "-p", str(port), "-c", address(lab, sink), "-t", str(seconds), "-O1")
    report = json.loads(done.stdout)
    assert "error" not in report, report["error"]
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def test_routers_on_the_way(lab: Lab) -> None:
    """None inside a rack; rack, core, rack between racks; the same both ways, for every neighbour in the list."""
    for a, b in pairwise(lab.hosts.names):
        expected = 0 if lab.racks[a] == lab.racks[b] else 3
        assert routers_between(lab, a, b) == expected, (a, b)
        assert routers_between(lab, b, a) == expected, (b, a)


def test_racks_are_farther_than_neighbours(lab: Lab) -> None:
    """The routers cost real time: what plink lives on. In turns, so that what else the machine does concerns both."""
    ways = pairs(lab)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(9):
        for time_us, (a, b) in zip(times, ways, strict=True):
            time_us.append(fastest(lab, a, b))
    assert statistics.median(times[0]) < statistics.median(times[1]), times


def fastest(lab: Lab, source: str, sink: str) -> float:
    """Round trip of the fastest of some pings, in milliseconds."""
    done = inside(lab, source, "ping", "-q", "-c100", "-i0.002", "-s100", address(lab, sink))
    match = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", done.stdout)
    assert match, done.stdout
    return float(match.group(1))


def test_whole_frames_of_the_mtu_pass(lab: Lab) -> None:
    """9000 bytes unfragmented across racks, and not one more."""
    _, (a, b) = pairs(lab)
    fits = inside(lab, a, "ping", "-c1", "-W2", "-Mdo", "-s", str(9000 - 28), address(lab, b))
    assert fits.returncode == 0, fits.stdout
    assert inside(lab, a, "ping", "-c1", "-W2", "-Mdo", "-s", str(9000 - 27), address(lab, b)).returncode != 0


@pytest.mark.parametrize("which", [0, 1], ids=["in a rack", "across racks"])
def test_a_host_sends_at_the_rate_that_was_set(lab: Lab, which: int) -> None:
    """TCP gets about the 200 Mbit/s of the links and no more."""
    source, sink = pairs(lab)[which]
    assert 160 < transfer(lab, source, sink) < 210


def test_an_uplink_is_shared_by_the_hosts_of_its_rack(lab: Lab) -> None:
    """Two hosts of one rack that send to two racks get the uplink's rate together."""
    (a, mate), _ = pairs(lab)
    others = {lab.racks[name]: name for name in lab.hosts.names if lab.racks[name] != lab.racks[a]}
    sinks = list(others.values())[:2]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        flows = [
            pool.submit(transfer, lab, source, sink, 2, PORT + i)
            for i, (source, sink) in enumerate(zip((a, mate), sinks, strict=True))
        ]
        rates = [flow.result() for flow in flows]
    assert 160 < sum(rates) < 225
    assert max(rates) < 180, "one flow had the uplink for itself"

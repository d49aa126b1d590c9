"""What was measured of some hosts of a network: what is left of each part of the file, and that costs stay the same."""

from typing import Any

import numpy as np
import pytest

from plink.errors import InputError, NoAnswer, UsageError
from plink.features.diagnose.run import diagnose
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, network_from_json
from plink.model.subnetwork import subnetwork
from solvers.costs.fabric import fabric_of
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

N = 8
NAMES = [f"n{k}" for k in range(N)]
TAKEN = [1, 2, 5, 6]


def matrix(scale: float = 1.0) -> list[list[float]]:
    """Entry [i][j] tells i and j."""
    return [[0.0 if i == j else scale * (10 * i + j + 1) for j in range(N)] for i in range(N)]


def cut(rows: list[list[float]]) -> list[list[float]]:
    """The rows of the hosts that are taken."""
    return [[rows[i][j] for j in TAKEN] for i in TAKEN]


def document(**more: Any) -> dict[str, Any]:
    """A network of eight hosts with two slots."""
    hosts = [{"name": name, "slots": 2} for name in NAMES]
    return {"schema": "plink.network/1", "hosts": hosts, "latency_us": matrix(), **more}


def part(*, order: list[int] | None = None, **more: Any) -> Network:
    """What was measured of the hosts that are taken, in an order."""
    hosts = Hosts(tuple(Host(NAMES[k], f"10.0.0.{k}", slots=4) for k in order or TAKEN))
    return subnetwork(network_from_json(document(**more), "n"), hosts)


def test_each_matrix_is_of_the_hosts_alone() -> None:
    shares = matrix(0.001)
    network = part(
        bandwidth_gbps=matrix(2),
        jitter_us=matrix(3),
        loss_forward=shares,
        percentiles_us={"50": matrix(4)},
        halves_us=[matrix(5), matrix(6)],
        predicted_us=matrix(7),
        samples=[[int(value) for value in row] for row in matrix()],
    )
    assert network.latency_us.tolist() == cut(matrix())
    assert network.bandwidth_gbps is not None
    assert network.bandwidth_gbps.tolist() == cut(matrix(2))
    for key, rows in (("jitter_us", matrix(3)), ("loss_forward", shares), ("predicted_us", matrix(7))):
        assert np.allclose(network.detail(key), cut(rows)), key  # type: ignore[arg-type]
    assert network.details.samples == cut(matrix())
    assert network.details.percentiles_us == {"50": cut(matrix(4))}
    assert network.details.halves_us == [cut(matrix(5)), cut(matrix(6))]
    again = network_from_json(network.to_json(), "part")
    assert again.hosts.names == [NAMES[k] for k in TAKEN]
    assert again.latency_us.tolist() == cut(matrix())


def test_hosts_are_those_of_the_job() -> None:
    network = part(order=TAKEN[::-1])
    assert [(host.name, host.address, host.slots) for host in network.hosts] == [
        (NAMES[k], f"10.0.0.{k}", 4) for k in TAKEN[::-1]
    ]
    assert network.latency_us[0, 3] == matrix()[TAKEN[3]][TAKEN[0]]
    assert network.fingerprint() == part().fingerprint()  # the same measurements, whatever the order of the hosts


def test_all_hosts_in_any_order_are_the_same_measurement() -> None:
    whole = network_from_json(document(), "n")
    again = subnetwork(whole, Hosts(tuple(reversed(whole.hosts.members))))
    assert again.fingerprint() == whole.fingerprint()
    assert again.latency_us[0, 1] == whole.latency_us[7, 6]


def test_what_is_said_of_other_hosts_goes() -> None:
    errors = [{"from": a, "to": b, "why": "n3: lost"} for a, b in (("n1", "n3"), ("n1", "n2"), ("n3", "n4"))]
    network = part(
        errors=errors,
        host_flow_errors=errors,
        lost_hosts={"n2": "gone", "n3": "lost"},
        machines=[{"hostname": f"m{k}"} for k in range(N)],
    )
    assert [(row.source, row.target) for row in network.errors] == [("n1", "n2")]
    assert [(row.source, row.target) for row in network.host_flow_errors] == [("n1", "n2")]
    assert network.lost_hosts == {"n2": "gone"}
    assert [machine.hostname for machine in network.machines if machine] == [f"m{k}" for k in TAKEN]


RACKS: list[dict[str, Any]] = [
    {"groups": [{"members": NAMES[:4], "out_gbps": 8, "in_gbps": 6, "out_limited_by": "link", "in_limited_by": "link"},
                {"members": NAMES[4:7], "out_gbps": 3, "in_gbps": 5, "out_limited_by": "link", "in_limited_by": "link"},
                {"members": NAMES[7:], "out_gbps": 1, "in_gbps": 1, "out_limited_by": "link", "in_limited_by": "link"}]}
]  # fmt: skip
# Each host has flows with two that are not taken; n5 is slow with both.
FLOWS = [
    {"from": a, "to": b, "gbps": 1.0 if "n5" in (a, b) else 10.0 + 0.01 * k, "both_ways": False}
    for k, (a, b) in enumerate((NAMES[x], NAMES[y]) for i in TAKEN for other in (0, 3, 4, 7) if i != other
                               for x, y in ((i, other), (other, i)))
]  # fmt: skip


def test_links_and_rates_stay_those_of_the_whole() -> None:
    whole, few = fabric_of(network_from_json(document(shared_links=RACKS, host_flows=FLOWS), "n")), fabric_of(
        part(shared_links=RACKS, host_flows=FLOWS)
    )  # fmt: skip
    assert few.host_out_gbps.tolist() == whole.host_out_gbps[TAKEN].tolist()
    assert few.host_in_gbps.tolist() == whole.host_in_gbps[TAKEN].tolist()
    assert few.host_out_gbps[2] < 2 < few.host_out_gbps[0]
    for links in ("out", "in"):
        few_gbps, whole_gbps = (getattr(fabric, f"group_{links}_gbps")[fabric.group_of] for fabric in (few, whole))
        assert few_gbps.tolist() == whole_gbps[TAKEN].tolist()


# Where rates come from: shared links and flows; rates of pairs, with the fast partners left out; neither.
MEASURED: list[dict[str, Any]] = [
    {"shared_links": RACKS, "host_flows": FLOWS},
    {"bandwidth_gbps": [[0 if i == j else 40 if i // 2 == j // 2 else 3 for j in range(N)] for i in range(N)]},
    {"shared_links": [{"groups": RACKS[0]["groups"][2:]}], "host_flows": FLOWS},
    {},
]


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "2lha", "flat"])
@pytest.mark.parametrize("measured", MEASURED)
def test_a_collective_of_these_hosts_costs_the_same(measured: dict[str, Any], algo: str) -> None:
    whole, few = fabric_of(network_from_json(document(**measured), "n")), fabric_of(part(**measured))
    options = Options(groups=[[0, 1], [2, 3]])
    costs = [
        SimulatedCost.of(algo, 4, options, fabric, 1e6, "contention")(np.array(order))
        for fabric, order in ((few, [2, 0, 3, 1]), (whole, [5, 1, 6, 2]))
    ]
    assert costs[0] > 0
    assert costs[0] == pytest.approx(costs[1])


def test_findings_are_those_of_the_whole() -> None:
    """n5 is slow with all; the farthest host of a part is not, and nobody else is named."""
    rows = [[0.0 if i == j else 300.0 if 5 in (i, j) else 30.0 if i // 4 == j // 4 else 90.0 for j in range(N)]
            for i in range(N)]  # fmt: skip
    whole = network_from_json(document(latency_us=rows), "n")
    assert {name for finding in diagnose(whole) for name in finding.hosts} == {"n5"}
    for names, slow in ((("n0", "n1", "n5"), {"n5"}), (("n0", "n1", "n4"), set[str]())):
        few = subnetwork(whole, Hosts(tuple(Host(name, name) for name in names)))
        assert {name for finding in diagnose(few) for name in finding.hosts} == slow


def test_a_slow_pair_concerns_a_job_of_both() -> None:
    rows = [[0.0 if i == j else 300.0 if {i, j} == {0, 7} else 30.0 for j in range(N)] for i in range(N)]
    whole = network_from_json(document(latency_us=rows), "n")
    for names, kinds in ((("n0", "n1", "n2"), []), (("n0", "n1", "n7"), ["slow link"])):
        few = subnetwork(whole, Hosts(tuple(Host(name, name) for name in names)))
        assert [finding.kind for finding in diagnose(few)] == kinds


def test_like_findings_of_other_pairs_do_not_concern_a_job() -> None:
    slow = ({0, 5}, {2, 7})
    rows = [[0.0 if i == j else 300.0 if {i, j} in slow else 30.0 for j in range(N)] for i in range(N)]
    whole = network_from_json(document(latency_us=rows), "n")
    assert len(diagnose(whole)) == 2
    for names, named in ((("n0", "n1", "n2"), []), (("n0", "n2", "n7"), [["n2", "n7"]])):
        few = subnetwork(whole, Hosts(tuple(Host(name, name) for name in names)))
        assert [finding.hosts for finding in diagnose(few)] == named


def rails(relays: list[list[int | None]]) -> dict[str, Any]:
    """Two interfaces a host, each on a switch with that of the others."""
    used = [[None if i == j else 0 for j in range(N)] for i in range(N)]
    switches = [[[host, rail] for host in range(N)] for rail in (0, 1)]
    names = [["eth0", "eth1"]] * N
    rates = [[10.0 + host, 20.0 + host] for host in range(N)]
    return {"names": names, "used": used, "relays": relays, "switches": switches, "out_gbps": rates, "in_gbps": rates}


def test_interfaces_are_of_the_hosts_alone() -> None:
    entry = part(interfaces=rails([[None] * N] * N)).interfaces
    assert entry is not None
    assert entry.out_gbps == [[10.0 + host, 20.0 + host] for host in TAKEN]
    assert [[tuple(port) for port in switch] for switch in entry.switches] == [
        [(k, rail) for k in range(4)] for rail in (0, 1)
    ]
    assert (len(entry.used), len(entry.used[0]), len(entry.names)) == (4, 4, 4)


def test_hosts_that_relay_are_measured_by_themselves() -> None:
    relays: list[list[int | None]] = [[None] * N for _ in range(N)]
    relays[0][3] = 7
    with pytest.raises(NoAnswer, match="n7 passes on what n0 sends"):
        part(interfaces=rails(relays))
    entry = part(order=[*reversed(range(N))], interfaces=rails(relays)).interfaces  # all of them, in another order
    assert entry is not None
    assert entry.relays[7][4] == 0


def test_a_host_that_was_not_measured_is_named() -> None:
    with pytest.raises(UsageError, match="z9"):
        subnetwork(network_from_json(document(), "n"), Hosts((Host("z9", "z9"), Host("n1", "n1"))))


def test_a_matrix_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(InputError, match="loss_back"):
        part(loss_back=[[0.0, 0.1], [0.1, 0.0]])


@pytest.mark.parametrize("order", [[1, 2, 5, 6], [6, 5, 2, 1], [*range(N)], [*reversed(range(N))]])
def test_hubs_are_those_of_the_job(order: list[int]) -> None:
    """Whatever the order of the hosts: n6 carries 100 Gbit/s, others 10."""
    whole = network_from_json(document(bandwidth_gbps=[[0 if i == j else 10 for j in range(N)] for i in range(N)]), "n")
    members = [Host(NAMES[k], NAMES[k], slots=0, role="hub", gbps=100) if k == 6 else Host(NAMES[k], NAMES[k])
               for k in order]  # fmt: skip
    fabric = fabric_of(subnetwork(whole, Hosts(tuple(members))))
    assert dict(zip(order, fabric.host_out_gbps.tolist(), strict=True)) == {k: 100 if k == 6 else 10 for k in order}
    assert fabric.has_host_rates
    assert fabric.group_out_gbps[fabric.group_of[order.index(6)]] >= 100


def test_drawn_links_are_those_of_the_whole() -> None:
    """Four racks of four; the job has one host of each, and its uplink is drawn for four."""
    rows = [[0.0 if i == j else 20.0 if i // 4 == j // 4 else 90.0 for j in range(16)] for i in range(16)]
    hosts = Hosts(tuple(Host(f"n{k}", f"n{k}") for k in range(16)))
    whole = Network(hosts, np.array(rows))
    few = fabric_of(subnetwork(whole, Hosts(hosts.members[::4])))
    drawn, of_whole = (fabric.with_drawn_links(np.random.default_rng(3)) for fabric in (few, fabric_of(whole)))
    assert drawn.group_out_gbps.tolist() == of_whole.group_out_gbps[of_whole.group_of[::4]].tolist()

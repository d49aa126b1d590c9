"""What interfaces form, and which of them are at fault, by a network's measurements."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import plink
from plink.features.diagnose.run import diagnose
from plink.features.launch.order import job_order
from plink.features.launch.request import JobRequest
from plink.features.measure.request import ProbeRequest
from plink.features.measure.shared_links import measure_shared_links
from plink.features.order.interfaces import exchanges_on_switches, interface_topology, rail_names
from plink.model.diagnosis import Severity
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from probes.interfaces import interfaces_from_routes
from probes.measurements import NOT_TRIED, Measurements, measurements_from
from probes.shared_links import SharedLinkSettings
from runners.lab.blueprint import Blueprint, LabSettings, draw
from solvers.ordering.interfaces import BCube, Rails
from tests.conftest import typed
from tests.networks import details_from, keys_of
from tests.probes.fake_fleet import FakeFleet, session_of
from tests.probes.test_interfaces import bcube_routes


def blueprint(base: int, levels: int) -> Blueprint:
    return draw(LabSettings("t", topology="bcube", base=base, levels=levels, seed=5))


def network_of(drawn: Blueprint, silent: set[tuple[int, int]] | None = None, reason: str = "no answer") -> Network:
    """A probed BCube, with a round trip between all hosts but those that are silent, either way."""
    n = len(drawn.places)
    main = {host: place.address for host, place in enumerate(drawn.places)}
    owners = {address: host for host, address in main.items()}
    own = {host: {address: "host0"} for host, address in main.items()}
    entry = interfaces_from_routes(n, main, owners, bcube_routes(drawn), own)
    apart = np.array([[sum(a != b for a, b in zip(p.digits, q.digits, strict=True)) for q in drawn.places]
                      for p in drawn.places])  # fmt: skip
    latency = 20.0 * apart
    missing = {pair for i, j in silent or set() for pair in ((i, j), (j, i))}
    for pair in missing:
        latency[pair] = np.nan
    names = [place.name for place in drawn.places]
    errors = [{"from": names[i], "to": names[j], "why": reason} for i, j in sorted(missing)]
    hosts = Hosts(tuple(Host(name, main[k]) for k, name in enumerate(names)))
    details: dict[str, Any] = {"interfaces": entry, "errors": errors, "plan": "all"}
    return Network(hosts, latency, None, details_from(details))


def differing(drawn: Blueprint, i: int, j: int) -> list[int]:
    pairs = zip(drawn.places[i].digits, drawn.places[j].digits, strict=True)
    return [level for level, (a, b) in enumerate(pairs) if a != b]


def named(network: Network, kind: str) -> list[Any]:
    return [finding for finding in diagnose(network) if finding.kind == kind]


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (2, 3), (3, 2), (4, 2), (2, 5)])
def test_order_by_digits_exchanges_on_switches(base: int, levels: int) -> None:
    network = network_of(blueprint(base, levels))
    topology = interface_topology(network)
    assert topology is not None
    assert isinstance(topology.shape, BCube)
    assert f"BCube({base},{levels})" in topology.text
    for algo in ("bml", "bcube", "multi-ring"):
        order = plink.reorder(network, plink.OrderRequest(algo=algo))
        hosts = [network.hosts.names.index(name) for name in order.hosts]
        assert exchanges_on_switches(topology.shape, hosts)
        assert (order.options or {"base": 2}) == {"base": base}
    if base**levels > 4:  # a square has no worse order than two of its three
        assert not exchanges_on_switches(topology.shape, [*hosts[1:], hosts[0]])


def test_constraints_and_other_bases_are_searched() -> None:
    network = network_of(blueprint(2, 4))
    names = network.hosts.names
    pinned = plink.reorder(network, plink.OrderRequest(algo="bcube", pins={names[3]: 0}, max_moves=500))
    assert pinned.hosts[0] == names[3]
    other = plink.reorder(network, plink.OrderRequest(algo="bcube", options={"base": 4}, max_moves=500, force=True))
    assert other.options == {"base": 4}


def test_healthy_bcube_has_no_findings() -> None:
    network = network_of(blueprint(3, 2))
    assert not named(network, "interface")
    assert not named(network, "relay")


def test_pairs_that_were_not_tried_prove_nothing() -> None:
    pairs = set(itertools.combinations(range(9), 2)) - {(0, 1), (2, 3)}
    network = network_of(blueprint(3, 2), pairs, reason=NOT_TRIED)
    assert not named(network, "interface")
    assert not named(network, "relay")


def with_dead_interface(drawn: Blueprint, level: int = 0) -> Network:
    """Whoever sends through this interface of the second host, either way, gets no answer."""
    silent = {(1, j) for j in range(len(drawn.places)) if j != 1 and differing(drawn, 1, j)[0] == level}
    return network_of(drawn, silent)


@pytest.mark.parametrize(("base", "levels"), [(3, 2), (2, 3), (4, 2)])
@pytest.mark.parametrize("level", [0, 1])
def test_dead_interface_is_named_with_its_host(base: int, levels: int, level: int) -> None:
    """And with its level; of a cable both ends."""
    drawn = blueprint(base, levels)
    (finding,) = named(with_dead_interface(drawn, level), "interface")
    assert f"{drawn.places[1].name}/eth{level}" in finding.evidence
    assert f"level {level}" in finding.evidence
    assert len(finding.hosts) == (2 if base == 2 else 1)


def test_probe_and_reorder_name_a_dead_interface_as_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = with_dead_interface(blueprint(3, 2))
    result = measurements_from(network)

    def measure(measurements: Measurements, request: ProbeRequest, *_: object) -> bool:
        measurements.percentiles, measurements.errors = result.percentiles, result.errors
        measurements.details = result.details
        return True

    monkeypatch.setattr("plink.features.measure.run.measure", measure)
    (tmp_path / "hosts").write_text("".join(f"{host.name} address={host.address}\n" for host in network.hosts))
    probed = typed("probe", "hosts", "-o", "n.json", cwd=tmp_path)
    assert probed.returncode == 3
    diagnosed = typed("doctor", "n.json", cwd=tmp_path)
    (line,) = [line for line in diagnosed.stdout.splitlines() if "/eth" in line]
    ordered = [
        typed("reorder", "n.json", "--algo", algo, "--max-moves", "50", cwd=tmp_path) for algo in ("bml", "ring")
    ]
    for done in (probed, *ordered):
        assert line.removeprefix("error: ") in done.stderr
    assert [done.returncode for done in ordered] == [0, 0]
    monkeypatch.chdir(tmp_path)
    job_order(JobRequest(Path("hosts")))  # as `plink launch` does, which probes and then searches
    assert capsys.readouterr().err.count("/eth") == probed.stderr.count("/eth")
    healthy = network_of(blueprint(3, 2))
    healthy.write(tmp_path / "healthy.json")
    assert "/eth" not in typed("reorder", "healthy.json", "--algo", "bml", cwd=tmp_path).stderr


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (2, 3), (4, 2)])
@pytest.mark.parametrize("is_dead", [False, True])
def test_hosts_of_a_bcube_form_no_groups(base: int, levels: int, is_dead: bool, tmp_path: Path) -> None:
    """Their tiers are by how many digits differ; a probe measures no links that groups share."""
    drawn = blueprint(base, levels)
    network = with_dead_interface(drawn) if is_dead else network_of(drawn)
    network.write(tmp_path / "n.json")
    shown = json.loads(typed("report", "n.json", "--json", cwd=tmp_path).stdout)
    assert shown["groups"] == [network.hosts.names]
    assert [tier["median_us"] for tier in shown["tiers"]] == [20.0 * apart for apart in range(1, levels + 1)]
    assert (shown["suspects"] > 0) == is_dead
    words = typed("report", "n.json", "--terminal", cwd=tmp_path).stdout
    assert "group" not in words
    page = typed("report", "n.json", "-o", "r.html", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    header = (tmp_path / "r.html").read_text().partition("<header>")[2].partition("</header>")[0]
    assert "group" not in header
    assert "rack" not in words
    session = session_of(FakeFleet(lambda host, body: None), len(network.hosts))
    session.measurements.add(interfaces=network.interfaces)
    for matrix in (session.measurements.latency, *session.measurements.halves):
        matrix[:] = network.latency_us
    measure_shared_links(session, SharedLinkSettings())
    assert session.measurements.details.shared_links is UNSET


def test_one_host_that_relays_between_racks_leaves_them_groups(tmp_path: Path) -> None:
    network = on_rails(hosts=9)
    rack = np.arange(9) >= 5
    relays = [[4 if rack[i] != rack[j] and 4 not in (i, j) else None for j in range(9)] for i in range(9)]
    entry = keys_of(network)["interfaces"] | {"relays": relays}
    latency = np.where(rack[:, None] == rack, 20.0, 100.0) * ~np.eye(9, dtype=bool)
    replace(network, latency_us=latency, details=details_from({"interfaces": entry})).write(tmp_path / "n.json")
    assert len(json.loads(typed("report", "n.json", "--json", cwd=tmp_path).stdout)["groups"]) == 2


def test_dead_host_is_no_dead_interface_of_others() -> None:
    drawn = blueprint(2, 3)
    assert not named(network_of(drawn, {(0, j) for j in range(1, 8)}), "interface")


def test_host_that_passes_nothing_on_is_named() -> None:
    drawn = blueprint(3, 2)
    relays = network_of(drawn).interfaces
    assert relays is not None
    silent = {(i, j) for i, j in itertools.permutations(range(9), 2) if relays.relays[i][j] == 4}
    (finding,) = named(network_of(drawn, silent), "relay")
    assert finding.hosts == [drawn.places[4].name]


def test_missing_cable_and_rails_are_described() -> None:
    network = network_of(blueprint(3, 2))
    entry = keys_of(network)["interfaces"]
    host, _ = entry["switches"][0][0]
    short = {**entry, "switches": [entry["switches"][0][1:], *entry["switches"][1:]]}
    topology = interface_topology(replace(network, details=details_from(keys_of(network) | {"interfaces": short})))
    assert topology is not None
    assert topology.shape is None
    assert topology.faulty == (network.hosts.names[host],)
    rails = {**entry, "switches": [[[k, rail] for k in range(9)] for rail in range(2)]}
    topology = interface_topology(replace(network, details=details_from(keys_of(network) | {"interfaces": rails})))
    assert topology is not None
    assert isinstance(topology.shape, Rails)
    single = {**entry, "switches": [[[k, 0] for k in range(9)]]}
    topology = interface_topology(replace(network, details=details_from(keys_of(network) | {"interfaces": single})))
    assert topology is not None
    assert topology.shape is None


def test_one_interface_a_host_is_no_topology() -> None:
    network = network_of(blueprint(2, 2))
    assert interface_topology(replace(network, details=details_from({}))) is None


def rated(network: Network, gbps: float = 0.1) -> Network:
    """The same hosts, with a rate of each interface."""
    entry = keys_of(network)["interfaces"]
    rates = [[gbps] * len(names) for names in entry["names"]]
    names = network.hosts.names
    flows = [
        {"from": a, "to": b, "gbps": gbps, "both_ways": False}
        for a, b in zip(names, [*names[1:], names[0]], strict=True)
    ]
    details = keys_of(network) | {
        "interfaces": entry | {"out_gbps": rates, "in_gbps": rates}, "host_flows": flows, "host_flow_errors": [],
    }  # fmt: skip
    return replace(network, latency_us=network.latency_us / 1e3, details=details_from(details))


def on_rails(hosts: int = 6, rails: int = 2) -> Network:
    """Hosts that are all on each of several switches, and reach each other by the first."""
    names = tuple(Host(f"n{k}", f"10.0.0.{k}") for k in range(hosts))
    apart = ~np.eye(hosts, dtype=bool)
    entry: dict[str, Any] = {
        "names": [[f"eth{rail}" for rail in range(rails)]] * hosts,
        "used": np.where(apart, 0.0, np.nan).tolist(), "relays": [[None] * hosts] * hosts,
        "switches": [[[host, rail] for host in range(hosts)] for rail in range(rails)],
    }  # fmt: skip
    entry["used"] = [[None if value != value else int(value) for value in row] for row in entry["used"]]
    return rated(Network(Hosts(names), 20.0 * apart, None, details_from({"interfaces": entry})))


@pytest.mark.parametrize(("base", "levels"), [(3, 2), (2, 3)])
def test_advice_for_a_bcube_is_bml_by_digits(base: int, levels: int) -> None:
    """It sends by all interfaces at once, and in fewer rounds than as many rings."""
    network = rated(network_of(blueprint(base, levels)))
    advice = plink.advise(network)
    best = advice.best(25e6)
    assert (best.algo, best.family) == ("bml", "digits")
    n = base**levels
    bound_us = 2 * (n - 1) / (levels * n) * 25e6 / (0.1 * 125)
    assert best.at(25e6) == pytest.approx(bound_us, rel=0.02)
    rings = advice.best(25e6, "multi-ring")
    assert rings.at(1e3) > best.at(1e3)
    assert rings.at(25e6) >= best.at(25e6)
    order = plink.reorder(network, plink.OrderRequest(algo="bml"))
    cost = plink.cost(network, order, plink.CostRequest("bml", 25e6))
    assert cost.cost_us == pytest.approx(bound_us, rel=0.02)


def test_what_plink_runs_uses_all_rails_and_a_library_one() -> None:
    network = on_rails()
    single, two = (plink.cost(network, algo=algo).cost_us for algo in ("gloo", "multi-ring"))
    assert plink.cost(network, algo="ring").cost_us == pytest.approx(two, rel=0.01)
    assert single / two == pytest.approx(2.0, rel=0.01)
    assert rail_names(network) == ("eth0", "eth1")
    order = plink.reorder(network, plink.OrderRequest(algo="multi-ring", max_moves=200, force=True))
    assert order.options == {"base": 6}  # a ring of all, with a part on each rail
    assert plink.plan(network, plink.PlanRequest("multi-ring", 1e6)).schedule is not None
    entry = keys_of(network)["interfaces"]
    other = entry | {"names": [*entry["names"][:-1], ["ens1", "ens2"]]}
    assert rail_names(replace(network, details=details_from({"interfaces": other}))) == ()


def test_slow_interface_is_named_with_its_host() -> None:
    """Of a cable both ends, in one finding."""
    for base, hosts in ((3, 1), (2, 2)):
        network = rated(network_of(blueprint(base, 2)))
        assert not named(network, "slow interface")
        entry = keys_of(network)["interfaces"]
        ports = [tuple(port) for port in entry["switches"][0][:hosts]]
        rates = [[0.01 if (host, k) in ports else 0.1 for k in range(2)] for host in range(len(entry["names"]))]
        slow = entry | {"out_gbps": rates, "in_gbps": rates}
        network = replace(network, details=details_from(keys_of(network) | {"interfaces": slow}))
        (finding,) = named(network, "slow interface")
        assert finding.hosts == [network.hosts.names[host] for host, _ in ports]
        for host, interface in ports:
            assert f"{network.hosts.names[host]}/eth{interface}" in finding.evidence


def with_values(network: Network, **values: Any) -> Network:
    """The same network with other values of one interface, the second of host 2."""
    entry = network.interfaces
    assert entry is not None
    for key, value in values.items():
        rows = [[*row] for row in getattr(entry, key) or [[None] * len(row) for row in entry.names]]
        rows[2][1] = value
        entry = structs.replace(entry, **{key: rows})
    return replace(network, details=structs.replace(network.details, interfaces=entry))


@pytest.mark.parametrize("ways", [("out_gbps",), ("in_gbps",), ("out_gbps", "in_gbps")])
def test_interface_without_flows_is_named(ways: tuple[str, ...]) -> None:
    """Though all round trips are measured, over another rail."""
    network = with_values(on_rails(), **dict.fromkeys(ways), errors="no route to host")
    (finding,) = named(network, "interface")
    assert (finding.hosts, finding.severity) == (["n2"], Severity.ERROR)
    assert "eth1" in finding.evidence
    assert "no route to host" in finding.evidence


@pytest.mark.parametrize("reason", ["not tried: the time was over", None])
def test_interfaces_that_were_not_tried_are_not_at_fault(reason: str | None) -> None:
    assert not named(with_values(on_rails(), out_gbps=None, in_gbps=None, errors=reason), "interface")


@pytest.mark.parametrize("reason", ["no answer in time from the agents of both", "timed out"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_partners_of_hosts_that_no_flow_reaches_are_not_at_fault(reason: str, is_lost: bool) -> None:
    """Whether the agent of the first of four on cables was lost, or TCP to it is blocked."""
    network = rated(network_of(blueprint(2, 2)))
    entry, name = keys_of(network)["interfaces"], network.hosts.names[0]
    dead = [tuple(port) for switch in entry["switches"] if 0 in {host for host, _ in switch} for port in switch]
    rates = [[None if (host, k) in dead else 0.1 for k in range(2)] for host in range(4)]
    keys = {
        "interfaces": entry | {"out_gbps": rates, "in_gbps": rates,
                               "why": [[reason if rate is None else None for rate in row] for row in rates]},
        "host_flows": [row for row in keys_of(network)["host_flows"] if is_lost or name not in row.values()],
        "lost_hosts": {name: "its agent is gone"} if is_lost else {},
    }  # fmt: skip
    assert not named(replace(network, details=details_from(keys_of(network) | keys)), "interface")


def test_interfaces_of_a_lost_agent_are_not_at_fault() -> None:
    assert not named(with_values(on_rails(), out_gbps=None, in_gbps=None, errors="n2: its agent is gone"), "interface")


def test_hosts_with_fewer_interfaces_than_most_are_named() -> None:
    """Where hosts form neither a BCube nor rails."""
    network = on_rails()
    entry = keys_of(network)["interfaces"]

    def without(*hosts: int) -> Network:
        rows = {
            key: [row[:1] if host in hosts else row for host, row in enumerate(entry[key])]
            for key in ("names", "out_gbps", "in_gbps")
        }
        switches = [[port for port in switch if port[0] not in hosts or not port[1]] for switch in entry["switches"]]
        changed = entry | rows | {"switches": switches}
        return replace(network, details=details_from(keys_of(network) | {"interfaces": changed}))

    (finding,) = named(without(1, 4), "interface")
    assert (finding.hosts, finding.severity) == (["n1", "n4"], Severity.INFO)
    assert not named(without(1, 2, 4), "interface")  # of half of them nobody knows what is usual


def test_interfaces_that_carry_nothing_do_not_count_among_those_of_most_hosts() -> None:
    """A default route's, which the host that has a container's bridge uses for nobody."""
    entry = keys_of(on_rails())["interfaces"]
    single = {"names": [["eth0", "eth1"]] * 5 + [["eth0"]], "switches": entry["switches"][:1]}
    changed = {key: value for key, value in entry.items() if not key.endswith("_gbps")} | single
    assert not named(replace(on_rails(), details=details_from({"interfaces": changed})), "interface")


def test_ways_there_and_back_over_different_switches_are_noted() -> None:
    """In one finding of all such pairs; it is no fault."""
    network = on_rails(hosts=4)
    entry = keys_of(network)["interfaces"]
    used = [list(row) for row in entry["used"]]
    used[1][0] = used[2][0] = 1
    network = replace(network, details=details_from(keys_of(network) | {"interfaces": entry | {"used": used}}))
    (finding,) = named(network, "interface")
    assert (str(finding.severity), finding.pairs) == ("info", 2)
    assert set(finding.hosts) == {"n0", "n1", "n2"}
    assert "n0 sends by eth0 and n1 sends by eth1" in finding.evidence


@pytest.mark.parametrize("seed", range(5))
def test_more_hops_are_no_slow_link(seed: int) -> None:
    """Hosts of a BCube are compared by hops, and not by groups that their round trips seem to form."""
    network = network_of(blueprint(3, 3))
    noise = np.random.default_rng(seed).uniform(0.9, 1.1, network.latency_us.shape)
    healthy = replace(network, latency_us=network.latency_us * noise)
    assert [finding.kind for finding in diagnose(healthy)] == []
    slow = healthy.latency_us.copy()
    slow[2, 7] = slow[7, 2] = 3 * slow[2, 7]
    (finding,) = diagnose(replace(healthy, latency_us=slow))
    assert (finding.kind, set(finding.hosts)) == ("slow link", {network.hosts.names[2], network.hosts.names[7]})

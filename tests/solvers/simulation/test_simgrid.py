"""Platforms for SimGrid, and plink's simulator compared with it where it is installed (Debian: python3-simgrid)."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from benchmarks.referee import played_us
from benchmarks.simgrid import has_simgrid, simgrid_us
from plink.errors import NoAnswer
from solvers.costs.fabric import TierLinks
from solvers.schedules.catalogue import Options, schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.simgrid import deployment_xml, platform_xml
from tests.cli.files import refusal, write
from tests.conftest import typed
from tests.solvers.simulation.collectives import simulate_collective
from tests.solvers.simulation.test_collective import network, racks

needs_simgrid = pytest.mark.skipif(not has_simgrid(), reason="needs SimGrid's Python bindings (python3-simgrid)")


@needs_simgrid
@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "double-binary-tree", "2lha", "bcube"])
def test_simgrid_takes_as_long(algo: str, tmp_path: Path) -> None:
    """Eight hosts in two racks whose uplinks have half of what their hosts send, in a random order; each pair has a
    latency of its own."""
    pairs = np.random.default_rng(4).uniform(5.0, 400.0, (8, 8))
    values = replace(network(8, racks(8, 2, 4.0)), rtt_us=2 * np.where(np.eye(8, dtype=bool), 0.0, pairs + pairs.T))
    options = Options(groups=[[0, 1, 2, 3], [4, 5, 6, 7]]) if algo == "2lha" else Options()
    order, size = np.random.default_rng(1).permutation(8), 1e8
    schedule = schedule_for(algo, 8, options)
    collective = PreparedCollective.of(schedule, lockstep=False)
    simulated = collective.run(values, order, size).makespan_us
    (by_simgrid,) = simgrid_us(tmp_path, values, collective, [order], size)
    assert simulated == pytest.approx(by_simgrid, rel=1e-3)


@needs_simgrid
@pytest.mark.parametrize("size", [1e8, 4e5])
@pytest.mark.parametrize("algo", ["halving-doubling", "recursive-doubling", "bcube", "2lha", "tree"])
def test_ranks_that_wait_as_mpi_does_take_as_long(algo: str, size: float, tmp_path: Path) -> None:
    """Played by actors in SimGrid, with messages above and below the size up to which nobody waits for a receiver."""
    values = network(8, racks(8, 2, 4.0), latency_us=200.0)
    options = Options(groups=[[0, 1, 2, 3], [4, 5, 6, 7]]) if algo == "2lha" else Options()
    schedule, order = schedule_for(algo, 8, options), np.random.default_rng(1).permutation(8)
    (played,) = played_us(tmp_path, values, schedule, [order], size)
    assert simulate_collective(schedule, values, order, size).makespan_us == pytest.approx(played, rel=2e-3)


@needs_simgrid
def test_simgrid_ranks_orders_alike(tmp_path: Path) -> None:
    """Rings of 16 hosts in racks under pods, of the order by racks and random ones."""
    cloud = three_tier(16, 1)
    tiers = tuple(
        TierLinks(np.unique(group, return_inverse=True)[1], *[np.full(len(np.unique(group)), gbps)] * 2)
        for group, gbps in ((cloud.rack_of, 3.0), (cloud.pod_of, 4.0))
    )
    values = network(16, *tiers, latency_us=20.0)
    rng, schedule = np.random.default_rng(0), schedule_for("ring", 16)
    orders = [np.lexsort((cloud.rack_of, cloud.pod_of)), *(rng.permutation(16) for _ in range(5))]
    collective = PreparedCollective.of(schedule, lockstep=False)
    ours = [collective.run(values, order, 1e8).makespan_us for order in orders]
    theirs = simgrid_us(tmp_path, values, collective, orders, 1e8)
    assert np.array(ours) == pytest.approx(np.array(theirs), rel=1e-3)


def test_a_route_uses_the_links_of_the_simulator() -> None:
    """Out of a host and its rack, into the other rack and host; then the pair's own latency."""
    platform = ElementTree.fromstring(platform_xml(network(4, racks(4, 2, 1.0), latency_us=12.5)))
    (route,) = platform.findall("./zone/route[@src='h0'][@dst='h3']")
    *shared, own = [link.attrib["id"] for link in route]
    assert len(shared) == 4
    links = {link.attrib["id"]: link.attrib for link in platform.findall("./zone/link")}
    assert [float(links[name]["bandwidth"].removesuffix("Bps")) for name in shared] == [2.5e8, 2.5e8, 1.25e8, 1.25e8]
    assert (links[own]["latency"], links[own]["sharing_policy"]) == ("12.500000us", "FATPIPE")
    (inside,) = platform.findall("./zone/route[@src='h0'][@dst='h1']")
    assert len(list(inside)) == 3
    assert len(platform.findall("./zone/route")) == 16


def test_a_deployment_has_the_ranks_in_order() -> None:
    actors = ElementTree.fromstring(deployment_xml(["b", "a"])).findall("actor")
    assert [(actor.attrib["host"], actor[0].attrib["value"]) for actor in actors] == [("b", "0"), ("a", "1")]


def test_a_pair_without_a_round_trip_is_named() -> None:
    values = network(2)
    values.rtt_us[0, 1] = np.nan
    with pytest.raises(NoAnswer, match="h0 - h1"):
        platform_xml(values)


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    rows = [[0.0, 20.0, 50.0], [20.0, 0.0, 50.0], [50.0, 50.0, 0.0]]
    write(
        tmp_path / "n.json",
        {"schema": "plink.network/1", "hosts": [{"name": name} for name in "abc"], "latency_us": rows},
    )
    write(tmp_path / "o.json", {"schema": "plink.order/1", "algo": "ring", "hosts": list("cab")})
    words = ("topology", "export", "n.json", "--order", "o.json", "--deployment", "d.xml")
    assert "--format simgrid" in refusal(typed(*words, cwd=tmp_path))
    done = typed(*words, "--format", "simgrid", "-o", "platform.xml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    actors = ElementTree.parse(tmp_path / "d.xml").getroot().findall("actor")
    assert [actor.attrib["host"] for actor in actors] == list("cab")
    assert len(ElementTree.parse(tmp_path / "platform.xml").getroot().findall("./zone/host")) == 3
    assert "--cfg=network/model:CM02" in done.stderr


def test_a_few_unmeasured_pairs_are_as_far_as_the_farthest(tmp_path: Path) -> None:
    """One of 120 pairs; two of three are not few."""
    names = [f"h{k}" for k in range(16)]
    rows: list[list[float | None]] = [[0.0 if a == b else 20.0 + 2 * (a + b) for b in range(16)] for a in range(16)]
    rows[3][5] = rows[5][3] = None
    network = {"schema": "plink.network/1", "hosts": [{"name": name} for name in names], "latency_us": rows}
    write(tmp_path / "n.json", network)
    done = typed("topology", "export", "n.json", "--format", "simgrid", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 pair was not measured" in done.stderr
    latency = {link.attrib["id"]: link.attrib["latency"] for link in ElementTree.fromstring(done.stdout).iter("link")}
    assert latency["h3 to h5"] == latency["h5 to h3"] == latency["h14 to h15"] == "39.000000us"
    few = {"hosts": [{"name": name} for name in "abc"], "latency_us": [[0, 1, None], [1, 0, None], [None, None, 0]]}
    write(tmp_path / "n.json", network | few)
    assert "a - c" in refusal(typed("topology", "export", "n.json", "--format", "simgrid", cwd=tmp_path), 4)


def test_the_platform_does_not_overwrite_the_network(tmp_path: Path) -> None:
    write(
        tmp_path / "n.json",
        {"schema": "plink.network/1", "hosts": [{"name": "a"}, {"name": "b"}], "latency_us": [[0, 1], [1, 0]]},
    )
    before = (tmp_path / "n.json").read_text()
    assert "n.json" in refusal(
        typed("topology", "export", "n.json", "--format", "simgrid", "-o", "n.json", cwd=tmp_path)
    )
    assert (tmp_path / "n.json").read_text() == before

"""Hubs by their price: taken where their links are wide, and not between equal hosts."""

import json
from pathlib import Path

import pytest

from plink.errors import UsageError
from plink.features.advise.run import advise
from plink.features.launch.backend import Backend, backend_for
from plink.features.order.algorithms import fabric_from
from plink.features.order.hubs import hub_processes, hubs_limited_by_cores
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, read_network
from tests.conftest import typed

WORKERS = [f"n{k}" for k in range(8)]


def network(hub_gbps: float, folder: Path, hubs: int = 1) -> Network:
    """Eight workers of 100 Mbit/s and hubs, all as far from each other, in the workspace of a folder."""
    names = [*WORKERS, *(f"fat-{k}" for k in range(hubs))]
    hosts = [{"name": name} for name in WORKERS]
    hosts += [{"name": name, "role": "hub", "gbps": hub_gbps} for name in names[8:]]  # type: ignore[dict-item]
    flows = [
        {"from": a, "to": b, "gbps": 0.1, "both_ways": False}
        for a, b in zip(names, [*names[1:], names[0]], strict=True)
    ]
    latency = [[0 if a == b else 100 for b in names] for a in names]
    document = {"schema": "plink.network/1", "hosts": hosts, "latency_us": latency, "host_flows": flows}
    (folder / ".plink").mkdir(exist_ok=True)
    (folder / ".plink/network.json").write_text(json.dumps(document))
    return read_network(folder / ".plink/network.json")


def backend(algo: str, measured: Network, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Backend:
    monkeypatch.chdir(folder)
    return backend_for(algo, measured.hosts, None)


@pytest.mark.parametrize(("gbps", "hubs", "taken"), [(0.9, 1, True), (0.1, 1, False), (0.5, 2, True), (0.1, 2, False)])
def test_hubs_are_taken_where_they_are_cheapest(
    gbps: float, hubs: int, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = network(gbps, tmp_path, hubs)
    assert (advise(measured).best(25e6).algo == "phub") == taken
    chosen = backend("auto", measured, monkeypatch, tmp_path)
    assert chosen.hubs == (tuple(f"fat-{k}" for k in range(hubs)) if taken else ())


def test_a_narrow_hub_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backend("phub", network(0.1, tmp_path), monkeypatch, tmp_path).hubs == ("fat-0",)
    assert "warning: phub is by the measured rates 0.21 times as fast" in capsys.readouterr().err
    backend("phub", network(0.9, tmp_path), monkeypatch, tmp_path)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "warned"), [(2, True), (16, False), (None, False)])
def test_too_few_cores_of_a_hub_are_warned_of(cores: int | None, warned: bool, tmp_path: Path) -> None:
    network(20.0, tmp_path)
    file = tmp_path / ".plink/network.json"
    document = json.loads(file.read_text())
    more = {} if cores is None else {"cores": cores}
    document["machines"] = [{"hostname": host["name"], **more} for host in document["hosts"]]
    file.write_text(json.dumps(document))
    measured = read_network(file)
    lines = hubs_limited_by_cores(measured, fabric_from(measured))
    assert [line.partition(":")[0] for line in lines] == ["fat-0"] * warned


def test_a_job_without_hubs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="needs a host with role=hub"):
        backend_for("phub", Hosts((Host("a", "a"), Host("b", "b"))), None)


@pytest.mark.parametrize("has_pairs", [False, True])
def test_racks_with_a_hub_each(has_pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two racks behind uplinks, in which pairs of hosts may share links, too; one without a hub is named."""
    measured = network(0.9, tmp_path, 2)
    document = json.loads((tmp_path / ".plink/network.json").read_text())
    rack = [k % 2 for k in range(10)]
    document["latency_us"] = [
        [
            0 if a == b else 400 if rack[a] != rack[b] else 20 if has_pairs and a // 4 == b // 4 else 50
            for b in range(10)
        ]
        for a in range(10)
    ]
    names, rates = measured.hosts.names, {"out_gbps": 1.0, "in_gbps": 1.0}
    pairs = [names[k : min(k + 3, 10) : 2] for k in (0, 1, 4, 5, 8, 9)]
    tiers = [*([pairs] if has_pairs else []), [names[::2], names[1::2]]]
    document["shared_links"] = [{"groups": [{"members": list(each), **rates} for each in tier]} for tier in tiers]
    (tmp_path / ".plink/network.json").write_text(json.dumps(document))
    measured = read_network(tmp_path / ".plink/network.json")
    assert backend("phub-2l", measured, monkeypatch, tmp_path).hubs == ("fat-0", "fat-1")
    document["hosts"][9] = {"name": "fat-1"}
    (tmp_path / ".plink/network.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="phub-2l needs a hub in each group of hosts; that of n1 has none"):
        backend("phub-2l", read_network(tmp_path / ".plink/network.json"), monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("rates", "cores", "hosts", "weights"),
    [
        ([0.9], [2], [0], [0.9]),
        ([25.0], [8], [0, 0, 0, 0], [25 / 4] * 4),
        ([25.0, 5.0], [3, None], [0, 0, 1], [7.0, 7.0, 5.0]),
        ([None, None], [8, 8], [0, 1], [1.0, 1.0]),
        ([40.0, None], [1, 16], [0, 1], [7.0, 7.0]),
    ],
)
def test_processes_of_hubs(
    rates: list[float | None], cores: list[int | None], hosts: list[int], weights: list[float]
) -> None:
    """One for each 7 Gbit/s, which is what it can take, and a core is left free."""
    assert hub_processes(rates, cores) == (hosts, pytest.approx(weights))


def test_a_plan_names_the_command_that_runs_hubs(tmp_path: Path) -> None:
    network(0.9, tmp_path)
    done = typed("plan", "--algo", "ring", "--size", "25MB", cwd=tmp_path)
    assert "this plan 3.5 s: `plink launch --backend phub` (the least possible time is that without" in done.stderr

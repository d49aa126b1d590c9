"""Hubs by their price: taken where their links are wide, and not between equal hosts."""

import base64
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plink.errors import UsageError
from plink.features.advise.balance import BalanceRequest, balance
from plink.features.advise.request import AdviseRequest
from plink.features.advise.run import advise
from plink.features.cost.request import CostRequest
from plink.features.cost.run import cost
from plink.features.launch.backend import Backend, backend_for
from plink.features.order.algorithms import fabric_from
from plink.features.order.hubs import hub_processes, hubs_limited_by_cores, with_hubs
from plink.model.hosts import Host, Hosts, render_hosts
from plink.model.network import Network, network_from_json, read_network
from plink.runtime.allreduce.aggregation import TEXT, from_bytes
from runners.job.runner import Job, RunContext, RunObserver
from runners.launchers.external_runner import ExternalLauncherRunner
from runners.launchers.slurm import Slurm
from solvers.schedules.catalogue import Options
from tests.conftest import typed
from tests.stand_ins import program

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


def test_auto_takes_hubs_only_where_they_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of Slurm's goes without: its hosts file, order and variables have none."""
    measured = network(0.9, tmp_path)
    assert backend("auto", measured, monkeypatch, tmp_path).hubs == ("fat-0",)
    (tmp_path / "hosts.txt").write_text(render_hosts(measured.hosts))
    for name in ("sbatch", "srun", "salloc", "scancel"):
        program(tmp_path / "bin", name, "echo 7")
    words = ("--order", "given", "--hosts", "hosts.txt", "--dry-run", "--json", "train.py")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = typed("submit", "--backend", "auto", *words, cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    files = {Path(name).name: text for name, text in json.loads(done.stdout)["files"].items()}
    assert files["order.txt"].split() == WORKERS
    aggregation = from_bytes(base64.b64decode(json.loads(files["env.json"])[TEXT]))
    assert not aggregation.hubs
    assert not {entry.algo for entry in aggregation.classes} & {"phub", "phub-2l"}


def test_runners_that_start_no_hubs_refuse_them(tmp_path: Path) -> None:
    job = Job("train.py", (), ("/work",), hubs=("fat-0",))
    context = RunContext(RunObserver(), time.monotonic, tmp_path)
    with pytest.raises(UsageError, match="fat-0"):
        ExternalLauncherRunner(Slurm()).run(job, Hosts((Host("a", "a"), Host("fat-0", "b", 0, role="hub"))), context)


def test_run_with_hubs_is_run_again_with_them(tmp_path: Path) -> None:
    """Or without, by another backend."""
    words = ("--runner", "local", "--slots", "2", "--backend", "phub", "true")
    done = typed("launch", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = typed("runs", "show", "last", cwd=tmp_path).stdout
    assert [line.split(":")[0].strip() for line in shown.splitlines()[3:6]] == ["rank 0", "rank 1", "hub-0"]
    assert "order given; backend phub" in shown
    for more, hosts in (((), ["hub", "localhost", "localhost"]), (("--backend", "ring"), ["localhost", "localhost"])):
        done = typed("runs", "rerun", "last", *more, "--dry-run", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert sorted(command["host"] for command in json.loads(done.stdout)["commands"]) == hosts
    assert typed("runs", "rerun", "last", cwd=tmp_path).returncode == 0
    assert "; backend phub" in typed("runs", "show", "last", cwd=tmp_path).stdout


def test_the_last_order_of_the_ranks_is_taken(tmp_path: Path) -> None:
    """Orders list no hubs."""
    network(0.9, tmp_path)
    assert typed("reorder", "--algo", "ring", cwd=tmp_path).returncode == 0
    done = typed("plan", cwd=tmp_path)
    assert (done.returncode, "read .plink/order.json" in done.stderr) == (0, True), done.stderr


def test_a_narrow_hub_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backend("phub", network(0.1, tmp_path), monkeypatch, tmp_path).hubs == ("fat-0",)
    assert "warning: phub is by the measured rates 0.22 times as fast" in capsys.readouterr().err
    backend("phub", network(0.9, tmp_path), monkeypatch, tmp_path)
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(("size", "us"), [(1e3, 260.0), (131_071, 21_071.4), (200_000, 16e3 + 16.1e3 / 3)])
def test_hubs_are_priced_in_the_slices_that_run(size: float, us: float, tmp_path: Path) -> None:
    """There and back at 100 Mbit/s, 50 us each: one slice below 128 KiB, and three of 200 kB."""
    measured = network(0.9, tmp_path)
    assert cost(measured, request=CostRequest("phub", size, random=0)).cost_us == pytest.approx(us, rel=1e-3)
    last = advise(measured, AdviseRequest(1e3, 1e7)).stretches[-1]
    assert (last.line.algo, last.from_bytes) == ("phub", pytest.approx(131_072, abs=1))


@pytest.mark.parametrize("has_flows", [True, False])
def test_a_stated_rate_counts_whatever_was_measured(has_flows: bool, tmp_path: Path) -> None:
    """Hubs of 7 and 1 Gbit/s add up for eight of 100 Mbit/s, seven to one; pairs show 100 Mbit/s of each."""
    document = network(7.0, tmp_path, 2).to_json()
    document["hosts"][9]["gbps"] = 1.0
    if not has_flows:
        del document["host_flows"]
        document["bandwidth_gbps"] = [[None if a == b else 0.1 for b in range(10)] for a in range(10)]
    measured = network_from_json(document, "measured.json")
    joined = with_hubs(measured, fabric_from(measured), "phub", np.arange(8), Options())
    assert joined.options.weights == [7.0, 1.0]
    result = cost(measured, request=CostRequest("phub", 25e6, random=0))
    assert (result.model, result.cost_us) == ("contention", pytest.approx(2e6, rel=0.01))


@pytest.mark.parametrize("measured_as", ["flows", "pairs", "shared links"])
def test_inferred_capacities_are_said_of_costs_and_advice(
    measured_as: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = network(0.9, tmp_path).to_json()
    if measured_as == "pairs":
        del document["host_flows"]
        document["bandwidth_gbps"] = [[None if a == b else 0.1 for b in range(9)] for a in range(9)]
    if measured_as == "shared links":
        links = {"out_gbps": 0.2, "in_gbps": 0.2}
        document["shared_links"] = [{"groups": [{"members": names, **links} for names in (WORKERS[:4], WORKERS[4:])]}]
    measured = network_from_json(document, "measured.json")
    for priced in (
        lambda: cost(measured, request=CostRequest("phub", random=0)),
        lambda: advise(measured, AdviseRequest(1e6, 1e6, algorithms=("ring",))),
        lambda: balance(measured, BalanceRequest(1e6, 1.0)),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            priced()
        messages = sum(fabric_from(measured).capacities in line for line in caplog.messages)
        assert messages == (measured_as != "shared links")


def on_rails(hub_gbps: float | None, folder: Path, of_hub: Sequence[float | None] = (0.1, 0.1)) -> Network:
    """Eight workers and a hub on two rails of 100 Mbit/s, which is what a probe finds of the hub's, too."""
    document = network(hub_gbps or 1.0, folder).to_json()
    if hub_gbps is None:
        del document["hosts"][8]["gbps"]
    rates = [*[[0.1, 0.1]] * 8, list(of_hub)]
    document["interfaces"] = {
        "names": [["eth0", "eth1"]] * 9,
        "used": [[None if a == b else 0 for b in range(9)] for a in range(9)],
        "relays": [[None] * 9] * 9,
        "switches": [[[host, rail] for host in range(9)] for rail in range(2)],
        "out_gbps": rates,
        "in_gbps": rates,
    }
    return network_from_json(document, "rails.json")


@pytest.mark.parametrize(("gbps", "times"), [(1.6, 1.0), (0.8, 2.0), (None, 8.0)])
def test_a_stated_rate_is_that_of_all_interfaces(gbps: float | None, times: float, tmp_path: Path) -> None:
    """25 MB by workers of 200 Mbit/s: 1 s, where the hub carries as much as all of them."""
    measured = on_rails(gbps, tmp_path)
    joined = with_hubs(measured, fabric_from(measured), "phub", np.arange(8), Options())
    assert joined.options.weights == [pytest.approx(gbps or 0.2)]
    assert cost(measured, request=CostRequest("phub", 25e6, random=0)).cost_us == pytest.approx(times * 1e6, rel=0.02)
    assert (advise(measured).best(25e6).algo == "phub") == (times == 1.0)
    (form,) = (form for form in balance(measured, BalanceRequest(25e6, 3.0)).forms if form.algo == "phub")
    assert form.exchange_s == pytest.approx(times, rel=0.02)


@pytest.mark.parametrize("of_hub", [(0.1, None), (None, 0.1), (None, None)])
def test_stated_rate_is_shared_with_unmeasured_interfaces(of_hub: tuple[float | None, ...], tmp_path: Path) -> None:
    """As if they were like the measured ones: the whole of the rate is not what one of them carries."""
    costs = [
        cost(on_rails(0.8, tmp_path, rates), request=CostRequest("phub", 25e6, random=0)).cost_us
        for rates in ((0.1, 0.1), of_hub)
    ]
    assert costs[1] == pytest.approx(costs[0], rel=1e-9)


def test_stated_rates_are_shares_where_nothing_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = Hosts((*(Host(name, name) for name in WORKERS), *(Host(f"h{k}", "h", role="hub", gbps=k) for k in (1, 3))))
    schedule = from_bytes(base64.b64decode(backend_for("phub", hosts, None).environment[TEXT])).classes[0].schedule
    assert schedule is not None
    assert schedule.count[schedule.target == 9].sum() == 3 * schedule.count[schedule.target == 8].sum()


def test_inferred_links_carry_no_less_than_a_hub(tmp_path: Path) -> None:
    """Seven workers share 0.7 / 2.5 Gbit/s out of their rack; the hub's rack has a link of 0.9, as the hub."""
    document = network(0.9, tmp_path).to_json()
    near = [k in (0, 8) for k in range(9)]
    document["latency_us"] = [[0 if a == b else 20 if near[a] == near[b] else 100 for b in range(9)] for a in range(9)]
    result = cost(network_from_json(document, "racks.json"), request=CostRequest("phub", 25e6, random=0))
    assert result.cost_us == pytest.approx(5e6, rel=0.02)


def test_without_hubs_there_is_no_price(tmp_path: Path) -> None:
    document = network(0.9, tmp_path).to_json()
    document["hosts"][8] = {"name": "fat-0"}
    measured = network_from_json(document, "none.json")
    with pytest.raises(UsageError, match="needs a host with role=hub"):
        cost(measured, request=CostRequest("phub"))
    assert "role=hub" in advise(measured, AdviseRequest(1e6, 1e6, algorithms=("ring", "phub"))).left_out["phub"]


@pytest.mark.parametrize("has_hub", [True, False])
def test_hosts_decide_which_are_hubs(has_hub: bool, tmp_path: Path) -> None:
    """An option does not; where it is another algorithm's, hubs stay those of the hosts file."""
    document = network(0.9, tmp_path).to_json()
    document["hosts"][8] = document["hosts"][8] if has_hub else {"name": "fat-0"}
    measured = network_from_json(document, "measured.json")
    with pytest.raises(UsageError, match=r"--set servers=2: .* role=hub in the hosts file"):
        cost(measured, request=CostRequest("phub", options={"servers": 2}))
    of_hubs = AdviseRequest(1e6, 1e6, algorithms=("phub",), options={"servers": 2})
    with pytest.raises(UsageError, match=r"--set servers=2: .* role=hub in the hosts file"):
        advise(measured, of_hubs)
    servers: dict[str, int | bool] = {"servers": 2, "colocated": False}
    advice = advise(measured, replace(of_hubs, algorithms=("ps", "phub"), options=servers))
    assert ("phub" in advice.left_out) != has_hub
    if has_hub:
        alone = cost(measured, request=CostRequest("phub", 1e6, random=0)).cost_us
        assert advice.best(1e6, "phub").at(1e6) == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize(("cores", "warned"), [(2, True), (16, False), (None, True)])
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


@pytest.mark.parametrize(("gbps", "warned"), [(7.0, False), (14.1, True), (None, False)])
def test_wide_hub_without_a_network_is_warned_of(
    gbps: float | None,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has one process, which takes 7 Gbit/s, until its cores are known."""
    monkeypatch.chdir(tmp_path)
    hosts = Hosts((Host("a", "a"), Host("b", "b"), Host("fat-0", "c", 0, role="hub", gbps=gbps)))
    assert backend_for("phub", hosts, None).hubs == ("fat-0",)
    err = capsys.readouterr().err
    assert ("warning" in err, "plink probe" in err) == (warned, warned)


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


def test_alpha_beta_has_slices_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Eight vectors at a pair's 100 Mbit/s, one after the other, in 217 slices."""
    measured = network(0.9, tmp_path)
    with caplog.at_level("WARNING"):
        result = cost(measured, request=CostRequest("phub", 25e6, "alpha-beta", random=0))
    assert "gbps= counts for nothing" in caplog.text
    priced = result.cost_us
    assert priced == pytest.approx(result.parts[0].cost_us)
    assert priced == pytest.approx(16e6 * (1 + 1 / 217), rel=1e-4)
    advice = advise(measured, AdviseRequest(25e6, 100e6, "alpha-beta"))
    assert advice.best(25e6, "phub").at(25e6) == pytest.approx(priced)
    assert advice.stretches[0].line.algo != "phub"

"""plink as a library: names, what calls give, what they leave alone, errors, threads."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import json
import logging
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import plink
from benchmarks.clouds import three_tier
from plink.features.launch.order import job_order
from plink.features.launch.request import JobRequest
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.profile import LayerProfile
from solvers.costs.by_name import pattern_for
from solvers.schedules.catalogue import Options
from tests.docs.pages import ROOT, blocks
from tests.docs.samples import write_samples
from tests.networks import details_from


@pytest.fixture(autouse=True)
def silent_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program of one's own: a command run in this process before has shown notes of the loggers."""
    logger = logging.getLogger("plink")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> plink.Network:
    """Sixteen hosts in racks and pods; the working folder is empty."""
    monkeypatch.chdir(tmp_path)
    return three_tier(16, seed=4).network(np.random.default_rng(1))


def test_every_name_is_there_and_in_the_stub() -> None:
    for name in plink.__all__:
        assert getattr(plink, name) is not None
        assert name in dir(plink)
    documented: set[str] = set()
    for node in ast.parse((ROOT / "plink" / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            documented |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.Assign):
            documented |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert documented == set(plink.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        plink.nothing  # noqa: B018


def test_python_page_has_every_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert not [name for name in plink.__all__ if not re.search(rf"\b{name}\b", page)]


def test_signatures_of_requests_have_plain_types() -> None:
    requests = [kind for name in plink.__all__ if name.endswith("Request") and (kind := getattr(plink, name))]
    for kind in requests:
        shown = inspect.signature(kind)
        assert "Annotated" not in str(shown)
        assert [*shown.parameters] == [field.name for field in dataclasses.fields(kind) if field.init]


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import plink, sys; print([name for name in ('numpy', 'typer', 'torch', 'numba') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_order_that_costs_what_it_says(
    network: plink.Network, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    request = plink.OrderRequest(model="latency", max_moves=2000, pins={"host3": 0}, force=True)
    order = plink.reorder(network, request, algo="tree")
    assert (order.algo, order.hosts[0], sorted(order.hosts)) == ("tree", "host3", sorted(network.hosts.names))
    fitted = plink.cost(network, order, plink.CostRequest(model="latency"), algo="tree")
    assert fitted.hosts == order.hosts
    baseline = plink.cost(network, None, plink.CostRequest(model="latency"), algo="tree")
    assert list(baseline.hosts) == network.hosts.names
    assert fitted.cost_us < baseline.cost_us
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("model", ["latency", "contention"])
def test_time_is_an_objective_of_rings(network: plink.Network, model: str) -> None:
    order = plink.reorder(network, plink.OrderRequest(model=model, objective="time", max_moves=500, force=True))
    assert order.objective == "time"
    assert order.cost == pytest.approx(plink.cost(network, order, plink.CostRequest(model=model, random=0)).cost_us)


def racks_of_1_gbps(hosts: int, racks: int) -> plink.Network:
    """Hosts of 1 Gbit/s in racks that share as much."""
    names = [f"host{k}" for k in range(hosts)]
    measured = {f"{way}_{key}": value for way in ("out", "in") for key, value in
                (("gbps", 1.0), ("limited_by", "link"), ("one_flow_gbps", 1.0), ("flows", hosts // racks))}  # fmt: skip
    tier = {"groups": [{"members": names[k::racks], **measured} for k in range(racks)]}
    members = tuple(Host(name, f"10.0.0.{k}") for k, name in enumerate(names))
    return plink.Network(
        Hosts(members), 100.0 * ~np.eye(hosts, dtype=bool), None, details_from({"shared_links": [tier]})
    )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("model", ["alpha-beta", "contention", "simulated"])
@pytest.mark.parametrize("algo", ["ring", pytest.param("halving-doubling", marks=pytest.mark.extended)])
def test_pairs_that_were_not_measured_are_avoided_at_any_size(algo: str, model: str, pairs: bool) -> None:
    """Those of the hosts in a rack, next to each other in the fastest order; with rates of all other pairs, or none."""
    network, unknown = racks_of_1_gbps(9, 3), np.zeros((9, 9), dtype=bool)
    unknown[0:9:3, 0:9:3] = ~np.eye(3, dtype=bool)
    rates = np.where(unknown | np.eye(9, dtype=bool), np.nan, 1.0) if pairs else None
    latency_us = np.where(unknown, np.nan, network.latency_us)
    network = dataclasses.replace(network, latency_us=latency_us, bandwidth_gbps=rates)
    order = plink.reorder(network, plink.OrderRequest(algo=algo, model=model, max_moves=500))
    hosts = np.array([network.hosts.names.index(name) for name in order.hosts])
    pattern = pattern_for(algo, 9, Options())
    assert not unknown[hosts[pattern.source], hosts[pattern.target]].any()
    assert order.measured_pairs_only
    assert order.lower_bound is not None
    assert order.cost is not None
    assert order.lower_bound <= order.cost < 3.1 * 2 * 8 / 9 * 8e5 * (1 if algo == "ring" else 2)


def test_groups_advice_and_a_page(network: plink.Network, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the page shows are the groups and the order that other calls found."""
    steps: set[str] = set()
    groups = plink.cluster(network, plink.ClusterRequest(groups=4), progress=lambda what, done, total: steps.add(what))
    assert sorted(name for group in groups.groups for name in group) == sorted(network.hosts.names)
    assert (len(groups.groups), groups.left_out, steps) == (4, (), {"fitting", "clustering"})
    with noted("plink.advise") as notes:
        advice = plink.advise(network, plink.AdviseRequest(algorithms=("ring", "bcube"), options={"base": 3}))
    assert notes[0].startswith("no rates were measured; capacities are inferred")
    assert (advice.best(1e6).algo, list(advice.left_out), advice.sizes[-1]) == ("ring", ["bcube"], 1e9)
    assert advice.left_out["bcube"].startswith("bcube of base 3 needs a power of 3")
    order = plink.reorder(network, plink.OrderRequest(max_moves=500), algo="ring")
    request = plink.ReportRequest(order, groups.groups, order_source="the ring", groups_source="four groups")
    page = plink.render_report(network, request)
    assert page.startswith("<!DOCTYPE html>")
    assert "as four groups lists them" in page
    assert "the ring" in page
    assert "No order was given." in plink.render_report(network)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_an_embedding(network: plink.Network, tmp_path: Path) -> None:
    latency = network.latency_us.copy()
    latency[5, :] = latency[:, 5] = np.nan
    latency[5, 5] = 0.0
    deaf = dataclasses.replace(network, latency_us=latency)
    embedding = plink.embed(deaf, plink.EmbedRequest(dimension=2, alpha=1.0, heights=False, loss="relative"))
    assert embedding.left_out == ("host5",)
    assert {len(row) for row in embedding.coordinates} == {2}
    document = embedding.to_json()
    assert (document["schema"], len(document["hosts"]), document["dimension"]) == ("plink.embedding/1", 15, 2)
    assert "The hosts could not be placed" not in plink.render_report(deaf, plink.ReportRequest(embedding=embedding))
    other = dataclasses.replace(network, hosts=plink.Hosts(network.hosts.members[::-1]))
    with pytest.raises(plink.InputError, match="embedding: was made of other hosts"):
        plink.render_report(other, plink.ReportRequest(embedding=embedding))
    assert list(tmp_path.iterdir()) == []
    embedding.write("embedding.json")
    assert json.loads(Path("embedding.json").read_text()) == document


class _RecordingHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def noted(name: str) -> Iterator[list[str]]:
    """What that logger notes."""
    handler, logger = _RecordingHandler(), logging.getLogger(name)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.messages
    finally:
        logger.removeHandler(handler)


def test_a_diagnosis_names_the_slow_host(network: plink.Network) -> None:
    assert plink.diagnose(network) == []
    with pytest.raises(ValueError, match="read-only"):
        network.latency_us[5, :] = 0.0
    latency = network.latency_us.copy()
    latency[5, :] += 300
    latency[:, 5] += 300
    findings = plink.diagnose(dataclasses.replace(network, latency_us=latency))
    assert [finding.hosts for finding in findings if finding.kind == "slow host"] == [["host5"]]


HERE = plink.Hosts((plink.Host("here", "127.0.0.1", slots=2),))


def test_two_threads_at_once_find_what_one_finds(network: plink.Network) -> None:
    requests = [plink.OrderRequest(model="latency", max_moves=3000, seed=seed, force=True) for seed in (1, 2)]
    alone = [plink.reorder(network, request) for request in requests]
    together: dict[int, plink.RankOrder] = {}
    threads = [
        threading.Thread(target=lambda k=k: together.update({k: plink.reorder(network, requests[k])})) for k in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[k] for k in (0, 1)] == alone


def test_a_job_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[tuple[int | None, str, str]] = []
    verified_hosts: list[str] = []
    connected: list[tuple[str, int, int]] = []
    job = plink.Job("sh", ("-c", 'echo "$RANK of $WORLD_SIZE"; exit $RANK'))
    observer = plink.RunObserver(
        lambda *line: printed.append(line),
        lambda proof: verified_hosts.extend(rank.host for rank in proof),
        lambda *progress: connected.append(progress),
    )
    run = plink.launch(job, HERE, None, plink.LaunchRequest("local"), observer)
    assert verified_hosts == ["here", "here"]
    assert sorted(printed, key=str) == [(0, "out", "0 of 2"), (1, "out", "1 of 2")]
    assert connected == [("connecting", 1, 1)]
    assert (run.exit_code, run.failure and run.failure.rank) == (1, 1)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_run_is_recorded_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = plink.LaunchRequest("local", record=plink.RecordRequest(note={"experiment": "first"}))
    run = plink.launch(plink.Job("echo", ("hello",)), HERE, None, request)
    folder = tmp_path / ".plink" / "runs" / run.id
    document = json.loads((folder / "run.json").read_text())
    assert (document["exit_code"], document["experiment"], document["proof"]["held"]) == (0, "first", True)
    assert (folder / "logs" / "rank-1.out").read_text() == "hello\n"


def test_a_host_of_another_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the cloud gave its name to a new machine between probe and launch; nothing is run, and that is kept."""
    monkeypatch.chdir(tmp_path)
    network = plink.Network(
        HERE, np.zeros((1, 1)), details=details_from({"machines": [{"hostname": "other", "addresses": []}]})
    )
    request = plink.LaunchRequest("local", network.host_identities, record=plink.RecordRequest())
    with pytest.raises(plink.PlacementError, match="was measured on the machine 'other'") as caught:
        plink.launch(plink.Job("touch", ("ran",)), HERE, None, request)
    assert [rank.rank for rank in caught.value.locations if rank.problem] == [0, 1]
    (folder,) = (tmp_path / ".plink" / "runs").iterdir()
    assert caught.value.result.id == folder.name
    assert json.loads((folder / "run.json").read_text())["proof"]["held"] is False
    assert not (tmp_path / "ran").exists()


def test_a_dry_run_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    preview = plink.dry_run(plink.Job("touch", ("ran",)), HERE, None, plink.LaunchRequest("local"))
    assert [command.ranks for command in preview.commands] == [(0,), (1,)]
    assert [Path(command.argv[0]).name for command in preview.commands] == ["touch", "touch"]
    with pytest.raises(plink.PlinkError, match="nosuch"):
        plink.dry_run(plink.Job("nosuch"), HERE, None, plink.LaunchRequest("local"))
    assert list(tmp_path.iterdir()) == []


def test_ranks_know_the_mesh_that_they_were_ordered_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mesh = plink.make_mesh("pp=2", ["pp=1MB"]).file()
    order, job = plink.RankOrder(hosts=("here",), mesh=mesh), plink.Job("touch", ("ran",))
    preview = plink.dry_run(job, HERE, order, plink.LaunchRequest("local"))
    assert [command.env["PLINK_MESH"] for command in preview.commands] == ["pp=2", "pp=2"]
    mine = dataclasses.replace(job, env={"PLINK_MESH": ""})
    (command, _) = plink.dry_run(mine, HERE, order, plink.LaunchRequest("local")).commands
    assert command.env["PLINK_MESH"] == ""
    order.write("order.json")
    (tmp_path / "hosts.txt").write_text("here slots=2\n")
    assert job_order(JobRequest(Path("hosts.txt"), "order.json")).environment == {"PLINK_MESH": "pp=2"}
    assert not job_order(JobRequest(Path("hosts.txt"), "given")).environment


def test_an_elastic_job_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    members = (plink.Host("kept", "127.0.0.1"), plink.Host("spot", "127.0.0.1", tier="transient"))
    job = plink.Job(str(ROOT / "examples" / "elastic_mf.py"), ("--clocks", "6"), pythons=(sys.executable,))
    entries: list[str] = []
    with noted("plink.elastic") as notes:
        result = plink.run_elastic(
            job, plink.Hosts(members), plink.ElasticRequest("local"),
            plink.ElasticObserver(on_entry=lambda entry: entries.append(entry.what)),
        )  # fmt: skip
    assert (result.exit_code, result.iterations > 0) == (0, True), result.why
    assert notes[0] == f"2/2 hosts verified; starting {job.program}"
    assert "spot joined: member 1, transient" in notes
    assert any(note.startswith("iteration ") for note in notes)
    assert (entries.count("iteration"), entries[-1]) == (result.iterations, "end")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_requests_of_the_page_are_understood(network: plink.Network) -> None:
    write_samples(Path.cwd())
    network.write("cloud.json")
    layers = tuple(
        LayerProfile(
            name=f"l{k}",
            forward_s=0.01,
            backward_s=0.02,
            parameter_bytes=500_000,
            crossing_bytes=60_000,
            crossing_back_bytes=60_000,
        )
        for k in range(4)
    )
    plink.ModelProfile(minibatch=8, layers=layers).write("profile.json")
    examples = [block for block in blocks(ROOT / "docs" / "python.md") if block.language == "python"]
    for example in examples[1:]:
        exec("\n".join(example.lines), {})
    assert plink.read_pipeline("pipeline.json").minibatch == 8


def test_errors_pass_between_processes() -> None:
    for error in (
        plink.UsageError("wrong"),
        plink.InputError("file:3", "wrong"),
        plink.HostError("a", "gone"),
        plink.PlacementError([plink.RankLocation(0, "a", "b", "b", 0, "elsewhere")]),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


def test_groups_of_a_clustering_are_groups_of_an_order(network: plink.Network) -> None:
    groups = plink.cluster(network, plink.ClusterRequest(groups=4))
    order, same = (
        plink.reorder(network, plink.OrderRequest(groups=each, max_moves=1000)) for each in (groups, groups.groups)
    )
    assert order == same
    by_name = dict(enumerate(groups.groups)).values()
    assert plink.reorder(network, plink.OrderRequest(groups=cast(Any, by_name), max_moves=1000)) == order


def test_groups_of_a_mesh_are_by_whole_names() -> None:
    mesh = plink.make_mesh("p=2,pp=3", ["pp=1MB", "p=all-reduce:1MB"])
    assert mesh.groups("pp").shape == mesh.groups(["pp"]).shape == (2, 3)
    with pytest.raises(plink.UsageError, match="axis dp"):
        mesh.groups("dp")


def test_two_measurements_are_compared(network: plink.Network) -> None:
    slow = network.latency_us.copy()
    slow[3], slow[:, 3] = 3 * slow[3], 3 * slow[:, 3]
    comparison = plink.diff(network, dataclasses.replace(network, latency_us=slow))
    assert [finding.hosts for finding in comparison.findings] == [(network.hosts.names[3],)]
    assert plink.diff(network, network).ok


def test_advice_by_simulation_does_without_a_few_rates() -> None:
    rng = np.random.default_rng(0)
    hosts = plink.Hosts(tuple(plink.Host(f"h{i}", f"h{i}") for i in range(8)))
    rates = rng.uniform(1, 10, (8, 8))
    rates[0, 3] = rates[3, 0] = np.nan
    network = plink.Network(hosts, rng.uniform(50, 500, (8, 8)), rates)
    advice = plink.advise(network, plink.AdviseRequest(model="simulated", min_bytes=1e6, max_bytes=1e6))
    assert not any("bandwidth" in reason for reason in advice.left_out.values())


@pytest.mark.parametrize("seed", range(3))
def test_simulated_orders_heed_rates_of_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hosts = plink.Hosts(tuple(plink.Host(f"h{i}", f"h{i}") for i in range(5)))
    network = plink.Network(hosts, rng.uniform(50, 500, (5, 5)), rng.uniform(1, 10, (5, 5)))
    request = plink.CostRequest(model="simulated", random=0)
    first, *others = hosts.names
    least = min(
        plink.cost(network, plink.RankOrder(hosts=(first, *rest)), request).cost_us
        for rest in itertools.permutations(others)
    )
    assert plink.reorder(network, plink.OrderRequest(model="simulated")).cost == pytest.approx(least)

"""What plink as a library is given: bad arguments are named, and what is one's own is checked as a file is."""

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import plink
from plink.elastic.app import save_arrays
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from tests.features.test_library import HERE, network

__all__ = ["network"]
JOB = plink.Job("true")
ALONE = plink.Network(HERE, np.zeros((1, 1)))


def test_bad_arguments_are_named(network: plink.Network) -> None:
    def elastic(**options: Any) -> plink.ElasticResult:
        return plink.run_elastic(plink.Job("app.py"), network.hosts, plink.ElasticRequest(**options))

    for call, named in (
        (lambda: plink.reorder(network, algo="nosuch"), "--algo nosuch"),
        (lambda: plink.SpotSimulationRequest(strategies="all"), "--strategies 'all': "),
        (
            lambda: plink.make_spot_prices(cast(Any, None), plink.MadePricesRequest()),
            "make_spot_prices: market_file None: ",
        ),
        (lambda: plink.reorder(network, plink.OrderRequest(pins={"nosuch": 0})), "--pin nosuch=0: unknown host"),
        (
            lambda: plink.reorder(network, plink.OrderRequest(options={"base": 2})),
            "--set base=2: ring has no option base",
        ),
        (lambda: plink.reorder(network, plink.OrderRequest(max_moves=0)), "--max-moves 0"),
        (lambda: plink.reorder(network, plink.OrderRequest(seed=-1)), "--seed -1"),
        (lambda: plink.plan(network, plink.PlanRequest(seed=-1)), "--seed -1"),
        (lambda: plink.probe(network.hosts, plink.ProbeRequest(count=5)), "--count 5"),
        (lambda: plink.probe(network.hosts, plink.ProbeRequest(timeout_s=-1.0)), "--timeout -1s"),
        (lambda: plink.cost(network, None, plink.CostRequest(options={"fan_out": True}), algo="tree"), "--set fan_out"),
        (lambda: plink.plan(network, plink.PlanRequest(weights="nosuch")), "--weights nosuch"),
        (lambda: plink.probe(plink.Hosts((plink.Host("a", "127.0.0.1"),))), "one host"),
        (lambda: plink.probe(network.hosts, plink.ProbeRequest(method="nosuch")), "--method nosuch"),
        (lambda: plink.launch(JOB, network.hosts, None, plink.LaunchRequest("nosuch")), "--runner nosuch"),
        (lambda: plink.dry_run(JOB, network.hosts, None, plink.LaunchRequest("no")), "--runner no: choose"),
        (lambda: plink.embed(network, plink.EmbedRequest(loss="huber")), "--loss huber: choose one of auto"),
        (lambda: plink.cluster(network, plink.ClusterRequest(groups=0)), "--groups 0"),
        (lambda: plink.advise(network, plink.AdviseRequest(algorithms=("x",))), "--algos x: choose some of ring"),
        (lambda: plink.advise(network).best(cast(Any, "1MB")), "size_bytes '1MB'"),
        (lambda: plink.advise(network).best(1e6, "rinx"), "'rinx'"),
        (lambda: plink.subnetwork(network, cast(Any, (name for name in "ab"))), "subnetwork: hosts"),
        (lambda: plink.subnetwork(network, cast(Any, {"host0"})), "subnetwork: hosts {'host0'}"),
        (lambda: plink.advise(network, plink.AdviseRequest(min_bytes=0)), "--size 0 B..1 GB"),
        (lambda: plink.advise(network, plink.AdviseRequest(model="latency")), "--model latency"),
        (lambda: plink.render_report(ALONE), "one host (here) has no network to draw"),
        (lambda: plink.run_elastic(plink.Job("sh"), network.hosts), "sh must be a .py file"),
        (lambda: elastic(shares="speed", rebalance=True), "--rebalance with --shares speed"),
        (lambda: plink.CostRequest(size_bytes="100MB"), "--size '100MB': a number"),  # type: ignore[arg-type]
        (lambda: plink.OrderRequest(size_bytes=float("nan")), "--size nan: it takes 1 to"),
        (lambda: plink.ScheduleRequest("ring", 2.5), "--ranks 2.5: a whole number"),  # type: ignore[arg-type]
        (lambda: plink.OrderRequest(pins=["h0"]), "--pin ['h0']: give a dict"),  # type: ignore[arg-type]
        (lambda: plink.PipelineRequest(hosts=0, gbps=[1.0]), "--hosts 0"),
        (lambda: plink.PipelineRequest(hosts=2, gbps=[0.0]), "--gbps 0"),
        (lambda: plink.PipelineRequest(hosts=2, gbps=1.0), "--gbps 1.0: give a tuple"),  # type: ignore[arg-type]
        (lambda: plink.PipelineRequest(hosts=True, gbps=[1.0]), "--hosts True"),
        (lambda: plink.PipelineRequest(hosts=["a", "b"], gbps=[1.0]), "--hosts ['a', 'b']"),  # type: ignore[arg-type]
        (lambda: plink.PipelineRequest(hosts=2, gbps=[math.inf]), "--gbps inf"),
        (lambda: plink.PipelineRequest(hosts=2, gbps=[1.0], rtt_s=-1.0), "--rtt -1"),
        (lambda: plink.PipelineRequest(hosts=2, gbps=[1.0], rtt_s=math.nan), "--rtt nan"),
        (lambda: plink.PipelineRequest(hosts=4, gbps=[1.0, 1.0], levels=(-2, -2)), "--levels -2"),
        (lambda: plink.PipelineRequest(memory={"": math.nan}), "--memory nan"),
        (lambda: plink.PipelineRequest(memory={"": -1.0}), "--memory"),
        (lambda: plink.PipelineRequest(memory={"": "4GB"}), "--memory '4GB'"),  # type: ignore[dict-item]
        (lambda: plink.PipelineRequest(depth=2), "--depth 2"),  # type: ignore[arg-type]
        (lambda: plink.PipelineRequest(depth=(2, 1)), "--depth (2, 1)"),  # type: ignore[arg-type]
        (lambda: plink.PipelineRequest(depth=None), "--depth None"),  # type: ignore[arg-type]
        (lambda: plink.cost(network, ["a", "b"]), "cost: order ['a', 'b']: "),  # type: ignore[arg-type]
        (lambda: plink.reorder(cast(Any, "cloud.json")), "network 'cloud.json': Network is needed; plink.read_network"),
        (lambda: plink.probe(cast(Any, None)), "hosts None: Hosts"),
        (lambda: plink.cost(cast(Any, network.hosts)), "Hosts: Network is needed"),
        (lambda: plink.cost(network, cast(Any, network)), "RankOrder | None is needed"),
        (lambda: plink.verify_pipeline(cast(Any, network)), "PipelinePlan is needed"),
        (lambda: plink.advise(network).best(-5.0), "size_bytes -5"),
        (lambda: plink.advise(network).best(math.nan), "size_bytes nan"),
        (lambda: plink.diff(network, cast(Any, "old.json")), "new 'old.json': "),
        (lambda: plink.reorder(network, cast(Any, plink.CostRequest())), "CostRequest: OrderRequest"),
        (lambda: plink.reorder(network, mesh=cast(Any, "pp=2,dp=8")), "mesh 'pp=2,dp=8': "),
        (lambda: plink.read_network(cast(Any, None)), "path None: "),
        (lambda: plink.Network(cast(Any, list(network.hosts)), network.latency_us), "hosts "),
        (lambda: plink.Hosts(cast(Any, ("a", "b"))), "members ('a', 'b'): "),
        (lambda: plink.OrderRequest(prior=cast(Any, "file.conf")), "prior 'file.conf': Topology"),
        (lambda: plink.OrderRequest(groups=cast(Any, "racks.txt")), "groups 'racks.txt': "),
        (lambda: plink.OrderRequest(options=cast(Any, {2: 2})), "--set {2: 2}: "),
        (lambda: plink.AdviseRequest(algorithms="ring"), "algorithms 'ring': "),
        (lambda: plink.ReportRequest(cast(Any, ["a", "b"])), "order ['a', 'b']: "),
        (lambda: plink.BalanceRequest(cast(Any, "1MB"), 1.0), "parameter_bytes '1MB': "),
        (lambda: plink.PipelineRequest(hosts="4", gbps=[1.0]), "--hosts '4': "),
        (lambda: plink.RankOrder(hosts=cast(Any, "abcd")), "hosts 'abcd': "),
        (lambda: plink.RankOrder(hosts=cast(Any, (0, 1))), "hosts (0, 1): "),
        (lambda: plink.Job("sh", cast(Any, "-c")), "args '-c': "),
        (lambda: plink.report_metric(cast(Any, "x")), "value 'x': "),
        (lambda: plink.report_metric(math.nan), "above 0"),
        (lambda: elastic(runner="mpirun"), "--runner mpirun: choose one of ssh, local, slurm, kubernetes"),
    ):
        with pytest.raises(plink.UsageError) as caught:
            call()
        assert named in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: plink.Hosts(()),
        lambda: plink.Network(HERE, cast(Any, None)),
        lambda: plink.Network(HERE, np.zeros((1, 1), dtype=complex)),
        lambda: plink.RankOrder(hosts=()),
        lambda: plink.RankOrder(hosts=("a", "a")),
        lambda: plink.RankOrder(hosts=("a b",)),
    ],
)
def test_what_no_file_may_have_is_refused_when_made(make: Any) -> None:
    with pytest.raises(plink.InputError):
        make()


def test_what_fits_is_taken_as_it_comes(network: plink.Network, tmp_path: Path) -> None:
    """Lists for tuples, texts for paths, arrays for numbers, subclasses."""
    names = network.hosts.names
    order = plink.RankOrder(hosts=cast(Any, np.array(names)))
    order.write(tmp_path / "order.json")
    assert plink.read_order(str(tmp_path / "order.json")) == plink.RankOrder(hosts=cast(Any, names))
    assert plink.Hosts(cast(Any, list(network.hosts))) == network.hosts
    plink.CheckRequest(measure=True, truth=cast(Any, "truth"), algorithms=cast(Any, ["gloo"]))
    plink.PipelineRequest(hosts=2, gbps=cast(Any, np.ones(1)), memory={"": np.float64(1e9)})
    assert pickle.loads(pickle.dumps(plink.reorder)) is plink.reorder
    with pytest.raises(TypeError, match=r"reorder\(\) got an unexpected"):
        plink.reorder(network, seed=1)


def test_paths_are_taken_for_texts(network: plink.Network, tmp_path: Path) -> None:
    path = cast(Any, tmp_path / "file")
    assert plink.parse_hosts("a\nb", path).names == ["a", "b"]
    assert plink.cost(network, source=path).ranks == len(network.hosts)
    assert plink.PlanRequest(groups_source=path).groups_source == path
    assert plink.OrderRequest(groups_source=path).groups_source == path
    assert save_arrays(path, a=np.ones(1)) == path
    with pytest.raises(plink.InputError, match="file"):  # there is none
        plink.profile_pipeline(path)


class _Proxy:
    """Stands for another object, whose class it does not have."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def test_other_objects_and_subclasses_pass(network: plink.Network) -> None:
    proxy = cast(Any, _Proxy(network))
    assert plink.cost(proxy).ranks == len(network.hosts)
    assert plink.Job("sh", allow_version_mismatch=cast(Any, 1)).allow_version_mismatch
    later: dict[str, Any] = {"plink": plink}
    exec(  # as in a module of one's own
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\nfrom pathlib import Path\n"
        "@dataclass(frozen=True)\nclass Mine(plink.Job):\n    share: float = 1.0\n    file: Path | str = 'a'\n"
        "    kinds: Kinds | None = None\n    words: dict[str, list[int]] = field(default_factory=dict)\n"
        "@dataclass(frozen=True)\nclass Order(plink.OrderRequest):\n    share: Share = 1.0\n",
        later,
    )
    assert later["Mine"]("sh", share=2, file=Path("b"), kinds=[1], words={"a": [1]}).share == 2
    assert later["Order"](share=3).share == 3


def test_an_options_own_message_comes_first() -> None:
    fraction = {"base": cast(Any, 2.0)}
    for call, message in (
        (lambda: plink.OrderRequest(algo="bcube", options=fraction), "--set base=2.0: base is a whole number"),
        (lambda: plink.PipelineRequest(hosts=cast(Any, ["a"]), gbps=[1.0]), "expected 1 to 4096 hosts"),
        (lambda: plink.OrderRequest(options=cast(Any, {2: 2})), "--set"),
        (lambda: plink.CheckRequest(measure=True, algorithms="ring"), "--algo"),
        (lambda: plink.DiffRequest(floor_us=1_000_001), "1.000001s"),
        (lambda: plink.ProbeRequest(timeout_s=math.inf), "finite"),
    ):
        with pytest.raises(plink.UsageError) as caught:
            call()
        assert message in str(caught.value)
        assert not any(word in str(caught.value) for word in ("Annotated", "<function", "ForwardRef"))


def test_folders_may_be_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert plink.Job("sh", sync=cast(Any, ".")).sync == Path()
    for call in (lambda: plink.spot_status(cast(Any, ".")), lambda: plink.release_spot(cast(Any, "."), print)):
        with pytest.raises(plink.UsageError, match=tmp_path.name):
            call()


def test_a_plan_whose_order_has_a_host_twice(network: plink.Network, tmp_path: Path) -> None:
    document = plink.plan(network).to_json()
    document["order"]["hosts"][1] = document["order"]["hosts"][0]
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(plink.InputError, match=r"plan\.json: order: hosts: .* twice"):
        plink.read_plan(tmp_path / "plan.json")


def test_what_has_arrays_can_be_compared_and_hashed(network: plink.Network) -> None:
    other, ring = dataclasses.replace(network), plink.schedule(plink.ScheduleRequest("ring"))
    assert network == network
    assert network != other
    assert len({network, other}) == 2
    assert ring != plink.schedule(plink.ScheduleRequest("ring"))
    assert len({ring, ring}) == 1


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: plink.DiffRequest(floor_us=-1.0), "--floor"),
        (lambda: plink.DiffRequest(floor_us=1e9), "--floor"),
        (lambda: plink.DoctorRequest(floor_us=1e9), "--floor"),
        (lambda: plink.ProbeRequest(bandwidth_bytes=0), "--bandwidth-bytes"),
        (lambda: plink.ProbeRequest(timeout_s=math.inf), "--timeout"),
        (lambda: plink.ElasticRequest(host_bandwidth=0), "--host-bandwidth"),
    ],
)
def test_what_no_command_takes_no_request_does(make: Any, option: str) -> None:
    with pytest.raises(plink.UsageError, match=option):
        make()


def test_pipelines_of_another_profile_are_refused(tmp_path: Path) -> None:
    layers = tuple(
        LayerProfile(
            name=f"l{k}", forward_s=0.01, backward_s=0.02, parameter_bytes=8, crossing_bytes=8, crossing_back_bytes=8
        )
        for k in range(2)
    )
    profile = ModelProfile(minibatch=4, layers=layers)
    (tmp_path / "hosts.txt").write_text("a\nb\n")
    plan = plink.plan_pipeline(profile, plink.PipelineRequest(hosts=str(tmp_path / "hosts.txt"), gbps=[1.0]))
    assert set(plan.hosts.names) <= {"a", "b"}
    request = plink.PipelineSimulationRequest(gbps=1.0)
    assert plink.simulate_pipeline(plan, profile, request=request).document.minibatch_s > 0
    with pytest.raises(plink.InputError, match="profile"):
        plink.simulate_pipeline(plan, ModelProfile(minibatch=8, layers=layers), request=request)
    for count in (-5, 0):
        with pytest.raises(plink.UsageError, match=f"--minibatches {count}"):
            plink.verify_pipeline(plan, count)


def _own(latency_us: Any, names: tuple[str, ...] = ("a", "b", "c")) -> plink.Network:
    return plink.Network(plink.Hosts(tuple(plink.Host(name, name) for name in names)), latency_us)


@pytest.mark.parametrize("matrix", [-np.ones((3, 3)), np.full((3, 3), np.inf), np.ones((2, 3)), [["a"] * 3] * 3])
def test_a_network_of_ones_own_is_checked_as_a_file_is(matrix: Any) -> None:
    with pytest.raises(plink.InputError, match="network: latency_us"):
        _own(matrix)


def test_a_network_is_a_copy_of_its_arrays() -> None:
    latency_us = np.ones((3, 3))
    view = latency_us.view()
    view.setflags(write=False)
    network = _own(view)
    latency_us[0, 1] = 9.0
    assert network.latency_us[0, 1] == 1
    assert _own([[0, 1, 2]] * 3).latency_us.dtype == np.float64
    again = pickle.loads(pickle.dumps(network))
    assert not again.latency_us.flags.writeable
    assert again.fingerprint() == network.fingerprint()


@pytest.mark.parametrize(
    "wrong",
    [{"slots": -1}, {"slots": 1.5}, {"tier": "gold"}, {"role": "boss"}, {"gbps": 0.0}, {"port": 0}, {"name": "a b"}],
)
def test_a_host_of_ones_own_is_checked_as_a_file_is(wrong: dict[str, Any]) -> None:
    with pytest.raises(plink.InputError):
        plink.Host(**{"name": "a", "address": "10.0.0.1", **wrong})


def test_hosts_and_networks_of_ones_own_are_put_right() -> None:
    host = plink.Host("a", "a", slots=cast(int, np.int64(8)), price=cast(float, "0.5"))
    assert (type(host.slots), host.price) == (int, 0.5)
    assert plink.Host("h", "h", role="hub").slots == 0
    with pytest.raises(plink.InputError, match="twice"):
        plink.Hosts((host, host))
    assert _own(np.where(np.eye(3), np.nan, 1.0)).latency_us.diagonal().tolist() == [0, 0, 0]


def test_numbers_of_numpy_are_numbers(network: plink.Network, tmp_path: Path) -> None:
    request = plink.OrderRequest(
        algo="bcube",
        size_bytes=np.float64(1e6),
        options={"base": cast(int, np.int64(2))},
        pins={network.hosts.names[0]: cast(int, np.int64(0))},
        max_moves=cast(int, 1e3),
        seed=cast(int, np.int64(3)),
        groups=cast(int, np.int64(2)),
    )
    order = plink.reorder(network, request)
    order.write(tmp_path / "order.json")
    assert plink.read_order(tmp_path / "order.json") == order
    for wrong in ({"seed": True}, {"smooth_latencies": "no"}, {"groups": 2.0}):
        with pytest.raises(plink.UsageError):
            plink.reorder(network, plink.OrderRequest(max_moves=10, **wrong))  # type: ignore[arg-type]


def test_what_a_request_was_given_may_change() -> None:
    options = {"base": 2}
    request = plink.OrderRequest(algo="bcube", options=options)
    options["base"] = 3
    assert request.options == {"base": 2}


def test_an_order_has_no_host_twice(network: plink.Network) -> None:
    names = network.hosts.names
    with pytest.raises(plink.InputError, match="twice"):
        plink.cost(network, plink.RankOrder(hosts=(*names, names[0])))


@pytest.mark.parametrize(
    "wrong", [{"kind": "push"}, {"times": -1.0}, {"overlap": 2.0}, {"sizes": ()}, {"sizes": (-1.0,)}, {"axes": ("dp",)}]
)
def test_traffic_of_ones_own_is_checked(wrong: dict[str, Any]) -> None:
    mesh = plink.make_mesh("pp=3", ["pp=1MB"])
    with pytest.raises(plink.UsageError):
        dataclasses.replace(mesh, traffic=(dataclasses.replace(mesh.traffic[0], **wrong),))
    with pytest.raises(plink.UsageError, match="--parameters"):
        plink.ModelShape(float("nan"), 24, 2048, 2048)

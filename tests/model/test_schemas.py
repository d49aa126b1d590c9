"""The published JSON Schemas against what the code really writes: accepted as it is, refused when broken."""

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from plink.errors import PlinkError
from plink.model.codec import convert
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import MachineIdentity
from plink.model.storage import read_document
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.schedules.counter import count
from tests.child_hosts import ChildHosts
from tests.model.schemas import FOLDER, Document, complaints, described, printed
from tests.networks import details_from
from tests.runners.child_jobs import ChildJobs

# JSON lines: a schema is of a document, and their readers know each line.
LOGS = {"elastic-log/1", "autotune/1", "spot-journal/1"}


@pytest.fixture(scope="module")
def measured() -> Network:
    """What the probe's own code makes of samples; c answers nobody, but hears the others."""
    from plink.transport.addresses import host_identity
    from probes.agent.summary import summary
    from probes.measurements import Measurements

    measurements = Measurements(
        Hosts(tuple(Host(name, f"10.0.0.{i}", slots=2, user="ann") for i, name in enumerate("abc")))
    )
    measurements.add(method="stamp", count=4, seed=0, plan="all")
    for i, j in itertools.permutations(range(3), 2):
        samples = [] if j == 2 else [50_000 + 1000 * i, 52_500, 49_000, 51_125]
        result = {"sent": 4, "reflected": len(samples), "hops": 1, "clock": "kernel", **summary(samples)}
        measurements.record(i, j, "stamp", result)
    measurements.machines = [
        None,
        *(convert(MachineIdentity, {**host_identity(), "address": "10.0.0.1"}, "h") for _ in range(2)),
    ]
    network = measurements.network()
    latency = np.where(np.isnan(network.latency_us), network.latency_us.T, network.latency_us)
    return Network(network.hosts, latency, None, network.details)


def order_of(network: Network, **options: Any) -> Document:
    """What reorder writes."""
    from plink.features.order.request import OrderRequest
    from plink.features.order.run import reorder

    return reorder(network, OrderRequest(**{"max_moves": 100, **options})).to_json()


def alike(names: str = "abcdef") -> Network:
    """Hosts between which nothing differs but noise."""
    rng, n = np.random.default_rng(5), len(names)
    halves = [60 * rng.lognormal(0, 0.1, (n, n)) * ~np.eye(n, dtype=bool) for _ in range(2)]
    hosts = Hosts(tuple(Host(name, name) for name in names))
    return Network(
        hosts, np.sqrt(halves[0] * halves[1]), None, details_from({"halves_us": [half.tolist() for half in halves]})
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """What launch prints of a job that ends well and of one that fails."""
    documents = {}
    for name, code in (("good", "print('done')"), ("failed", "import sys; print('why'); sys.exit(3)")):
        with ChildHosts() as connector:
            jobs = ChildJobs(connector, tmp_path_factory.mktemp(name))
            documents[name] = jobs.launch(jobs.job(sys.executable, "-c", code), slots=2).to_json()
    return documents


def test_a_schema_is_one_and_says_what_every_key_means() -> None:
    for path in FOLDER.iterdir():
        name, schema = path.name.partition(".")[0], read_document(path)
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert re.fullmatch(rf"plink\.{name}/\d+", schema["properties"]["schema"]["const"])
        assert set(schema["required"]) <= set(schema["properties"]), name
        assert schema["additionalProperties"] is True, name  # keys are only ever added
        undescribed = [key for key, about in schema["properties"].items() if not about.get("description")]
        assert undescribed == [], name


def test_every_document_of_the_source_has_a_schema() -> None:
    """And no schema is of what the source does not know any more."""
    sources = [
        path for room in ("plink", "probes", "runners", "solvers") for path in (FOLDER.parents[1] / room).rglob("*.py")
    ]
    names = {name for path in sources for name in re.findall(r'"plink\.([a-z-]+/\d+)"', path.read_text())}
    consts = [read_document(path)["properties"]["schema"]["const"] for path in FOLDER.iterdir()]
    assert names == {const.removeprefix("plink.") for const in consts} | LOGS


def test_a_measured_network(measured: Network) -> None:
    document = measured.to_json()
    assert complaints("network", document) == []
    unknown = set(document) - set(read_document(FOLDER / "network.schema.json")["properties"])
    assert unknown == set(), "written by the probe and not described"


def test_an_order(measured: Network) -> None:
    from plink.model.order import RankOrder

    assert described("order", order_of(measured))
    assert complaints("order", RankOrder(algo="given", hosts=("a", "b")).to_json()) == []


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({}, {"validation", "kept_baseline", "bottleneck_lower_bound"}),
        ({"objective": "bottleneck", "force": True}, {"validation", "sum", "sum_lower_bound"}),
        ({"pins": {"b": 0}, "groups": 2}, {"validation", "pins", "groups"}),
        ({"algo": "2lha", "model": "contention"}, {"groups", "size_bytes", "capacities", "kept_baseline"}),
        ({"algo": "tree", "prove": True, "force": True}, {"questions"}),
        ({"algo": "bcube", "options": {"base": 6}}, {"options"}),
    ],
    ids=lambda value: " ".join(sorted(value)) or "no options",
)
def test_orders_of_every_kind(options: Document, written: set[str]) -> None:
    """All keys that ``reorder`` writes are described; ``kept_baseline`` is there where nothing differs but noise."""
    document = order_of(alike("abcdefghijk" if "prove" in options else "abcdef"), **options)
    assert described("order", document)
    assert written <= set(document)
    assert ("kept_baseline" in document) == ("kept_baseline" in written)
    if "kept_baseline" in document:
        assert (document["hosts"], document["proven"], document["gap"]) == (list("abcdef"), False, None)
        assert "bottleneck" not in document  # that would be the found order's
        assert document["kept_baseline"]["result"] != document["hosts"]
        assert document["kept_baseline"]["result_cost"] < document["cost"] == document["baseline"]["given"]


@pytest.mark.parametrize("which", ["good", "failed"])
def test_a_run(which: str, runs: dict[str, Document]) -> None:
    document = runs[which]
    assert complaints("run", document) == []
    schema = read_document(FOLDER / "run.schema.json")
    assert set(schema["required"]) <= set(document) <= set(schema["properties"])
    assert (document["failure"] is None) == (which == "good")


# Three hosts, two of them in one group whose way out was measured.
PRICED: Document = {
    "schema": "plink.network/1",
    "hosts": [{"name": name} for name in "abc"],
    "latency_us": [[0, 10, 90], [10, 0, 90], [90, 90, 0]],
    "shared_links": [
        {"groups": [{"members": ["a", "b"], "out_gbps": 1.5, "in_gbps": 1, "out_one_flow_gbps": 1}]},
        {"groups": [{"members": ["a", "b", "c"], "out_gbps": None, "out_limited_by": None, "in_limited_by": "groups"}]},
    ],
}
SCHEDULE: Document = schedule_for("tree", 3).to_json()
COUNT: Document = count(schedule_for("tree", 3), 9).to_json()

GROUPS: Document = {
    "schema": "plink.groups/1",
    "groups": [["a", "c"], ["b"]],
    "elasticity": 1.5,
    "tiers": [{"groups": [["a", "c"], ["b"]], "within_us": 10, "next_us": None, "ratio": 9, "confidence": 0.9}],
}
DEMO: Document = {
    "schema": "plink.demo/1",
    "hosts": ["node-01", "node-02"],
    "racks_recovered": True,
    "baseline_s": 2.41,
    "plink_s": 0.63,
    "bound_s": 0.6,
    "speedup": 3.825,
    "predicted_baseline_s": 2.4,
    "predicted_plink_s": 0.6,
    "baseline_samples_s": [2.4, 2.41, 2.5],
    "plink_samples_s": [0.62, 0.63, 0.64],
    "predicted_baseline_interval_s": [2.3, 2.7],
    "predicted_plink_interval_s": [0.57, 0.65],
    "group_count": 2,
    "cost_baseline_us": 1200.0,
    "cost_plink_us": 300.0,
    "size_bytes": 8_000_000,
    "seed": 1,
}


def test_schedules() -> None:
    """Of every algorithm in every collective that it has, with options."""
    groups = [[0, 2], [1, 3]]
    made = [
        schedule_for(
            name,
            4,
            Options(
                groups=groups, sharded=part not in ("reduce", "broadcast"), servers=2 if name == "phub-2l" else None
            ),
            part,
        )
        for name, entry in ALGORITHMS.items()
        for part in entry.collectives
    ]
    made.append(schedule_for("ps", 4, Options(colocated=False)))
    assert [schedule.algo for schedule in made if not described("schedule", schedule.to_json())] == []


def test_counts_and_verifications(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from plink.errors import PlinkError

    for name, transfers in (("right", slice(None)), ("wrong", slice(1, None))):
        document = schedule_for("flat", 4).to_json()
        document["transfers"] = [row | {"after": None} for row in document["transfers"][transfers]]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        for more in ([], ["--groups", "0,1/2,3"]):
            assert described("count", printed(capsys, "schedule", "count", str(path), *more))
    assert described("verification", printed(capsys, "schedule", "verify", str(tmp_path / "right.json")))
    with pytest.raises(PlinkError):
        printed(capsys, "schedule", "verify", str(tmp_path / "wrong.json"))
    verification = json.loads(capsys.readouterr().out)
    assert described("verification", verification)
    assert verification["errors"]
    assert complaints("verification", verification | {"valid": True}) == ["$.errors"]


def test_costs_and_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.json").write_text(json.dumps(PRICED))
    for more in ([], ["--random", "0"], ["--model", "latency"], ["--algo", "nccl", "--size", "4MB"]):
        assert described("cost", printed(capsys, "cost", str(tmp_path / "n.json"), *more))
    assert complaints("network", PRICED) == []
    assert described("advice", printed(capsys, "advise", str(tmp_path / "n.json"), "--algos", "ring,bcube,tree"))


def test_what_there_is_to_see(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """With an order and without, with groups and without, and where nearly nothing was measured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.txt").write_text("a\nc\nb\n")
    (tmp_path / "n.json").write_text(json.dumps(PRICED))
    rows = [[0, 10, None], [None, 0, None], [None, None, 0]]
    (tmp_path / "holes.json").write_text(json.dumps(PRICED | {"latency_us": rows}))
    declared = set(read_document(FOLDER / "show.schema.json")["properties"])
    for words in (["n.json"], ["n.json", "--order", "order.txt"], ["holes.json"]):
        document = printed(capsys, "report", "--terminal", *words)
        assert described("show", document)
        assert set(document) == declared
        assert (document["order"] is None) == ("--order" not in words)
    assert document["left_out"] == ["c"]
    assert complaints("show", document | {"bottleneck": ["a"]}) == ["$.bottleneck"]
    assert complaints("show", document | {"tiers": [{"name": "all pairs"}]}) == ["$.tiers[0]"] * 5


def differing(worse: bool) -> Network:
    """Eight hosts in two racks, before and after all went wrong that can."""
    rack = np.arange(8) // 4
    latency = np.where(rack[:, None] == rack[None, :], 40.0, 90.0) * ~np.eye(8, dtype=bool)
    loss, hops, rates = np.zeros((8, 8)), np.ones((8, 8)), np.full((8, 8), 10.0)
    if worse:
        latency[3] *= 3
        latency[:, 3] *= 3
        latency[0, 1] = latency[1, 0] = np.nan
        loss[4, 5] = loss[5, 4] = 0.1
        hops[6, 7] = 3
        rates[2] = 4.0
    names = "abcdefgh"
    shared = {"members": list(names[:4]), "out_gbps": 2.0 if worse else 4.0, "in_gbps": 4.0}
    details = {
        "loss_forward": loss.tolist(),
        "hops": [[int(value) for value in row] for row in hops],
        "samples": [[1000] * 8 for _ in range(8)],
        "shared_links": [{"groups": [shared]}],
    }
    return Network(Hosts(tuple(Host(name, name) for name in names)), latency, rates, details_from(details))


def test_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With everything that can be in it: a slow host, losses, rates and capacities that fell, hops, a lost pair."""
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    before, after = (differing(worse).to_json() for worse in (False, True))
    for path, document in ((old, before), (new, after)):
        Path(path).write_text(json.dumps(document))
    with pytest.raises(PlinkError, match="got worse"):
        printed(capsys, "diff", old, new)
    document = json.loads(capsys.readouterr().out)
    assert described("diff", document)
    assert set(document) == set(read_document(FOLDER / "diff.schema.json")["properties"])
    assert {row["what"] for row in document["findings"]} == {
        "latency",
        "loss",
        "rate",
        "capacity",
        "unmeasured",
        "hops",
    }
    assert {key for row in document["findings"] for key in row} == set(
        read_document(FOLDER / "diff.schema.json")["properties"]["findings"]["items"]["properties"]
    )
    assert complaints("diff", document | {"findings": [{**document["findings"][0], "verdict": "odd"}]}) == [
        "$.findings[0].verdict"
    ]
    assert described("diff", printed(capsys, "diff", old, old))


def test_embeddings_and_what_rests_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = str(tmp_path / "n.json")
    alike().write(network)
    (tmp_path / "truth").write_text("a b\nc d e f\n")
    assert described("embedding", printed(capsys, "embed", network, "--dimension", "2"))
    assert described("check", printed(capsys, "check", network, "--truth", str(tmp_path / "truth")))
    runs = [{"order": str(k), "predicted_us": k + 1, "achieved_s": [k + 0.5]} for k in range(4)]
    (tmp_path / "runs").write_text(json.dumps({"schema": "plink.check/1", "runs": runs}))
    assert described("check", json.loads((tmp_path / "runs").read_text()))
    assert described("check", printed(capsys, "check", "--results", str(tmp_path / "runs")))
    document = printed(capsys, "check", "--results", str(tmp_path / "runs"), "--max-regression", str(tmp_path / "runs"))
    assert described("check", document)
    assert set(document["checks"][0]["baseline"]) == {"then_s", "now_s", "ratio", "spearman"}
    assert "smoothing" in order_of(alike(), smooth_latencies=True)
    assert described("order", order_of(alike(), smooth_latencies=True))
    assert described("cost", printed(capsys, "cost", network, "--smooth-latencies"))
    assert described("advice", printed(capsys, "advise", network, "--smooth-latencies", "--algos", "ring,flat"))


def test_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With tiers and without; the least that a file says."""
    far = [[0 if i == j else 10 if i % 2 == j % 2 else 90 for j in range(6)] for i in range(6)]
    near = [[0 if i == j else 10 for j in range(2)] for i in range(2)]
    for rows in (far, near, [[0]]):
        document = {"schema": "plink.network/1", "hosts": [{"name": n} for n in "abcdef"[: len(rows)]]}
        (tmp_path / "n.json").write_text(json.dumps(document | {"latency_us": rows}))
        document = printed(capsys, "cluster", str(tmp_path / "n.json"))
        assert described("groups", document)
        assert set(document) == set(read_document(FOLDER / "groups.schema.json")["properties"])
    assert complaints("groups", {"schema": "plink.groups/1", "groups": [["a"], ["b", "c"]]}) == []


def test_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.json").write_text(json.dumps(PRICED))
    for more in (
        [],
        ["--groups", "2", "--chunks", "7"],
        ["--algo", "nccl-ring"],
        ["--algo", "bcube", "--set", "base=3"],
    ):
        plan = printed(capsys, "plan", str(tmp_path / "n.json"), *more)
        assert described("plan", plan)
        assert described("order", plan["order"])
        assert described("schedule", plan["schedule"])
        assert complaints("plan", plan | {"groups": [[]]}) == ["$.groups[0]"]


def without(key: str) -> Callable[[Document], None]:
    """Leaves a key away."""
    return lambda document: document.pop(key)


def setting(value: Any, *path: str | int) -> Callable[[Document], None]:
    """Puts a value where a path leads."""

    def change(document: Document) -> None:
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "where"),
    [
        ("network", without("latency_us"), "$"),
        ("network", setting("rm -rf", "hosts", 0, "name"), "$.hosts[0].name"),
        ("network", setting("spot", "hosts", 0, "tier"), "$.hosts[0].tier"),
        ("network", setting("12", "latency_us", 0, 1), "$.latency_us[0][1]"),
        ("network", setting(1.5, "loss_forward", 0, 1), "$.loss_forward[0][1]"),
        ("order", setting(["a", "a"], "hosts"), "$.hosts"),
        ("order", setting({"a": -1}, "pins"), "$.pins.a"),
        ("order", setting({"result": ["a"]}, "kept_baseline"), "$.kept_baseline"),
        ("run", without("proof"), "$"),
        ("run", setting("yes", "proof", "held"), "$.proof.held"),
        ("run", setting({"rank": 1}, "failure"), "$.failure"),
        ("demo", without("speedup"), "$"),
        ("demo", setting("yes", "racks_recovered"), "$.racks_recovered"),
        ("schedule", without("transfers"), "$"),
        ("schedule", setting("0", "transfers", 1, "from"), "$.transfers[1].from"),
        ("groups", without("groups"), "$"),
        ("groups", setting([["a"], []], "groups"), "$.groups[1]"),
        ("groups", setting(1.5, "tiers", 0, "confidence"), "$.tiers[0].confidence"),
        ("count", without("cross_group_bytes"), "$"),
        ("count", setting(-1, "sent_bytes", 2), "$.sent_bytes[2]"),
    ],
)
def test_what_is_broken_is_refused(
    name: str, change: Callable[[Document], None], where: str, measured: Network, runs: dict[str, Document]
) -> None:
    good: dict[str, Callable[[], Document]] = {
        "network": measured.to_json,
        "order": lambda: order_of(measured),
        "run": lambda: runs["failed"],
    }
    by_hand = {"demo": DEMO, "schedule": SCHEDULE, "count": COUNT, "groups": GROUPS}
    document = json.loads(json.dumps(by_hand[name] if name in by_hand else good[name]()))
    change(document)
    assert set(complaints(name, document)) == {where}

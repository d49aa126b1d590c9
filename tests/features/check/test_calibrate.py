"""``plink check --calibrate``: hosts' own costs into the network file, from recorded runs and from runs made now."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.errors import PlinkError
from plink.features.check import run as check
from plink.features.check.benchmark import PlannedBenchmark
from plink.features.order.algorithms import fabric_from
from plink.model.check import BenchmarkRun, OrderTiming
from plink.model.network import read_network
from plink.runtime import order_timing
from solvers.costs.by_name import cost_function_for
from solvers.costs.evaluator import with_host_costs
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import cost_by_model
from tests.cli.files import network, refusal, write
from tests.conftest import typed
from tests.runtime.ranks import results_of, run_ranks

OVERHEAD_US, BYTE_NS = 40.0, 2.0
SIZES = (1024, 16384, 262144, 4194304)
UPLINK = {"out_gbps": 50, "in_gbps": 50, "out_one_flow_gbps": 10, "in_one_flow_gbps": 10}
LINKS = [{"groups": [{"members": list(rack), **UPLINK} for rack in ("ac", "bd")]}]
HOSTS = [{"name": name, "address": f"10.0.0.{k}"} for k, name in enumerate("abcd", start=1)]


def made_us(path: Path, size: float, hosts: str = "abcd") -> float:
    """What a ring takes in an order of the hosts if they take the planted costs."""
    fabric = with_host_costs(fabric_from(read_network(path)), OVERHEAD_US, BYTE_NS)
    order = np.array(["abcd".index(name) for name in hosts])
    return cost_by_model("ring", 4, Options(), fabric, size, "contention")(order)


def runs_of(path: Path, sizes: tuple[int, ...], us: float | None = None) -> dict[str, Any]:
    """Recorded runs of two orders of each size. ``us``: all take that, the second a little longer."""
    checks = []
    for size in sizes:
        runs = []
        for k, hosts in enumerate(("acbd", "abcd")):
            seconds = (made_us(path, size, hosts) if us is None else us) / 1e6 * (1 + 1e-4 * k)
            runs.append({"order": hosts, "hosts": list(hosts), "predicted_us": 1.0 + k, "achieved_s": [seconds]})
        checks.append({"algo": "ring", "model": "contention", "size_bytes": size, "options": [], "runs": runs})
    return {"schema": "plink.check/1", "checks": checks}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "cloud.json", network(hosts=HOSTS, shared_links=LINKS, seed=7))
    write(tmp_path / "runs.json", runs_of(tmp_path / "cloud.json", SIZES))
    return tmp_path


def test_costs_are_written_and_used(here: Path) -> None:
    """Planted costs come back; what else is in the file stays; small messages are priced by them from then on."""
    words = ("cost", "cloud.json", "--size", "1KB", "--model", "contention", "--random", "0", "--json")
    before = json.loads(typed(*words, cwd=here).stdout)["cost_us"]
    done = typed("check", "cloud.json", "--results", "runs.json", "--calibrate", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "host costs -> cloud.json" in done.stderr
    entry = json.loads(done.stdout)["host_costs"]
    assert entry["overhead_us"] == pytest.approx(OVERHEAD_US, rel=0.01)
    assert entry["byte_ns"] == pytest.approx(BYTE_NS, rel=0.01)
    document = json.loads((here / "cloud.json").read_text())
    assert document["seed"] == 7
    assert {key: entry[key] for key in document["host_costs"]} == document["host_costs"]
    after = json.loads(typed(*words, cwd=here).stdout)["cost_us"]
    assert after == pytest.approx(before + 6 * OVERHEAD_US, rel=0.03)
    assert "hosts take 40 us a message" in typed("report", "cloud.json", "--terminal", cwd=here).stdout
    assert json.loads(typed("report", "cloud.json", "--json", cwd=here).stdout)["host_costs"]["byte_ns"] > 0


def test_earlier_costs_do_not_count_twice(here: Path) -> None:
    words = ("check", "cloud.json", "--results", "runs.json", "--calibrate")
    files = []
    for _ in range(2):
        assert typed(*words, cwd=here).returncode == 0
        files.append(json.loads((here / "cloud.json").read_text())["host_costs"] | {"measured_at": ""})
    assert files[0] == files[1]


def test_costs_of_nccl_are_its_own(here: Path) -> None:
    """A mix of timings: the hosts' costs are those of the ring, NCCL's ring has its own, and is priced by them."""
    words = ("cost", "cloud.json", "--size", "256KiB", "--model", "contention", "--random", "0", "--json", "--algo")
    before = json.loads(typed(*words, "nccl-ring", cwd=here).stdout)["cost_us"]
    checks = runs_of(here / "cloud.json", SIZES)["checks"]
    for size in (2**k for k in range(16, 27)):
        alone_us = cost_function_for(
            "nccl-ring", 4, Options(), fabric_from(read_network(here / "cloud.json")), size, "contention"
        )(np.arange(4))
        seconds = (alone_us + 900 + 0.004 * size) / 1e6
        runs = [
            {"order": hosts, "hosts": list(hosts), "predicted_us": 1.0 + k, "achieved_s": [seconds * (1 + 1e-4 * k)]}
            for k, hosts in enumerate(("acbd", "abcd"))
        ]
        checks.append({"algo": "nccl-ring", "model": "contention", "size_bytes": size, "options": [], "runs": runs})
    write(here / "both.json", {"schema": "plink.check/1", "checks": checks})
    assert "hold from 4 MB on" in typed(*words, "nccl-ring", cwd=here).stderr
    done = typed("check", "cloud.json", "--results", "both.json", "--calibrate", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "host costs and NCCL's costs -> cloud.json" in done.stderr
    document = json.loads(done.stdout)
    assert document["host_costs"]["algorithms"] == ["ring"]
    assert [entry["algo"] for entry in document["library_costs"]] == ["nccl-ring"]
    priced = typed(*words, "nccl-ring", cwd=here)
    assert json.loads(priced.stdout)["cost_us"] == pytest.approx(before + 900 + 0.004 * 2**18, rel=0.05)
    assert "hold from 4 MB on" not in priced.stderr
    # Another calibration, of hosts, leaves NCCL's.
    assert typed("check", "cloud.json", "--results", "runs.json", "--calibrate", cwd=here).returncode == 0
    assert [entry.algo for entry in read_network(here / "cloud.json").library_costs] == ["nccl-ring"]
    assert json.loads(typed(*words, "nccl-ring", cwd=here).stdout)["cost_us"] == json.loads(priced.stdout)["cost_us"]


@pytest.mark.parametrize(
    ("sizes", "us", "code", "message"),
    [
        (SIZES[:3], None, 4, "4 sizes or more"),
        (SIZES, 500.0, 4, "ring: times do not grow with the size"),
    ],
)
def test_runs_that_do_not_tell_leave_the_file(
    sizes: tuple[int, ...], us: float | None, code: int, message: str, here: Path
) -> None:
    write(here / "runs.json", runs_of(here / "cloud.json", sizes, us))
    before = (here / "cloud.json").read_bytes()
    assert message in refusal(typed("check", "cloud.json", "--results", "runs.json", "--calibrate", cwd=here), code)
    assert (here / "cloud.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cloud.json", "--truth", "truth", "--calibrate"], "--calibrate goes with --measure"),
        (["--results", "runs.json", "--calibrate"], "--calibrate goes with --measure"),
        (["cloud.json", "--measure", "--calibrate", "--size", "4KB"], "--size 4 kB: --calibrate times 4 sizes or more"),
        (["-", "--measure", "--calibrate"], "name a file"),
    ],
)
def test_requests_that_cannot_be_are_refused(words: list[str], message: str, here: Path) -> None:
    (here / "truth").write_text("a c\nb d\n")
    stdin = (here / "cloud.json").read_text()
    assert message in refusal(typed("check", *words, cwd=here, input=stdin))


WORDS = ("check", "cloud.json", "--measure", "--calibrate", "--orders", "4", "--repeats", "1", "-o", "check.json")
RING = (*WORDS, "--algo", "ring", "--size", str(SIZES[-1]))


def benchmark(planned: PlannedBenchmark, times: list[float]) -> BenchmarkRun:
    """The result of a benchmark of these times; orders alike differ a little."""
    timings = (
        OrderTiming(
            order=str(k), hosts=planned.hosts_of(order), predicted_us=1.0 + k, achieved_s=(seconds * (1 + 1e-6 * k),)
        )
        for k, (seconds, (order, _)) in enumerate(zip(times, planned.orders, strict=True))
    )
    size = max(planned.sizes_bytes)
    return BenchmarkRun(runs=tuple(timings), algo=planned.algo, size_bytes=size, model=planned.model)


def by_planted_costs(path: Path, planned: PlannedBenchmark) -> BenchmarkRun:
    """The result of a benchmark on hosts that take the planted costs."""
    hosts = ["".join(planned.hosts_of(order)) for order, _ in planned.orders]
    times = [made_us(path, size, names) / 1e6 for size, names in zip(planned.sizes_bytes, hosts, strict=True)]
    return benchmark(planned, times)


def test_sizes_are_timed_after_the_orders(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts stood in for: they take the planted costs."""
    monkeypatch.setattr(check, "time_orders", lambda planned, *_: by_planted_costs(here / "cloud.json", planned))
    assert typed(*RING, cwd=here).returncode == 0
    assert read_network(here / "cloud.json").host_costs is not None
    entry = json.loads((here / "check.json").read_text())["host_costs"]
    assert entry["timings"] == 7
    assert entry["overhead_us"] == pytest.approx(OVERHEAD_US, rel=0.01)


@pytest.fixture
def alike(here: Path) -> Path:
    """Four hosts in one rack: every order costs the same."""
    rtt = [[0 if a == b else 10 for b in range(4)] for a in range(4)]
    rack = [{"groups": [{"members": [name], **UPLINK, "limited_by": "groups"} for name in "abcd"]}]
    write(here / "cloud.json", network(hosts=HOSTS, latency_us=rtt, shared_links=rack))
    return here


def test_hosts_alike_are_calibrated(alike: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts stood in for. One order at several sizes is enough for costs; nothing is ranked, and that is said."""
    monkeypatch.setattr(check, "time_orders", lambda planned, *_: by_planted_costs(alike / "cloud.json", planned))
    done = typed(*RING, "--junit", "out.xml", cwd=alike)
    assert done.returncode == 0, done.stderr
    assert "ring: every order costs the same" in done.stderr
    document = json.loads((alike / "check.json").read_text())
    assert (document["ok"], "checks" in document) == (True, False)
    assert document["host_costs"]["overhead_us"] == pytest.approx(OVERHEAD_US, rel=0.01)


@pytest.mark.parametrize("ranked", [True, False])
def test_what_was_timed_is_fitted_again_without_hosts(
    ranked: bool, here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file that a calibration wrote, also where it ranked no orders."""
    if not ranked:
        request.getfixturevalue("alike")
    monkeypatch.setattr(check, "time_orders", lambda planned, *_: by_planted_costs(here / "cloud.json", planned))
    before = (here / "cloud.json").read_text()
    assert typed(*RING, cwd=here).returncode == 0
    fitted = json.loads((here / "check.json").read_text())["host_costs"]
    (here / "cloud.json").write_text(before)
    done = typed("check", "cloud.json", "--results", "check.json", "--calibrate", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)["host_costs"]
    assert again["overhead_us"] == pytest.approx(fitted["overhead_us"], rel=0.01)
    assert again["timings"] == fitted["timings"] + (4 if ranked else 0)


@pytest.mark.parametrize("limit", [("--min-spearman", "0.9"), ()])
def test_orders_that_have_to_be_ranked_are_refused_before_a_run(
    limit: tuple[str, ...], alike: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "time_orders", lambda *_: pytest.fail("something was run"))
    words = RING if limit else [word for word in RING if word != "--calibrate"]
    assert "ring: every order costs the same" in refusal(typed(*words, *limit, cwd=alike), 4)
    write(alike / "cloud.json", network(hosts=HOSTS, shared_links=LINKS))  # rings that leave the racks once or twice
    if limit:
        assert "ring: --min-spearman 0.9" in refusal(typed(*words, *limit, cwd=alike), 4)


def test_an_algorithm_that_cannot_be_ranked_leaves_the_others(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is among the failures."""
    ran = []

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        ran.append(planned.algo)
        return by_planted_costs(here / "cloud.json", planned)

    monkeypatch.setattr(check, "time_orders", time_orders)
    words = [word for word in RING if word != "--calibrate"]
    done = typed(*words, "--algo", "flat", "--junit", "out.xml", cwd=here)
    assert done.returncode == 4
    assert ran == ["ring"]
    (reason,) = json.loads((here / "check.json").read_text())["failures"]
    assert reason.startswith("flat: every order costs the same")
    assert 'errors="1"' in (here / "out.xml").read_text()


def test_nccl_s_own_choice_is_timed_with_its_ring_and_tree(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts stood in for: the tree has less to start and more a byte, and NCCL takes it up to 1 MB. Costs of nccl are
    then those of the one it takes, and orders are that one's."""
    extra_us = {"nccl-tree": (500, 0.02), "nccl-ring": (6000, 0.001)}
    ran = []

    def us(algo: str, size: float, order: Any) -> float:
        run = algo if algo != "nccl" else "nccl-tree" if size <= 1e6 else "nccl-ring"
        fixed, byte = extra_us[run]
        links = fabric_from(read_network(here / "cloud.json"))
        return cost_function_for(run, 4, Options(), links, size, "contention")(order) + fixed + byte * size

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        ran.append((planned.algo, planned.for_costs))
        rows = zip(planned.sizes_bytes, planned.orders, strict=True)
        return benchmark(planned, [us(planned.algo, size, order) / 1e6 for size, (order, _) in rows])

    monkeypatch.setattr(check, "time_orders", time_orders)
    done = typed(*WORDS, "--algo", "nccl", "--size", "64MiB", cwd=here)
    assert done.returncode == 0, done.stderr
    assert sorted(ran) == [("nccl", False), ("nccl", True), ("nccl-ring", True), ("nccl-tree", True)]
    entries = {entry.algo: entry for entry in read_network(here / "cloud.json").library_costs}
    assert 2**19 < entries["nccl"].tree_up_to_bytes < 2**20
    words = ("cost", "cloud.json", "--random", "0", "--model", "contention", "--json", "--size")
    for size, run in (("256KiB", "nccl-tree"), ("4MiB", "nccl-ring")):
        own, part = (
            json.loads(typed(*words, size, "--algo", algo, cwd=here).stdout)["cost_us"] for algo in ("nccl", run)
        )
        assert own == part
    assert "hold from" not in typed(*words, "256KiB", "--algo", "nccl", cwd=here).stderr


@pytest.mark.parametrize("what", ["fails", "changes the file"])
def test_hosts_that_fail_leave_the_file(what: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the file has become another network's meanwhile. What was run before stays."""

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        if planned.for_costs and what == "fails":
            raise PlinkError("ring: rank 2 on c failed")
        run = by_planted_costs(here / "cloud.json", planned)
        if planned.for_costs:
            write(here / "cloud.json", network_of_others)
        return run

    network_of_others = network(hosts=[{"name": name} for name in "wxyz"])
    monkeypatch.setattr(check, "time_orders", time_orders)
    before = (here / "cloud.json").read_text()
    done = typed(*RING, cwd=here)
    assert done.returncode == 1
    assert ("rank 2 on c failed" if what == "fails" else "has changed since") in done.stderr
    after = json.loads((here / "cloud.json").read_text())
    assert after == (json.loads(before) if what == "fails" else network_of_others)
    assert len(json.loads((here / "check.json").read_text())["checks"]) == 1


@pytest.mark.extended
def test_processes_over_loopback_are_calibrated(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four real ranks by Gloo take some time for messages and bytes."""

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        places = [order.tolist() for order, _ in planned.orders]
        config = {"kind": "gloo", "places": places, "sizes_bytes": planned.sizes_bytes, "warm_up": 1, "repeats": 3}
        ended = run_ranks(order_timing.main, 4, order_timing.pack_config(config))
        results_of(ended)
        rows = [json.loads(line)["seconds"] for line in ended[0].out.splitlines()]
        return benchmark(planned, np.median(rows, axis=0).tolist())

    monkeypatch.setattr(check, "time_orders", time_orders)
    done = typed(*WORDS, "--algo", "gloo", "--size", str(SIZES[-1]), cwd=here)
    assert done.returncode == 0, done.stderr
    costs = read_network(here / "cloud.json").host_costs
    assert costs is not None
    assert costs.overhead_us + costs.byte_ns > 0
    assert costs.timings == 7

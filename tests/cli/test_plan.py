"""``plink plan``: orders, groups, masters, what is left where, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.model.plan import Plan, plan_from_json, read_plan
from solvers.planning import schedule_of
from solvers.schedules.verifier import verify
from tests.cli.files import network, refuses, write
from tests.conftest import typed

# As `network` has them: a and c (two slots) are near, b and d are near.
RACKS = [["a", "c"], ["b", "d"]]
ORDER = {"schema": "plink.order/1", "algo": "ring", "hosts": ["d", "b", "c", "a"], "network": "sha256:12"}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a network in it."""
    write(tmp_path / "n.json", network())
    return tmp_path


def planned(here: Path, *words: str) -> Plan:
    """The plan that is printed."""
    done = typed("plan", "n.json", *words, "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    return plan_from_json(json.loads(done.stdout), "out")


def groups_of(plan: Plan) -> list[list[str]]:
    """The names of the hosts at each group's ranks."""
    host_of_rank = [host.name for host in plan.hosts for _ in range(host.slots)]
    return [sorted({host_of_rank[rank] for rank in group}) for group in plan.groups or ()]


def test_plan_is_written_here_and_reported(here: Path) -> None:
    done = typed("plan", "n.json", "--size", "1MB", "--model", "contention", cwd=here)
    assert done.returncode == 0
    assert "no order was given" in done.stderr
    assert done.stderr.endswith("plan -> .plink/plan.json\n")
    plan = read_plan(here / ".plink" / "plan.json")
    assert plan.order.hosts == ("a", "c", "b", "d")
    assert plan.groups == ((0, 1, 2), (3, 4))
    assert plan.masters is not None
    assert sorted(plan.masters.global_masters.tolist()) == [0, 1, 2, 3, 4]
    assert (plan.algo, plan.model, plan.size_bytes, plan.chunks) == ("2lha", "contention", 1e6, 5)
    assert plan.cost_us is not None
    assert plan.cost_us < plan.baseline["random_groups_median"]
    assert verify(schedule_of(plan)) == []
    for words in ("2lha, 5 ranks in 2 groups", "compared with: flat", "a c", "in proportion to sizes", "3 (3)"):
        assert words in done.stdout


def test_another_algorithm_that_is_cheaper_is_named(here: Path) -> None:
    """100 MB over hosts and uplinks of 1 Gbit/s."""
    capacity = {f"{way}_{what}": 1.0 for way in ("out", "in") for what in ("gbps", "one_flow_gbps")}
    groups = [{"members": members, "out_limited_by": "link", "in_limited_by": "link", **capacity} for members in RACKS]
    write(here / "links.json", network(shared_links=[{"groups": groups}]))
    done = typed("plan", "links.json", "--size", "100MB", "--model", "contention", cwd=here)
    assert "plink: hubs costs" in done.stderr
    done = typed("plan", "links.json", "--size", "100MB", "--model", "contention", "--algo", "ring", cwd=here)
    assert "`plink plan --algo hubs`" in done.stderr


def test_the_last_network_and_order_are_taken(here: Path) -> None:
    (here / ".plink").mkdir()
    (here / "n.json").rename(here / ".plink" / "network.json")
    write(here / ".plink" / "order.json", ORDER)
    done = typed("plan", "--algo", "ring", "-o", "p.json", cwd=here)
    assert done.returncode == 0
    assert "read .plink/network.json" in done.stderr
    assert "read .plink/order.json" in done.stderr
    assert "the order is one for ring, on another measurement of these hosts" in done.stderr
    assert read_plan(here / "p.json").order.hosts == ("d", "b", "c", "a")
    assert not (here / ".plink" / "plan.json").exists()
    write(here / ".plink" / "order.json", ORDER | {"hosts": ["a", "b"]})
    done = typed("plan", "--algo", "ring", cwd=here)
    assert ".plink/order.json is for other hosts and is ignored" in done.stderr
    assert read_plan(here / ".plink" / "plan.json").order.hosts == ("a", "b", "c", "d")


def test_groups_of_a_file_of_an_order_and_by_number(here: Path) -> None:
    write(here / "order.json", ORDER)
    (here / "groups.txt").write_text("a b\nc d\n")
    assert groups_of(planned(here)) == RACKS
    assert groups_of(planned(here, "--groups", "4")) == [["a"], ["b"], ["c"], ["d"]]
    plan = planned(here, "--groups", "groups.txt", "--order", "order.json")
    assert plan.order.hosts == tuple(ORDER["hosts"])
    assert (groups_of(plan), plan.groups) == ([["a", "b"], ["c", "d"]], ((1, 4), (0, 2, 3)))
    write(here / "order.json", ORDER | {"groups": [[0], [1, 2, 3, 4]]})
    assert groups_of(planned(here, "--order", "order.json")) == [["d"], ["a", "b", "c"]]
    assert groups_of(planned(here, "--order", "order.json", "--groups", "2")) == RACKS


def test_masters_by_bandwidth(here: Path) -> None:
    """The group of the faster hosts is global master of more, and of its two slots each has half."""
    rates = [[0, 2, 2, 2], [2, 0, 2, 6], [2, 2, 0, 2], [2, 6, 2, 0]]
    write(here / "n.json", network(bandwidth_gbps=rates))
    plan = planned(here, "--weights", "bandwidth")
    assert plan.masters is not None
    assert (plan.masters.weights, plan.chunks) == ("bandwidth", 40)
    assert plan.masters.rank_weights == pytest.approx((2, 1, 1, 10 / 3, 10 / 3), rel=1e-5)
    assert plan.baseline["masters_by_sizes"] > 0
    assert plan.masters.group_weights == (4, 4)  # to hosts outside all rates are 2
    assert np.bincount(plan.masters.local_masters[:, 0]).tolist() == [20, 10, 10]


@pytest.mark.parametrize(
    ("algo", "words", "environment"),
    [
        ("bcube", ("--set", "levels=1"), {}),
        ("nccl-tree", (), {"NCCL_ALGO": "Tree"}),
        (
            "openmpi-ring",
            (),
            {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": "4"},
        ),
    ],
)
def test_other_algorithms(algo: str, words: tuple[str, ...], environment: dict[str, str], here: Path) -> None:
    plan = planned(here, "--algo", algo, *words)
    assert (plan.groups, plan.masters, plan.environment) == (None, None, environment)
    assert plan.options == ({"levels": 1} if words else {})
    assert plan.schedule is not None
    assert plan.chunks == plan.schedule.chunks
    assert verify(plan.schedule) == []
    assert plan.cost_us == plan.baseline["given"]


def many(hosts: int, **changes: Any) -> dict[str, Any]:
    """Hosts in racks of 16."""
    rack = np.arange(hosts) // 16
    rows = np.where(rack[:, None] == rack[None, :], 40, 90) * ~np.eye(hosts, dtype=bool)
    return network(hosts=[{"name": f"h{k}"} for k in range(hosts)], latency_us=rows.tolist()) | changes


def test_a_schedule_that_is_too_large_is_left_out(here: Path) -> None:
    write(here / "n.json", many(256))
    done = typed("plan", "n.json", "--algo", "ring", "-o", "p.json", cwd=here)
    assert "the schedule is too large for the file" in done.stderr
    plan = read_plan(here / "p.json")
    assert (plan.schedule, plan.chunks) == (None, None)
    assert len(schedule_of(plan)) == 2 * 255 * 256
    assert (here / "p.json").stat().st_size < 100_000


@pytest.mark.extended
def test_the_file_of_many_ranks_is_not_large(here: Path) -> None:
    write(here / "n.json", many(128))
    assert typed("plan", "n.json", "--chunks", "1024", "-o", "p.json", cwd=here).returncode == 0
    assert (here / "p.json").stat().st_size < 2_000_000
    plan = read_plan(here / "p.json")
    assert plan.schedule is not None
    assert verify(plan.schedule) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algo", "best"), "--algo best: choose one of ring, "),
        (("--groups", "5"), "--groups 5: 1 to 4 groups can be made of 4 hosts"),
        (("--groups", ""), "--groups: a file, or how many groups to form"),
        (("--groups", "part.txt"), "part.txt: d is in no group; every host belongs to one"),
        (("--groups", "twice.txt"), "twice.txt: a is named more than once"),
        (("--chunks", "100001"), "--chunks 100001: it takes 1 to 100000"),
        (("--weights", "bandwidth"), "--weights bandwidth: the network holds no bandwidths"),
        (("--algo", "ring", "--chunks", "4"), "--chunks goes with --algo 2lha, not with ring"),
        (("--order", "other.json"), "other.json: the order names hosts that are not in the hosts list: z"),
        (("--order", "grouped.json"), "grouped.json: groups: every rank from 0 to 4 belongs to exactly one group"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], message: str, here: Path) -> None:
    (here / "part.txt").write_text("a b\nc\n")
    (here / "twice.txt").write_text("a b\nc d a\n")
    write(here / "other.json", ORDER | {"hosts": ["a", "b", "z"]})
    write(here / "grouped.json", ORDER | {"groups": [[0, 1], [2, 3]]})
    refuses(here, ["plan", "n.json", *words], message)


@pytest.fixture
def one_slow(tmp_path: Path) -> Path:
    """Eight hosts in two racks, one at a quarter: rates of all pairs, and of the racks' links."""
    rates, rack = np.where(np.arange(8) == 5, 2.5, 10.0), np.arange(8) // 4
    pairs = np.minimum(rates[:, None], rates[None, :]) * ~np.eye(8, dtype=bool)
    links = [
        {"members": [f"h{k}" for k in range(8) if rack[k] == r], "out_gbps": 20.0, "in_gbps": 20.0} for r in (0, 1)
    ]
    document = network(
        hosts=[{"name": f"h{k}"} for k in range(8)],
        latency_us=(np.where(rack[:, None] == rack, 20.0, 60.0) * ~np.eye(8, dtype=bool)).tolist(),
        bandwidth_gbps=pairs.tolist(),
        shared_links=[{"groups": links}],
    )
    write(tmp_path / "n.json", document)
    return tmp_path


def test_hubs_leave_a_slow_host_its_own_bytes(one_slow: Path) -> None:
    """The plan holds the schedule; the slow host's link carries the vector once each way, which is the bound."""
    plan = planned(one_slow, "--algo", "hubs", "--size", "100MB")
    schedule = schedule_of(plan)
    assert verify(schedule) == []
    slow = [host.name for host in plan.hosts].index("h5")
    for ends in (schedule.source, schedule.target):
        assert schedule.count[ends == slow].sum() == schedule.chunks
    assert plan.least_time_us == pytest.approx(100e6 * 8 / 2.5e9 * 1e6)
    assert "h5 at 2.5 Gbit/s" in (plan.limited_by or "")
    assert {"ring", "flat"} <= plan.baseline.keys()
    price = json.loads(typed("cost", "n.json", "--size", "100MB", "--json", cwd=one_slow).stdout)
    advice = json.loads(typed("advise", "n.json", "--size", "1MB..100MB", "--json", cwd=one_slow).stdout)
    assert advice["sizes"][-1]["size_bytes"] == 100e6
    for stated in (price, advice["sizes"][-1]):
        assert stated["least_time_us"] == pytest.approx(plan.least_time_us)
    assert price["limited_by"] == advice["limited_by"] == plan.limited_by


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "n.json", "--algo", "hubs", "--weights", "least-time"), "--weights goes with --algo 2lha"),
        (("reorder", "n.json", "--algo", "hubs"), "plink plan --algo hubs"),
        (("plan", "bare.json", "--algo", "hubs"), "plink probe HOSTS"),
        (("plan", "n.json", "--algo", "hubs", "--set", "tree=1"), "--set tree: choose one of"),
    ],
)
def test_hubs_need_rates_and_no_order(words: tuple[str, ...], message: str, one_slow: Path) -> None:
    write(one_slow / "bare.json", network())
    done = typed(*words, cwd=one_slow)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("error:") == 1


def test_an_orders_groups_come_before_those_of_cluster(here: Path) -> None:
    """As for `plink launch --backend 2lha`, which goes by the same rule."""
    grouped = ORDER | {"algo": "2lha", "groups": [[0, 1, 2], [3, 4]]}
    write(here / "order.json", ORDER)
    write(here / "grouped.json", grouped)
    fingerprint = json.loads(typed("cost", "n.json", "--json", cwd=here).stdout)["network"]
    clustered = [["a", "b"], ["c", "d"]]
    (here / ".plink").mkdir()
    write(here / ".plink" / "groups.json", {"schema": "plink.groups/1", "groups": clustered, "network": fingerprint})
    assert groups_of(planned(here, "--order", "grouped.json")) == [["b", "c", "d"], ["a", "c"]]
    assert sorted(groups_of(planned(here, "--order", "order.json"))) == clustered

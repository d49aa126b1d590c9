"""Plans: read back as they were written, and refused with the key that is wrong."""

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plink.errors import InputError, UsageError
from plink.model.hosts import Host, Hosts
from plink.model.order import RankOrder
from plink.model.plan import Plan, PlannedMasters, plan_from_json, read_plan
from plink.model.schedule import forward_and_reverse
from plink.model.storage import render_document
from solvers.planning import schedule_of
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import equal_chunks
from solvers.schedules.verifier import verify

Document = dict[str, Any]


def two_level(groups: list[list[int]], chunks: int, with_schedule: bool = True) -> Plan:
    """A plan of hosts with one rank, and one with the rest where there are more than three."""
    ranks = sum(len(group) for group in groups)
    slots = [1] * ranks if ranks < 4 else [1, ranks - 2, 1]
    hosts = Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}", number) for k, number in enumerate(slots)))
    local, global_group = equal_chunks(groups, chunks)
    masters = PlannedMasters(
        group_weights=(1.5,) * len(groups), rank_weights=(1.0,) * ranks,
        local_ranks=local.tolist(), global_ranks=local[np.arange(chunks), global_group].tolist(),
    )  # fmt: skip
    schedule = forward_and_reverse(two_level_reduce_scatter(groups, local, global_group)) if with_schedule else None
    order = RankOrder(algo="given", hosts=tuple(hosts.names))
    return Plan(
        algo="2lha", model="latency", size_bytes=1e8, order=order, host_entries=hosts.entries(), chunks=chunks,
        cost_us=12.5, baseline_us={"flat": 20.25}, groups=tuple(tuple(group) for group in groups), masters=masters,
        schedule_file=None if schedule is None else schedule.file(with_waits=False),
        environment={"PLINK_X": "a b"}, network="sha256:12ab",
    )  # fmt: skip


PLAN = two_level([[0, 1], [2, 3, 4]], 6)


def again(plan: Plan) -> Plan:
    """Through the text that is written."""
    return plan_from_json(json.loads(render_document(plan.to_json())), "p.json")


@st.composite
def random_groups(draw: Any) -> list[list[int]]:
    """Ranks in groups."""
    ranks = draw(st.integers(2, 9))
    label = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
    return [[rank for rank in range(ranks) if label[rank] == k] for k in sorted(set(label))]


@settings(max_examples=25)
@given(random_groups(), st.integers(1, 30), st.booleans())
def test_what_was_written_is_read(groups: list[list[int]], chunks: int, with_schedule: bool) -> None:
    plan = two_level(groups, chunks, with_schedule)
    read = again(plan)
    assert render_document(read.to_json()) == render_document(plan.to_json())
    assert (read.ranks, read.groups, read.hosts, read.order) == (plan.ranks, plan.groups, plan.hosts, plan.order)
    assert (read.schedule is None) == (not with_schedule)


@settings(max_examples=25)
@given(random_groups(), st.integers(1, 30))
def test_the_schedule_follows_from_the_masters_and_is_proven(groups: list[list[int]], chunks: int) -> None:
    """The one in the file, and the one that is made when there is none, are the same."""
    plan = again(two_level(groups, chunks))
    assert plan.schedule is not None
    assert verify(plan.schedule) == []
    made = schedule_of(replace(plan, schedule_file=None))
    assert made.to_json()["transfers"] == schedule_of(plan).to_json()["transfers"]


@pytest.mark.parametrize("algo", ["ring", "ring-chunked", "tree", "bcube"])
def test_without_masters_the_schedule_is_the_algorithm_s(algo: str) -> None:
    options = {"segments": 2} if algo == "ring-chunked" else {}
    hosts = Hosts((Host("a", "a", 3), Host("b", "b")))
    order = RankOrder(algo="given", hosts=("a", "b"))
    plan = Plan(
        algo=algo, model="latency", size_bytes=100, order=order, host_entries=hosts.entries(), options=dict(options)
    )
    made = schedule_of(again(plan))
    assert verify(made) == []
    assert made.to_json() == schedule_for(algo, 4, Options(**options)).to_json()
    held = again(replace(plan, schedule_file=made.file(), chunks=made.chunks))
    assert schedule_of(held).to_json()["transfers"] == made.to_json()["transfers"]
    with pytest.raises(UsageError, match="there is no colour"):
        schedule_of(replace(plan, options={"colour": 1}))


def test_transfers_say_what_they_wait_for_only_where_rounds_do_not() -> None:
    document = PLAN.to_json()
    assert "after" not in document["schedule"]["transfers"][0]
    assert PLAN.schedule is not None
    offsets = np.arange(len(PLAN.schedule) + 1, dtype=np.int64) * 0
    schedule = dataclasses.replace(PLAN.schedule, after=(offsets, np.zeros(0, dtype=np.int32)))
    explicit = replace(PLAN, schedule_file=schedule.file(with_waits=False))
    assert explicit.to_json()["schedule"]["transfers"][0]["after"] == []


def test_files_plain_and_compressed(tmp_path: Path) -> None:
    for name in ("p.json", "p.json.gz"):
        PLAN.write(tmp_path / name)
        assert read_plan(tmp_path / name).to_json() == PLAN.to_json()
    assert json.loads(gzip.decompress((tmp_path / "p.json.gz").read_bytes()))["schema"] == "plink.plan/1"
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        read_plan(tmp_path / "none.json")


def test_the_least_that_a_plan_says() -> None:
    least = {
        "schema": "plink.plan/1", "algo": "ring", "model": "latency", "size_bytes": 1,
        "order": {"schema": "plink.order/1", "hosts": ["a", "b"]}, "hosts": [{"name": "a"}, {"name": "b"}],
    }  # fmt: skip
    plan = plan_from_json(least, "p.json")
    assert (plan.ranks, plan.groups, plan.chunks, plan.environment, plan.cost_us) == (2, None, None, {}, None)
    assert verify(schedule_of(plan)) == []


def setting(value: Any, *path: str | int) -> Callable[[Document], None]:
    """Puts a value where a path leads."""

    def change(document: Document) -> None:
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (setting("plink.plan/2", "schema"), "schema"),
        (setting(None, "algo"), "algo"),
        (setting(0, "size_bytes"), "size_bytes"),
        (setting("fast", "rate_gbps"), "rate_gbps"),
        (setting("x", "baseline", "flat"), "baseline.flat"),
        (setting("h9", "hosts", 0, "name"), "hosts"),
        (setting(2, "hosts", 0, "slots"), "groups"),
        (setting([[0, 1], [2, 3, 3]], "groups"), "groups"),
        (setting(None, "masters"), "masters"),
        (setting(0, "chunks"), "chunks"),
        (setting(7, "chunks"), "masters.local"),
        (setting(None, "masters", "global"), "masters.global"),
        (setting([0], "masters", "local", 2), "masters.local[2]"),
        (setting(0, "masters", "local", 2, 1), "masters.local[2][1]"),
        (setting(9, "masters", "global", 5), "masters.global[5]"),
        (setting(1, "masters", "weights"), "masters.weights"),
        (setting(-1, "masters", "rank_weights", 3), "masters.rank_weights[3]"),
        (setting("two", "options", "base"), "options.base"),
        (setting(1, "environment", "PLINK_X"), "environment.PLINK_X"),
        (setting("1", "environment", "A B"), "environment"),
        (setting("plink.plan/1", "schedule", "schema"), "schedule.schema"),
        (setting(6, "schedule", "ranks"), "schedule: ranks"),
        (setting(99, "schedule", "transfers", 1, "from"), "schedule: transfers[1].from"),
        (setting("a-lab-with-too-long-a-name", "lab"), "lab"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[Document], None], where: str) -> None:
    document = json.loads(render_document(PLAN.to_json()))
    change(document)
    with pytest.raises(InputError) as caught:
        plan_from_json(document, "p.json")
    assert caught.value.location == f"p.json: {where}"


def test_a_plan_is_of_an_all_reduce() -> None:
    document = PLAN.to_json() | {"schedule": schedule_for("ring", 5, collective="reduce-scatter").to_json()}
    document["chunks"] = 5
    document |= {"groups": None, "masters": None}
    with pytest.raises(InputError, match="schedule: collective"):
        plan_from_json(document, "p.json")

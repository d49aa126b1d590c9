"""By which schedule what is reduced: documents, and how ranks hand them to each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from jsonschema import Draft202012Validator
from msgspec import structs

from benchmarks.aggregation_file import aggregation_to_json
from plink.errors import InputError, UsageError
from plink.model.plan import plan_from_json
from plink.model.schedule import forward_and_reverse, make_schedule
from plink.model.segmentation import SegmentationConfig
from plink.model.storage import read_document
from plink.runtime.allreduce.aggregation import (
    FILE,
    TEXT,
    Aggregation,
    SizeClass,
    aggregation_for_plan,
    aggregation_from_json,
    broadcast_aggregation,
    from_bytes,
    read_aggregation,
)
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Weights, equal_chunks
from solvers.spanning.tier_tree import tree_of
from tests.runtime.allreduce.thread_ranks import everywhere

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "aggregation.schema.json"


@pytest.fixture
def two_sizes() -> Aggregation:
    """Gloo for what is small, a ring for the rest."""
    ring = schedule_for("ring", 4)
    return Aggregation(
        (SizeClass(1000, "gloo", None), SizeClass(None, "ring", ring)),
        3,
        SegmentationConfig(1, 2, 3, 4),
        17,
        ring=(0, 2, 1, 3),
    )


def same(first: Aggregation, other: Aggregation) -> bool:
    """Schedules hold arrays."""
    parts = ("round", "source", "target", "first", "count", "copies")
    keys = ("channels", "segmentation", "smallest_bytes", "ring")
    return all(getattr(first, key) == getattr(other, key) for key in keys) and all(
        (a.up_to_bytes, a.algo) == (b.up_to_bytes, b.algo)
        and (a.schedule is None) == (b.schedule is None)
        and (
            a.schedule is None
            or b.schedule is None
            or all(np.array_equal(getattr(a.schedule, part), getattr(b.schedule, part)) for part in parts)
        )
        for a, b in zip(first.classes, other.classes, strict=True)
    )


def test_a_document_comes_back_as_it_was(two_sizes: Aggregation, tmp_path: Path) -> None:
    """As a file, and as bytes between ranks; and the published schema describes it."""
    document = json.loads(json.dumps(aggregation_to_json(two_sizes)))
    assert list(Draft202012Validator(read_document(SCHEMA)).iter_errors(document)) == []
    assert same(aggregation_from_json(document, "f"), two_sizes)
    assert same(from_bytes(two_sizes.to_bytes()), two_sizes)
    assert [two_sizes.choose(size).algo for size in (1, 1000, 1001, 1 << 40)] == ["gloo", "gloo", "ring", "ring"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "plink.order/1"}, "f: schema: expected 'plink.plan/1' or 'plink.aggregation/2', got"),
        ({"classes": []}, "f: classes: expected a list of 1 or more"),
        ({"classes": [{"up_to_bytes": None, "algo": "ring"}]}, "f: classes[0]: schedule: missing"),
        ({"classes": [{"up_to_bytes": 5, "algo": "gloo"}]}, "f: classes: expected increasing limits"),
        ({"classes": [{"up_to_bytes": 0, "algo": "gloo"}]}, "f: classes[0].up_to_bytes: expected a whole number >= 1"),
        ({"channels": None}, "f: channels: expected a whole number"),
        ({"channels": 99}, "f: channels: expected a whole number <= 16"),
        ({"segments": "3"}, "f: segments: expected a whole number"),
        ({"smallest_bytes": -1}, "f: smallest_bytes: expected a whole number >= 0"),
        ({"ring": 3}, "f: ring: expected a list"),
        ({"ring": [0, 1, True, 3]}, "f: ring[2]: expected a whole number, got true"),
        ({"ring": [0, 1, 2]}, "f: ring: expected every rank from 0 to 3"),
        ({"ring": [0, 1, 2, 2]}, "f: ring: expected every rank from 0 to 3"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str, two_sizes: Aggregation) -> None:
    """The key, and what was expected."""
    with pytest.raises(InputError, match=r".") as caught:
        aggregation_from_json(aggregation_to_json(two_sizes) | change, "f")
    assert str(caught.value).startswith(message)


def test_schedules_of_different_ranks_do_not_go_together(two_sizes: Aggregation) -> None:
    """Which of them would the group be?"""
    document = aggregation_to_json(two_sizes)
    document["classes"][0] = {"up_to_bytes": 9, "algo": "flat", "schedule": schedule_for("flat", 3).to_json()}
    with pytest.raises(InputError, match="schedules for 3 and 4 ranks"):
        aggregation_from_json(document, "f")


@pytest.mark.parametrize("broken", ["left out", "twice"])
def test_a_schedule_that_does_not_add_up_is_refused(broken: str) -> None:
    """One transfer less, or one twice."""
    document = aggregation_to_json(Aggregation((SizeClass(None, "flat", schedule_for("flat", 3)),)))
    transfers = document["classes"][0]["schedule"]["transfers"]
    for transfer in transfers:
        del transfer["after"]
    if broken == "twice":
        transfers.append(transfers[0] | {"id": 99})
    else:
        transfers.pop(0)
    with pytest.raises(InputError, match=r"schedule: rank \d does not end with the sum of chunk 1"):
        aggregation_from_json(document, "f")


def test_a_plan_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `plink plan` wrote, by rank 0, for all; and what is wrong with it reaches all."""
    schedule = schedule_for("2lha", 4, Options(groups=[[0, 1], [2, 3]]))
    host = [{"name": name, "address": name} for name in "abcd"]
    plan = {
        "schema": "plink.plan/1", "algo": "2lha", "model": "latency", "size_bytes": 1e6, "hosts": host, "chunks": 4,
        "order": {"schema": "plink.order/1", "algo": "2lha", "hosts": list("abcd")}, "schedule": schedule.to_json(),
    }  # fmt: skip
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert read_aggregation(path).ranks == 4
    by_rate = {}
    for rate in (None, 0.2, 1.0, 25.0):
        (tmp_path / "by_rate.json").write_text(json.dumps(plan | {"rate_gbps": rate}))
        first = read_aggregation(tmp_path / "by_rate.json")
        by_rate[rate] = first.channels, first.segmentation.segment_bytes >> 10
    assert by_rate == {None: (2, 1024), 0.2: (1, 640), 1.0: (2, 1408), 25.0: (2, 4096)}
    read = plan_from_json(plan, "f")
    rings = {
        groups: aggregation_for_plan(first.classes, structs.replace(read, groups=groups)).ring
        for groups in (((0, 2), (1, 3)), ((0, 1), (2, 3)), ((0, 1, 2, 3),), ((0, 2, 1, 3),), None)
    }
    assert [groups for groups, ring in rings.items() if ring] == [((0, 2), (1, 3))]
    assert rings[(0, 2), (1, 3)] == (0, 2, 1, 3)
    monkeypatch.setenv(FILE, str(path))
    first = dist.HashStore()
    aggregations = everywhere(4, lambda rank: broadcast_aggregation(first, rank))
    assert all(first.classes[0].algo == "2lha" and first.ranks == 4 for first in aggregations)
    path.write_text(json.dumps(plan | {"schedule": None}))

    def complaint(rank: int, store: dist.Store) -> str:
        with pytest.raises(InputError, match="too large") as caught:
            broadcast_aggregation(store, rank)
        return str(caught.value)

    store = dist.HashStore()
    assert len(set(everywhere(4, lambda rank: complaint(rank, store)))) == 1


def test_schedules_of_many_ranks_travel_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 256 ranks in racks whose hosts differ; larger ones in several, and with none that another job left behind."""
    for variable in (FILE, TEXT, f"{TEXT}_1", f"{TEXT}_2"):
        monkeypatch.setenv(variable, "")
    rng = np.random.default_rng(0)
    ranks, groups = np.arange(256), [each.tolist() for each in np.array_split(rng.permutation(256), 16)]
    rack = np.argsort(np.concatenate(groups)) // 16
    rates, unlimited = rng.uniform(5, 15, 256), np.full(256, np.inf)
    names = [[""] * 256] * 3
    links = [(unlimited, unlimited), (rates, rates), (rates[:16], rates[:16])]
    masters = equal_chunks(groups, 2048, Weights(rng.uniform(1, 3, 16), rng.uniform(1, 3, 256)))
    schedules = {
        "ring": schedule_for("ring", 256),
        "2lha": forward_and_reverse(two_level_reduce_scatter(groups, *masters)),
        "hubs": schedule_for("hubs", 256, Options(tree=tree_of([ranks, ranks, rack], links, names))),
    }
    for algo, schedule in schedules.items():
        aggregation = Aggregation((SizeClass(None, algo, schedule),))
        variables = aggregation.to_environment()
        assert sum(map(len, variables.values())) < 120_000
        monkeypatch.setenv(f"{TEXT}_1", "AAAA")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        arrived = broadcast_aggregation(dist.HashStore(), 0)
        assert arrived is not None
        assert same(arrived, aggregation)
        assert arrived.fingerprint() == aggregation.fingerprint()

    def disorder(chunks: int) -> Aggregation:
        source = rng.integers(256, size=chunks)
        rows = [0 * source, source, (source + rng.integers(1, 256, size=chunks)) % 256, range(chunks), source * 0 + 1]
        return Aggregation((SizeClass(None, "any", make_schedule("any", 256, chunks, np.stack([*rows, rows[0]], 1))),))

    large = disorder(50_000)
    variables = large.to_environment()
    assert len(variables) > 3
    assert max(map(len, variables.values())) < 1 << 17
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    arrived = broadcast_aggregation(dist.HashStore(), 0)
    assert arrived is not None
    assert same(arrived, large)
    with pytest.raises(UsageError, match="256 ranks"):
        disorder(500_000).to_environment()


def test_what_comes_with_the_job(two_sizes: Aggregation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of rank 0's, checked like a file."""
    monkeypatch.delenv(FILE, raising=False)
    for name, value in two_sizes.to_environment().items():
        monkeypatch.setenv(name, value)
    aggregations = broadcast_aggregation(dist.HashStore(), 0)
    assert aggregations is not None
    assert same(aggregations, two_sizes)
    for wrong in ("#", "AAAA", two_sizes.to_environment()[TEXT][:400]):
        monkeypatch.setenv(TEXT, wrong)
        with pytest.raises(InputError, match="not written by plink"):
            broadcast_aggregation(dist.HashStore(), 0)
    monkeypatch.delenv(TEXT)
    assert broadcast_aggregation(dist.HashStore(), 0) is None

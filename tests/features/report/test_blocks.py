"""Many hosts: rows that are blocks of hosts, what lies between them, and a page that stays small."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from plink.features.report.blocks import MAX_SEPARATE_HOSTS, Blocks, between, blocks_of
from plink.features.report.figures import figures
from plink.features.report.page import page
from plink.pictures import PAGE
from tests.features.report.subjects import facts

SEED = 3


@pytest.mark.parametrize(("hosts", "groups"), [(601, 7), (4096, 63), (4096, 2000)])
def test_blocks_are_of_neighbours_and_of_one_group_where_that_can_be(hosts: int, groups: int) -> None:
    labels = np.sort(np.random.default_rng(SEED).integers(0, groups, hosts))
    order = np.random.default_rng(SEED + 1).permutation(hosts)
    of = np.empty(hosts, dtype=np.intp)
    of[order] = labels
    blocks = blocks_of(order, of)
    sizes = [len(members) for members in blocks.members]
    assert np.array_equal(np.concatenate(blocks.members), order)
    assert 60 <= len(sizes) <= 320
    assert min(sizes) >= 1
    assert max(sizes) <= 4 * -(-hosts // 256)  # what is between blocks takes as much memory as the largest
    if groups <= 256:
        assert all(len(set(of[members].tolist())) == 1 for members in blocks.members)
    assert all((blocks.of[members] == k).all() for k, members in enumerate(blocks.members))


def test_what_is_between_blocks_is_what_numpy_says() -> None:
    rng = np.random.default_rng(SEED)
    values = rng.uniform(1, 9, (11, 11))
    values[rng.random((11, 11)) < 0.3] = np.nan
    values[2:4, 7:] = np.nan
    np.fill_diagonal(values, 0.0)
    blocks = Blocks(rng.permutation(11), np.array([0, 1, 3, 7]))
    statistics_ = between(values, blocks)
    off = np.where(np.eye(11, dtype=bool), np.nan, values)
    for i, rows in enumerate(blocks.members):
        for j, columns in enumerate(blocks.members):
            part = off[np.ix_(rows, columns)]
            finite = part[np.isfinite(part)]
            assert statistics_.pairs[i, j] == len(finite)
            wanted = [np.median(finite), finite.min(), finite.max()] if len(finite) else [np.nan] * 3
            here = [statistics_.median[i, j], statistics_.low[i, j], statistics_.high[i, j]]
            assert here == pytest.approx(wanted, nan_ok=True)


def test_a_page_of_many_hosts_is_by_block_and_small() -> None:
    few, many = facts(MAX_SEPARATE_HOSTS, 20), facts(MAX_SEPARATE_HOSTS + 1, 20)
    assert few.blocks == {}
    text = page(many)
    assert "601 hosts are too many for a row each" in text
    assert len(text) < 5e6
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    document = json.loads(data[1])
    rows, trips = many.blocks["order"]
    assert "measured" not in document
    assert [size for size, _, _ in document["blocks"]["order"]["hosts"]] == [len(hosts) for hosts in rows.members]
    packed = base64.b64decode(document["blocks"]["order"]["median"])
    assert np.array_equal(np.frombuffer(packed, "<f4"), trips.median.astype("<f4").ravel())
    assert len(document["nearest"]) == MAX_SEPARATE_HOSTS + 1


def test_pairs_inside_a_block_are_drawn() -> None:
    """The diagonal is blank only where a row is one host."""
    many = facts(MAX_SEPARATE_HOSTS + 1, 20)
    assert np.isfinite(np.diagonal(many.blocks["order"][1].median)).any()
    terminal_lines = figures(many, PAGE)
    assert set(terminal_lines) == {"given", "order", "map", "departures", "histogram"}
    assert "medians of blocks of hosts" in terminal_lines["order"].alt
    there = many.map
    assert there is not None
    shared = replace(many, map=replace(there, by_block=True))
    assert "hosts of a block share a place" in figures(shared, PAGE)["map"].alt

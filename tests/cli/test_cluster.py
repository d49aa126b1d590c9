"""``plink cluster`` on eight hosts in two racks: groups, tiers, files; every refusal in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import listing, network, refuses, write
from tests.conftest import typed
from tests.model.schemas import keys

# node1, node3, node5, node7 are 20 us from each other, so are the others; 80 us between the two.
ROWS: list[list[float | None]] = [
    [0 if i == j else 20 if i % 2 == j % 2 else 80 for j in range(8)] for i in range(8)
]  # fmt: skip
HOSTS: list[dict[str, Any]] = [{"name": f"node{i}", "address": f"10.0.0.{i}"} for i in range(1, 9)]
RACKS = [["node1", "node3", "node5", "node7"], ["node2", "node4", "node6", "node8"]]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with networks in it: two racks, one host nobody heard of, two parts, one host, bad halves."""
    deaf: list[list[float | None]] = [[None if 2 in (i, j) and i != j else row[j] for j in range(8)]
                                      for i, row in enumerate(ROWS)]  # fmt: skip
    parts = [[None if (i < 4) != (j < 4) else row[j] for j in range(8)] for i, row in enumerate(ROWS)]
    write(tmp_path / "n.json", network(hosts=HOSTS, latency_us=ROWS, halves_us=[ROWS, ROWS]))
    write(tmp_path / "deaf.json", network(hosts=HOSTS, latency_us=deaf))
    write(tmp_path / "parts.json", network(hosts=HOSTS, latency_us=parts))
    write(tmp_path / "one.json", network(hosts=HOSTS[:1], latency_us=[[0]]))
    write(tmp_path / "two.json", network(hosts=HOSTS[:2], latency_us=[[0, 7], [9, 0]]))
    write(tmp_path / "silent.json", network(hosts=HOSTS[:2], latency_us=[[0, None], [None, 0]]))
    write(tmp_path / "halves.json", network(hosts=HOSTS, latency_us=ROWS, halves_us=[ROWS]))
    return tmp_path


def test_groups_as_people_see_them(here: Path) -> None:
    done = typed("cluster", "n.json", "--groups", "2", cwd=here)
    assert (done.returncode, done.stderr) == (0, "plink: groups -> .plink/groups.json\n")
    assert "node[1,3,5,7]" in done.stdout
    assert "node[2,4,6,8]" in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "mean round trip within groups 20 us, across 80 us; within balanced random groups "
        + done.stdout.splitlines()[-3].rpartition("groups ")[2],
        "10 searches agree by 1.00 (adjusted mutual information)",
        "tier: 2 groups of 4 hosts, 20 us within, 80 us to the next; confidence 1.00",
    ]
    assert json.loads((here / ".plink" / "groups.json").read_text())["groups"] == RACKS


def test_predicted_pairs_are_counted(here: Path) -> None:
    rows = [[None if {i, j} == {0, 1} else row[j] for j in range(8)] for i, row in enumerate(ROWS)]
    write(here / "some.json", network(hosts=HOSTS, latency_us=rows))
    assert "; 1 of 28 pairs predicted\n" in typed("cluster", "some.json", "--groups", "2", cwd=here).stdout
    document = json.loads((here / ".plink" / "groups.json").read_text())
    assert (document["predicted_pairs"], document["within"][0]) == (1, {"mean_us": 20.0, "longest_us": 20.0})


def test_the_last_network_and_a_file_of_its_own(here: Path) -> None:
    (here / ".plink").mkdir()
    (here / "two.json").rename(here / ".plink" / "network.json")
    done = typed("cluster", "-o", "groups.json.gz", cwd=here)
    assert done.stderr.startswith("plink: read .plink/network.json (")
    assert done.stderr.endswith("plink: groups -> groups.json.gz\n")
    assert done.stdout.endswith("no tier stands out\n")
    assert listing(here / ".plink").keys() == {"network.json"}
    assert json.loads(typed("cluster", "-o", "-", cwd=here).stdout)["groups"] == [["node1", "node2"]]


def test_groups_are_those_that_reorder_takes(here: Path) -> None:
    assert typed("cluster", "n.json", "--groups", "2", cwd=here).returncode == 0
    words = ("reorder", "n.json", "--groups", ".plink/groups.json", "--max-moves", "50", "--json")
    order = json.loads(typed(*words, cwd=here).stdout)["hosts"]
    assert {frozenset(order[:4]), frozenset(order[4:])} == {frozenset(group) for group in RACKS}


def test_unmeasured_host_is_left_out_and_named(here: Path) -> None:
    done = typed("cluster", "deaf.json", "--groups", "2", "--json", cwd=here)
    assert done.returncode == 3
    assert "nothing was measured of 1 host, it is left out: node3" in done.stderr
    document = json.loads(done.stdout)
    assert set(document) == keys("groups")
    assert document["left_out"] == ["node3"]
    assert sorted(name for group in document["groups"] for name in group) == sorted(
        host["name"] for host in HOSTS if host["name"] != "node3"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("n.json --groups 0", 2, "--groups 0: at least 1 is needed"),
        ("n.json --groups 9", 2, "--groups 9: 1 to 8 groups can be made of 8 hosts"),
        ("deaf.json --groups 8", 2, "--groups 8: 1 to 7 groups can be made of 7 hosts"),
        ("n.json --elasticity 0.5", 2, "--elasticity 0.5: it takes 1"),
        ("parts.json", 4, "the measured pairs fall into 2 parts with nothing measured between them; one is node"),
        ("silent.json", 4, "nothing was measured between any two hosts; measure them: plink probe"),
        ("halves.json", 2, "halves.json: halves_us: expected a list of 2"),
        ("", 2, "no .plink/network.json here yet: run `plink probe hosts.txt` first"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, code: int, message: str, here: Path) -> None:
    refuses(here, ["cluster", *words.split()], message, code)

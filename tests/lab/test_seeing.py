"""From a real probe to groups, a plan and a page: the racks that nobody was told are found again."""

import json
from pathlib import Path

import pytest

from tests.conftest import Lab, plink, typed
from tests.lab.probing import probe, succeeded

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def here(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all sixteen hosts were probed, embedded and clustered."""
    folder = tmp_path_factory.mktemp("seeing")
    succeeded(probe(lab, folder, "--count", "400", "--no-shared-links"))
    for words in (("embed", "n.json"), ("cluster", "n.json")):
        done = plink(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def racks_of(lab: Lab) -> set[frozenset[str]]:
    return {frozenset(name for name, rack in lab.racks.items() if rack == number) for number in set(lab.racks.values())}


def test_groups_and_tiers_are_the_racks(lab: Lab, here: Path) -> None:
    document = json.loads((here / ".plink" / "groups.json").read_text())
    assert {frozenset(group) for group in document["groups"]} == racks_of(lab)
    assert racks_of(lab) in [{frozenset(group) for group in tier["groups"]} for tier in document["tiers"]]
    assert document["cohesion_us"] < document["random"]["cohesion_us"]


def test_distances_rank_neighbours(lab: Lab, here: Path) -> None:
    done = typed("check", "n.json", "--truth", str(lab.state.truth_file), "--min-paia", "0.95", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    affinity = json.loads(done.stdout)["affinity"]
    assert affinity["triplets"] == 16 * 3 * 12  # of each host: its three neighbours against twelve others
    assert affinity["fitted"] > 0.95


def test_a_plan_for_these_groups_and_a_page(lab: Lab, here: Path) -> None:
    done = typed("plan", "n.json", "-o", "plan.json", cwd=here)
    assert done.returncode == 0, done.stderr
    plan = json.loads((here / "plan.json").read_text())
    host_of_rank = [host["name"] for host in plan["hosts"]]
    assert {frozenset(host_of_rank[rank] for rank in group) for group in plan["groups"]} == racks_of(lab)
    assert plan["cost_us"] < plan["baseline"]["random_groups_median"]
    done = typed("report", "n.json", cwd=here)
    assert done.returncode == 0, done.stderr
    page = (here / "report.html").read_text()
    assert all(name in page for name in host_of_rank)

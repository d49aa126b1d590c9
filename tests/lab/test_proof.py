"""The proof: no line of the user's code runs unless every rank is where it was asked to be."""

import json
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts, write_script

pytestmark = pytest.mark.lab

TOUCH = "import os\nopen(f'ran-{os.environ[\"RANK\"]}', 'w')\n"


def ran(folder: Path) -> list[str]:
    """What the user's code left."""
    return sorted(path.name for path in folder.glob("ran-*"))


@pytest.fixture(scope="module")
def measured(small_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network file that knows the four machines."""
    folder = tmp_path_factory.mktemp("measured")
    write_hosts(small_lab, folder)
    done = plink("probe", "hosts.txt", "--count", "20", "--no-shared-links", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_stopped_launch_is_reported_in_json(small_lab: Lab, measured: Path) -> None:
    """With --json the findings are on standard output, and the proof says that it did not hold."""
    path = write_hosts(small_lab, measured)
    first, second = (small_lab.hosts.members[k].address + " " for k in (0, 1))
    path.write_text(path.read_text().replace(first, "@").replace(second, first).replace("@", second))
    done = plink(
        "launch", "--hosts", "hosts.txt", "--order", "given", "--json", write_script(measured, TOUCH), cwd=measured
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "plink.run/1"
    assert document["exit_code"] == done.returncode == 1
    assert document["proof"]["held"] is False
    wrong = [row["rank"] for row in document["proof"]["ranks"] if row["wrong"]]
    assert wrong == [0, 1]
    assert ran(measured) == []


def test_names_of_ones_own_choice_are_no_lie(small_lab: Lab, tmp_path: Path) -> None:
    """Names in the hosts file need not be the machines' own: nothing is wrong with that."""
    path = write_hosts(small_lab, tmp_path)
    path.write_text(path.read_text().replace("node-", "gpu-"))
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, TOUCH), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(ran(tmp_path)) == 4

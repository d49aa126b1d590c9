"""Real programs in plink's order: training with DistributedDataParallel, and LightGBM with its machines in a list."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts

pytestmark = pytest.mark.lab
EXAMPLES = Path(__file__).parents[2] / "examples"


def launched(lab: Lab, folder: Path, program: str, *words: str) -> tuple[Path, dict[str, object]]:
    """Run an example in the reverse of the hosts' order; (the logs, what rank 0 printed as JSON)."""
    write_hosts(lab, folder)
    (folder / "order.txt").write_text("\n".join(reversed(lab.hosts.names)) + "\n")
    done = plink("launch", "--hosts", "hosts.txt", "--order", "order.txt", "--timeout", "100s", "--json",
                 str(EXAMPLES / program), *words, cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert [rank["host"] for rank in run["proof"]["ranks"]] == list(reversed(lab.hosts.names))
    logs = folder / ".plink" / "runs" / run["id"] / "logs"
    lines = [line for line in (logs / "rank-0.out").read_text().splitlines() if line.startswith("{")]
    return logs, json.loads(lines[-1])


def test_ddp_trains(small_lab: Lab, tmp_path: Path) -> None:
    _, report = launched(small_lab, tmp_path, "ddp_vgg.py", "--steps", "25", "--width", "8", "--batch", "8")
    assert report["same_weights"] is True
    assert float(str(report["last_loss"])) < 0.9 * float(str(report["first_loss"]))


def test_lightgbm_takes_the_ranks_from_the_list(small_lab: Lab, tmp_path: Path) -> None:
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as missing:  # it is there, but the library of OpenMP is not
        pytest.skip(str(missing))
    logs, report = launched(
        small_lab, tmp_path, "lightgbm_train.py", "--rows", "500", "--features", "20", "--iterations", "10"
    )
    for rank in range(4):
        printed = (logs / f"rank-{rank}.out").read_text()
        assert re.findall(r"Local rank: (\d+), total number of machines: (\d+)", printed) == [(str(rank), "4")]
    assert float(str(report["accuracy"])) > 0.75

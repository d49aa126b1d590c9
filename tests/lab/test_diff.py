"""`plink diff` on probes of lab hosts: the one that was slowed down is named; what is healthy is passed over."""

import json
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.probing import probe, succeeded
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab


def test_the_host_that_became_late_is_named_until_it_is_healed(small_lab: Lab, tmp_path: Path) -> None:
    slow = small_lab.hosts.names[1]

    def probed(name: str) -> None:
        succeeded(probe(small_lab, tmp_path, "--count", "1000", "--no-shared-links"))
        (tmp_path / "n.json").rename(tmp_path / name)

    probed("healthy.json")
    try:
        assert small_lab.plink("delay", slow, "--time", "1ms", cwd=HERE).returncode == 0
        probed("late.json")
    finally:
        healed = small_lab.plink("heal", cwd=HERE)
    assert healed.returncode == 0, healed.stderr
    probed("healed.json")
    done = plink("diff", "healthy.json", "late.json", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    slower = [
        row for row in json.loads(done.stdout)["findings"] if (row["what"], row["verdict"]) == ("latency", "worse")
    ]
    assert [(row["where"], row["hosts"]) for row in slower] == [("host", [slow])]
    done = plink("diff", "healthy.json", "healed.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

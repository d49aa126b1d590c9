"""`plink probe --dry-run`: what would be sent, for each way of measuring."""

from pathlib import Path

import numpy as np
import pytest

from plink.model.hosts import read_hosts
from plink.model.network import Network
from tests.conftest import typed
from tests.networks import details_from

STAMP = "measure 6 pairs in 3 rounds by stamp, 500 to 10000 probes a pair: at most 18.5 MB"
SHARED = "measure the capacity that groups of hosts share, "
FLOWS = "measure what every host sends and receives: with 2 partners, one way, the other, and both, TCP flows of 500 ms"
TESTS = "measure the bandwidth of 6 pairs in 3 rounds, "


def test_the_hosts_of_this_folder_are_the_default(tmp_path: Path) -> None:
    for command in ("probe", "doctor"):
        done = typed(command, cwd=tmp_path)
        assert (done.returncode, "hosts.txt" in done.stderr) == (2, True)
    (tmp_path / "hosts.txt").write_text("a\nb\n")
    done = typed("probe", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert "hosts.txt" in done.stderr
    assert "2 hosts" in done.stdout


@pytest.mark.parametrize(("options", "lines"), [
    ("", [STAMP, FLOWS, SHARED]),
    ("--no-shared-links", [STAMP, FLOWS]),
    ("--no-host-rates", [STAMP, SHARED]),
    ("--method iperf3", [f"{TESTS}an iperf3 test of 1 s each way, as fast as the network is: 13 s"]),
    (
        "--method iperf3 --streams 4 --bandwidth-bytes 50MB",
        [f"{TESTS}an iperf3 test of 50 MB each way with 4 streams: 600 MB"],
    ),
    (
        "--bandwidth --bandwidth-time 250ms",
        [STAMP, FLOWS, SHARED, f"{TESTS}a TCP flow of 250 ms each way, as fast as the network is: 1 s, longer"],
    ),
    ("--method tcp --count 400", ["measure 6 pairs in 3 rounds by tcp, 400 probes a pair at most", FLOWS, SHARED]),
    ("--pairs adaptive", ["measure about a tenth of 6 pairs by stamp, 500 to 10000 probes a pair", FLOWS, SHARED]),
])  # fmt: skip
def test_a_dry_run_lists_the_traffic(options: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\nb address=10.0.0.2 user=u port=2222\nc\nd\n")
    done = typed("probe", "hosts", "--dry-run", *options.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, *printed = done.stdout.splitlines()
    assert first == "connect to 4 hosts over SSH and start an agent on each, from memory"
    assert printed[-4:] == ["  ssh a  # a", "  ssh u@10.0.0.2 -p 2222  # b", "  ssh c  # c", "  ssh d  # d"]
    assert len(printed[:-4]) == len(lines)
    for line, begins in zip(printed[:-4], lines, strict=True):
        assert line.startswith(begins)


def test_an_earlier_file_says_how_many_flows_links_carry(tmp_path: Path) -> None:
    """Two racks of two whose uplinks carry one flow: four of six pairs cross, one at a time."""
    (tmp_path / "hosts").write_text("a\nb\nc\nd\n")
    rates = dict.fromkeys(("out_gbps", "in_gbps", "out_one_flow_gbps", "in_one_flow_gbps"), 0.2)
    groups = [{"members": members, **rates} for members in (["a", "b"], ["c", "d"])]
    network = Network(
        read_hosts(tmp_path / "hosts"), 1 - np.eye(4), details=details_from({"shared_links": [{"groups": groups}]})
    )
    network.write(tmp_path / "cloud.json")
    options = ("--bandwidth", "--no-shared-links", "--no-host-rates", "-o", "cloud.json")
    done = typed("probe", "hosts", "--dry-run", *options, cwd=tmp_path)
    assert "6 pairs in 5 rounds, " in done.stdout
    (tmp_path / "cloud.json").write_text("{")
    assert "6 pairs in 3 rounds, " in typed("probe", "hosts", "--dry-run", *options, cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--timeout", "--bandwidth-time"])
def test_no_time_at_all_is_refused(option: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\nb\n")
    done = typed("probe", "hosts", "--dry-run", option, "0s", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'0s' leaves no time for anything" in done.stderr

"""``plink check --truth``: how many triplets are right, and when that is too few."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.files import network, refuses, write
from tests.conftest import typed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four hosts in two racks (a, c and b, d), measured as they stand; in the other file one pair is wrong."""
    write(tmp_path / "right.json", network())
    rows = network()["latency_us"]
    rows[0][2] = rows[2][0] = 150
    write(tmp_path / "wrong.json", network(latency_us=rows))
    (tmp_path / "truth").write_text("a c\nb d\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_shares_by_hand(here: Path) -> None:
    """Of each host two triplets: its neighbour against either of the others. a - c too far spoils those of a and c."""
    for name, share in (("right", 1.0), ("wrong", 0.5)):
        document = json.loads(typed("check", f"{name}.json", "--truth", "truth", "--json", cwd=here).stdout)
        assert document["affinity"]["triplets"] == document["affinity"]["measured_triplets"] == 8
        assert document["affinity"]["measured"] == share
        assert (document["ok"], document["unknown_hosts"]) == (True, [])


def test_the_lab_s_truth_is_read_and_words_are_printed(here: Path) -> None:
    racks = {"schema": "plink.truth/1", "racks": {"a": 0, "b": 1, "c": 0}}
    write(here / "racks.json", racks)
    done = typed("check", "right.json", "--truth", "racks.json", cwd=here)
    assert done.returncode == 0
    assert done.stdout.startswith("measured distances have 100.0% of 2 triplets right\n")
    assert "fitted distances (--smooth-latencies) have " in done.stdout
    assert done.stderr.count("\n") == 1
    assert "racks.json lacks 1 of the 4 hosts" in done.stderr


def test_too_few_right_is_a_failure(here: Path) -> None:
    assert typed("check", "wrong.json", "--truth", "truth", "--min-paia", "0.5", cwd=here).returncode == 0
    done = typed("check", "wrong.json", "--truth", "truth", "--min-paia", "0.51", "--json", cwd=here)
    assert (done.returncode, done.stderr) == (1, "plink: error: PAIA 0.500 of 8 triplets is below --min-paia 0.51\n")
    assert json.loads(done.stdout)["ok"] is False


def test_three_hosts_have_triplets_and_no_embedding(here: Path) -> None:
    rows = np.array(network()["latency_us"])[:3, :3].tolist()
    write(here / "three.json", network(hosts=[{"name": name} for name in "abc"], latency_us=rows))
    done = typed("check", "three.json", "--truth", "truth", cwd=here)
    assert done.returncode == 0
    assert done.stdout == "measured distances have 100.0% of 2 triplets right\n"
    assert "no fitted distances" in done.stderr


def test_unmeasured_pairs_are_not_wrong(here: Path) -> None:
    """Without a - b one triplet of a and one of b are lost; without any pair between the racks all are."""
    rows = network()["latency_us"]
    rows[0][1] = rows[1][0] = None
    write(here / "some.json", network(latency_us=rows))
    done = typed("check", "some.json", "--truth", "truth", "--min-paia", "0.9", "--json", cwd=here)
    affinity = json.loads(done.stdout)["affinity"]
    assert (done.returncode, affinity["triplets"], affinity["measured_triplets"], affinity["measured"]) == (
        0,
        8,
        6,
        1.0,
    )
    assert (
        "have 100.0% of 6 triplets right; 2 more " in typed("check", "some.json", "--truth", "truth", cwd=here).stdout
    )
    for i, j in ((0, 3), (1, 2), (2, 3)):
        rows[i][j] = rows[j][i] = None
    write(here / "none.json", network(latency_us=rows))
    done = typed("check", "none.json", "--truth", "truth", cwd=here)
    assert (done.returncode, done.stdout) == (4, "")
    assert "there is nothing to compare" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["right.json", "--truth", "nowhere"], 2, "nowhere: no such file"),
        (["right.json", "--truth", "unrelated"], 2, "none of the hosts"),
        (["right.json", "--truth", "one"], 4, "nothing to tell apart"),
        (["nowhere.json", "--truth", "truth"], 2, "nowhere.json: no such file"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], code: int, message: str, here: Path) -> None:
    (here / "unrelated").write_text("x y\n")
    (here / "one").write_text("a b c d\n")
    refuses(here, ["check", *words], message, code)

"""``plink schedule``, ``verify`` and ``count`` as they are typed: what is made, proven and counted, and what is not."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plink.errors import UsageError
from plink.features.schedule.request import ScheduleRequest
from plink.features.schedule.run import schedule
from plink.model.schedule_file import read_schedule
from solvers.schedules.verifier import verify
from tests.cli.files import listing, refuses, write
from tests.conftest import typed


def test_a_schedule_is_printed_for_people(tmp_path: Path) -> None:
    done = typed("schedule", "--algo", "tree", "--ranks", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rounds = done.stdout.splitlines()
    assert head == "tree, all-reduce, 3 ranks: 2 rounds, 4 transfers of 1 chunk"
    assert rounds[:3] == ["round 0:", "  1 -> 0  chunk 0, added", "  2 -> 0  chunk 0, added"]
    assert sorted(rounds[3:]) == ["  0 -> 1  chunk 0", "  0 -> 2  chunk 0", "round 1:"]
    assert listing(tmp_path) == {}


def test_made_proven_and_counted(tmp_path: Path) -> None:
    """Through a compressed file; the counts are those of every book: 2(N-1) rounds, 2(N-1)/N of the vector a rank."""
    done = typed("schedule", "--algo", "ring", "--ranks", "4", "-o", "ring.json.gz", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "plink: ring, all-reduce, 4 ranks: 6 rounds, 24 transfers of 4 chunks -> ring.json.gz\n"
    assert json.loads(gzip.decompress((tmp_path / "ring.json.gz").read_bytes()))["schema"] == "plink.schedule/1"
    assert typed("schedule", "verify", "ring.json.gz", "--json", cwd=tmp_path).returncode == 0
    done = typed("schedule", "verify", "ring.json.gz", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "correct: ring, all-reduce, 4 ranks: 6 rounds, 24 transfers of 4 chunks\n"
    done = typed("schedule", "count", "ring.json.gz", "--size", "4MB", "--groups", "0,1/2,3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "6 rounds, 24 transfers, 24 MB on the wire\nbusiest rank 0: 6 MB sent, 6 MB received\n12 MB between groups\n"
    )
    done = typed("schedule", "count", "ring.json.gz", "--size", "4MB", "--groups", "0,1/2,3", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["cross_group_bytes"] == 12e6


def test_json_goes_through_pipes(tmp_path: Path) -> None:
    """``plink schedule ... --json | plink schedule verify - --json``."""
    words = ("--algo", "bcube", "--ranks", "9", "--set", "base=3", "--collective", "reduce-scatter")
    made = typed("schedule", *words, "--json", cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert typed("schedule", *words, "-o", "-", cwd=tmp_path).stdout == made.stdout
    for name, expected in (
        ("verify", {"schema": "plink.verification/1", "valid": True, "errors": []}),
        ("count", {"rounds": 2, "transfers": 36, "bytes_on_wire": 72.0, "cross_group_bytes": None}),
    ):
        more = ["--size", "9"] if name == "count" else []
        done = subprocess.run(
            [sys.executable, "-m", "plink", "schedule", name, "-", "--json", *more],
            input=made.stdout, capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(done.stdout)
        assert expected.items() <= document.items()
        if name == "count":
            assert document["sent_bytes"] == document["received_bytes"] == [8.0] * 9


def test_a_wrong_schedule_fails_and_names_the_transfer(tmp_path: Path) -> None:
    """Exit code 1: what is wrong on standard output, that it is wrong on standard error."""
    rows = [
        {"round": 0, "from": 1, "to": 0, "chunk": 0, "op": "reduce"},
        {"round": 1, "from": 1, "to": 0, "chunk": 0, "op": "reduce"},
        {"round": 2, "from": 0, "to": 1, "chunk": 0, "op": "copy"},
    ]
    bad = write(tmp_path / "bad.json", {"schema": "plink.schedule/1", "ranks": 2, "chunks": 1, "transfers": rows})
    message = "transfer 1 (round 1, rank 1 -> 0, chunk 0, reduce) adds what rank 1 contributed to chunk 0 a second time"
    done = typed("schedule", "verify", "bad.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, message + "\n")
    assert done.stderr == "plink: error: bad.json is not a correct all-reduce\n"
    done = subprocess.run(
        [sys.executable, "-m", "plink", "schedule", "verify", "-", "--json"],
        input=bad.read_text(), capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "schema": "plink.verification/1",
        "valid": False,
        "errors": [message],
        "contributors": [0, 1],
    }
    assert done.stderr == "plink: error: standard input is not a correct all-reduce\n"
    assert typed("schedule", "verify", "bad.json", "--json", cwd=tmp_path).stdout == done.stdout


def test_groups_are_explicit_or_contiguous(tmp_path: Path) -> None:
    def groups(*words: str) -> Any:
        done = typed("schedule", "--algo", "2lha", "--ranks", "6", "-o", "s.json", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return read_schedule(tmp_path / "s.json").groups

    assert groups() == [[0, 1], [2, 3], [4, 5]]
    assert groups("--groups", "5,0,2/1,3,4") == [[5, 0, 2], [1, 3, 4]]


@pytest.mark.parametrize("servers", [None, 1, 2, 5])
@pytest.mark.parametrize("ranks", [*range(2, 13)])
def test_groups_of_hubs_have_one_each_by_default(ranks: int, servers: int | None) -> None:
    """Hubs are the last ranks."""
    options: dict[str, int | bool] = {} if servers is None else {"servers": servers}
    request = ScheduleRequest("phub-2l", ranks, options=options)
    if servers is not None and servers >= ranks:
        with pytest.raises(UsageError, match=f"{servers} hubs of {ranks} ranks leave no worker"):
            schedule(request)
        return
    made = schedule(request)
    assert not verify(made)
    assert made.contributors is not None
    assert servers in (None, ranks - len(made.contributors))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--ranks 4", "--algo is missing: plink schedule --algo ring --ranks 4"),
        ("--algo butterfly", "there is no algorithm butterfly; there are ring, "),
        ("--algo bcube --ranks 6", "bcube of base 2 needs a power of 2 ranks, not 6; nearest: 4 or 8"),
        ("--algo tree --set fan-out=0", "--set fan_out=0: at least 1 is needed"),
        ("--algo tree --set base=2", "--set base=2: tree has no option base"),
        ("--algo tree --set fan-out", "--set fan-out: write name=value"),
        ("--algo ps --set colocated=no --set servers=4", "ps: 4 servers of 4 ranks leave no worker"),
        ("--algo 2lha --groups 0,1/2", "--groups: every rank from 0 to 3 belongs to exactly one group"),
        ("--algo phub-2l --groups 0,1/2,3 --set servers=2", "phub-2l needs a hub in each group"),
        ("--algo ring --groups 0,1/2,3", "--groups: ring takes no groups"),
        ("--algo ring --ranks 1300 -o ring.json", "3377400 transfers are more than a file should hold"),
        ("verify cycle.json", "cycle.json: transfers[0]: waits for itself: transfers[0] after transfers[1] after "),
        ("verify huge.json", "40000 ranks are too many to prove"),
        ("count ok.json --size 0", "--size 0: it takes 1 to 1e+18"),
        ("count ok.json --groups 0/1/2", "--groups: every rank from 0 to 1 belongs to exactly one group"),
    ],
)  # fmt: skip
def test_what_is_refused(words: str, expected: str, tmp_path: Path) -> None:
    def file(name: str, *rows: dict[str, Any], ranks: int = 2) -> None:
        write(tmp_path / name, {"schema": "plink.schedule/1", "ranks": ranks, "chunks": 1, "transfers": list(rows)})

    row = {"from": 0, "to": 1, "chunk": 0, "op": "reduce"}
    file("ok.json", row | {"round": 0})
    file("rank.json", row | {"round": 0, "to": 9})
    file("huge.json", row | {"round": 0}, ranks=40_000)
    file("cycle.json", row | {"after": [1]}, row | {"after": [0]})
    refuses(tmp_path, ["schedule", *words.split()], expected)

"""``plink cost`` on four hosts in two racks: costs that can be worked out by hand, and what has none."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.files import network, refusal, refuses, write
from tests.conftest import typed

# 4 MB around a ring of four: 1 MB a round, which takes 8 ms at 1 Gbit/s and 16 ms at 0.5.
HOSTS = [{"name": name} for name in "abcd"]
NEAR, FAR = 1.0, 0.5
GBPS = [[None if i == j else NEAR if (i - j) % 2 == 0 else FAR for j in range(4)] for i in range(4)]
LINK = {"out_gbps": 1, "in_gbps": 1, "out_limited_by": "link", "in_limited_by": "link"}
LINK |= {"out_one_flow_gbps": 1, "in_one_flow_gbps": 1}
SHARED = [{"groups": [{"members": ["a", "c"], **LINK}, {"members": ["b", "d"], **LINK}]}]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with networks in it: latencies alone, rates too, shared links too, b - d unmeasured, slots."""
    rows = network()["latency_us"]
    rows[1][3] = rows[3][1] = None
    write(tmp_path / "n.json", network(hosts=HOSTS))
    write(tmp_path / "rates.json", network(hosts=HOSTS, bandwidth_gbps=GBPS))
    write(tmp_path / "shared.json", network(hosts=HOSTS, shared_links=SHARED))
    write(tmp_path / "holes.json", network(hosts=HOSTS, latency_us=rows))
    write(tmp_path / "slots.json", network())
    write(tmp_path / "one.json", network(hosts=HOSTS[:1], latency_us=[[0]]))
    (tmp_path / "grouped.txt").write_text("# ours\na\nc\nb\nd\n")
    return tmp_path


def test_latencies_alone(here: Path) -> None:
    """The thesis's ring: the sum of four hops of 100 us. No order costs more; two hops of 10 us are the best."""
    done = typed("cost", "n.json", "--random", "50", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ring, 4 ranks, 100 MB, hosts as they stand, model latency: 400 us\n"
        "  slowest pair used: a - b\n"
        "  the cost is the sum of all hops, not of the rounds:\n"
        "  rounds 1-3: 100 us farthest hop\n"
        "random orders (50): 220 us to 400 us, median 220 us; 0% of them cost more than this one\n"
    )


@pytest.mark.parametrize(("algo", "rounds_s"), [("ring", [0.016] * 6), ("ps", [0.032] * 2), ("flat", [0.032] * 2)])
def test_rounds_alone_take_what_the_whole_takes_for_them(algo: str, rounds_s: list[float], here: Path) -> None:
    """By hand, at 1 Gbit/s: of messages of 1 MB two cross a rack's link where the ring goes to and fro, and four where
    each goes to all. The links of both racks are equally busy both ways, which makes no round longer."""
    done = typed("cost", "shared.json", "--algo", algo, "--size", "4MB", "--random", "0", "--json", cwd=here)
    document = json.loads(done.stdout)
    (part,) = document["parts"]
    times_us = [each["latency_us"] + each["transfer_us"] for each in part["rounds"]]
    assert times_us == pytest.approx([1e6 * each for each in rounds_s], rel=0.02)
    assert max(times_us) <= document["cost_us"]


def test_pairs_that_were_not_measured_matter_only_where_they_are_used(here: Path) -> None:
    """a, b, c, d does not need b - d; of the random orders those that do are left out, and their number is told."""
    done = typed("cost", "holes.json", "--random", "30", "--json", cwd=here)
    document = json.loads(done.stdout)
    assert (done.returncode, document["cost_us"]) == (0, 400)
    assert 0 < document["random"]["orders"] < 30
    left_out = 30 - document["random"]["orders"]
    assert done.stderr == f"plink: {left_out} of 30 random orders use pairs that were not measured: left out\n"


@pytest.mark.parametrize("words", ["cost", "plan", "advise", "reorder", "report --terminal"])
def test_predicted_pairs_are_counted_once(words: str, here: Path) -> None:
    """Of six pairs a - b is predicted; `cost` names it as the slowest."""
    rows = network()["latency_us"]
    rows[0][1] = rows[1][0] = None
    predicted = [[300 if {i, j} == {0, 1} else None for j in range(4)] for i in range(4)]
    write(here / "predicted.json", network(hosts=HOSTS, latency_us=rows, predicted_us=predicted))
    for name, times in (("predicted", 1), ("n", 0)):
        done = typed(*words.split(), f"{name}.json", cwd=here)
        output = " ".join((done.stdout + done.stderr).split())
        assert output.count("1 of 6 pairs were not measured; what they are predicted to take is used") == times
        if words == "cost":
            assert ("slowest pair used: a - b (predicted, not measured)" in output) == bool(times)
        if words not in ("plan", "reorder"):
            document = json.loads(typed(*words.split(), f"{name}.json", "--json", cwd=here).stdout)
            assert document.get("predicted_pairs", 0) == times


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "holes.json --algo flat",
            "the round trip b - d is needed and was not measured; `plink probe HOSTS --resume` ",
        ),
        ("gaps.json", "the bandwidth a - b is needed and was not measured; `plink probe HOSTS --resume --bandwidth` "),
        ("dead.json", "nothing gets through between a and b: the way out of the group of a carries 0 Gbit/s; "),
        ("dead.json --model simulated", "nothing gets through between a and b: the way out of the group of a carries"),
        ("dead.json --algo flat", "nothing gets through between a and b: the way out of the group of a carries 0 "),
        ("zero.json", "nothing gets through between a and b: 0 Gbit/s were measured there; "),
        ("zero.json --algo tree", "nothing gets through between b and a: 0 Gbit/s were measured there; "),
    ],
)
def test_refused_costs(words: str, message: str, here: Path) -> None:
    dead = [{"groups": [{**SHARED[0]["groups"][0], "out_gbps": 0}, SHARED[0]["groups"][1]]}]
    write(here / "dead.json", network(hosts=HOSTS, shared_links=dead))
    write(here / "zero.json", network(hosts=HOSTS, bandwidth_gbps=[[None, 0, 1, 1], *GBPS[1:]]))
    write(here / "gaps.json", network(hosts=HOSTS, bandwidth_gbps=[[None] * 4, *GBPS[1:]]))
    assert refusal(typed("cost", *words.split(), cwd=here), code=4).startswith(message)


def test_unit_of_standard_input(here: Path) -> None:
    """What its refusal advises works."""

    def cost_of(name: str) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-m", "plink", "cost", name]
        return subprocess.run(words, cwd=here, input="a 0 2\nb 1 0\n", capture_output=True, text=True, check=False)

    (named,) = re.findall(r"\S+#ms", refusal(cost_of("-")))
    assert cost_of(named).stdout.startswith("ring, 2 ranks")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("n.json --size 0", "--size 0: it takes 1 to 1e+18"),
        ("n.json --size many", "--size: 'many' is not a size"),
        ("n.json --algo butterfly", "--algo butterfly: choose one of ring, "),
        ("n.json --set base=2", "--set base=2: ring has no option base"),
        ("n.json --algo tree --set fan-out=0", "--set fan_out=0: at least 1 is needed"),
        ("n.json --order other.txt", "other.txt: the order names hosts that are not in the hosts list: e"),
        ("n.json --order few.txt", "few.txt: the order leaves out hosts of the hosts list: c, d"),
    ],
)
def test_what_is_refused(words: str, message: str, here: Path) -> None:
    for name, hosts in (("other", "abcde"), ("few", "ab")):
        (here / f"{name}.txt").write_text("\n".join(hosts))
    refuses(here, ["cost", *words.split()], message)

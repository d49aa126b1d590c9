"""``plink reorder`` under constraints: pins, groups, objectives, proofs, priors, topologies; refusals in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.files import network, refuses, write
from tests.conftest import typed

NAMES = list("abcdefgh")
# a, c, e, g are 20 us from each other, so are b, d, f, h; 80 us between the two.
ROWS = [[0 if i == j else 20 if i % 2 == j % 2 else 80 for j in range(8)] for i in range(8)]
HOSTS: list[dict[str, Any]] = [{"name": name, "address": f"10.0.0.{i}"} for i, name in enumerate(NAMES, start=1)]
TOPOLOGY = """SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 Nodes=a,c,e,g
SwitchName=leaf2 Nodes=b,d,f,h
"""
FILES = {
    "good": "a c e g\nb, d, f h  # a comment\n",
    "uneven": "a b c\nd e f g h\n",
    "missing": "a c e g\nb d f\n",
    "double": "a a c e g\nb d f h\n",
    "unknown": "a c e g\nb d f h z\n",
    "empty": "# nothing\n",
    "strange": "a c\n$(touch gotcha)\n",
    "list.json": '{"groups": ["a", "b"]}',
    "hollow.json": '{"groups": [["a", "c", "e", "g", "b", "d", "f", "h"], []]}',
    "topo.conf": TOPOLOGY,
    "others.conf": "SwitchName=leaf1 Nodes=x,y\n",
    "four.txt": "a\nb\nc\nd\n",
    "none.txt": "x\ny\n",
    "half.txt": "a\nx\n",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with eight hosts in two racks, one network of uneven hosts, one with noise only, and files."""
    write(tmp_path / "n.json", network(hosts=HOSTS, latency_us=ROWS))
    write(tmp_path / "slots.json", network())
    hub = [*HOSTS[:7], {"name": "h", "role": "hub"}]
    write(tmp_path / "hub.json", network(hosts=hub, latency_us=ROWS))
    write(tmp_path / "one.json", network(hosts=HOSTS[:1], latency_us=[[0]]))
    write(tmp_path / "two.json", network(hosts=HOSTS[:2], latency_us=[[0, 9], [9, 0]]))
    rng = np.random.default_rng(5)
    halves = [(60 * rng.lognormal(0, 0.1, (8, 8)) * ~np.eye(8, dtype=bool)).tolist() for _ in range(2)]
    write(tmp_path / "alike.json", network(hosts=HOSTS, latency_us=halves[0], halves_us=halves))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def order(here: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The order that is printed, as it is made after a few moves, which are the same on any machine."""
    moves = () if "--topology" in words else ("--max-moves", "200")
    done = typed("reorder", *words, "--json", *moves, cwd=here)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


REFUSED: list[tuple[int, str, str]] = [
    (2, "n.json --pin a=0 --pin a=1", "--pin: a cannot have rank 0 and rank 1"),
    (2, "n.json --pin a=0 --pin b=0", "--pin: a and b cannot both have rank 0"),
    (2, "n.json --pin a=8", "--pin a=8: choose a rank from 0 to 7"),
    (2, "hub.json --pin h=0", "--pin h=0: h has role=hub and takes no rank"),
    (4, "slots.json --pin a=1", "--pin a=1: hosts have different numbers of slots; pin rank 0 only"),
    *(
        (2, f"n.json --pin {word}", f"--pin {word}: write a host's name, = and its first rank, node1=0")
        for word in ("a", "=3", "a=-1", "a=1.5")
    ),
    (2, "n.json --groups missing", "--groups: h in no group; name every host in one group"),
    (2, "n.json --groups double", "double: a is named more than once; a host is in one group"),
    (2, "n.json --groups unknown", "unknown: unknown host z; the hosts are a, b, c, d, ..."),
    (2, "n.json --groups empty", "empty: no groups: write one a line"),
    (2, "n.json --groups strange", "strange:2: '$(touch' cannot be a host name"),
    (2, "n.json --groups list.json", "list.json: groups[0]: expected a list"),
    (2, "n.json --groups hollow.json", "--groups: a group has no hosts"),
    (2, "n.json --groups 9", "--groups 9: 1 to 8 groups can be made of 8 hosts"),
    (2, "n.json --groups good --pin a=0 --pin b=1", "--pin: a=0 and b=1 cannot both be with groups of 4"),
    (4, "n.json --groups uneven --pin a=3", "--pin a=3: groups have different sizes; pin rank 0 only"),
    (2, "n.json --objective sum --algo tree", "--objective sum is for rings (ring, "),
    (2, "n.json --objective bottleneck --model contention", "--objective bottleneck uses round trips only; "),
    (2, "n.json --objective bottleneck --pin a=0 --pin b=4", "--objective bottleneck: "),
    (2, "n.json --max-moves 5 --time-limit 1", "--max-moves replaces the time limit; "),
    (2, "one.json --objective fastest", "--objective fastest: choose one of "),
    (2, "n.json --topology topo.conf", "--topology replaces a network; "),
    (2, "n.json --hosts none.txt", "n.json is of other hosts: it does not have x, y; probe these hosts"),
    (2, "n.json --format openmpi -o hostfile.gz", "-o hostfile.gz: launchers read no compressed file"),
    (2, "--topology topo.conf --hosts none.txt", "topo.conf: it has none of the hosts: "),
    (2, "--topology topo.conf --format deepspeed --algo star", "--algo star: choose one of "),
    (2, "n.json --prior others.conf", "others.conf: it has none of the hosts: "),
]


@pytest.mark.parametrize(("code", "words", "message"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(code: int, words: str, message: str, here: Path) -> None:
    refuses(here, ["reorder", *words.split()], message, code)


def test_a_topology_that_knows_one_host_has_no_answer(here: Path) -> None:
    done = typed("reorder", "--topology", "topo.conf", "--hosts", "half.txt", cwd=here)
    assert (done.returncode, done.stdout) == (4, "")
    assert "topo.conf says of no two hosts how far apart they are; " in done.stderr


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("--algo ring", {"bottleneck_lower_bound"}),
        ("--objective bottleneck --force", {"sum", "sum_lower_bound"}),
        ("--algo 2lha --model contention", {"groups", "size_bytes", "capacities"}),
    ],
)
def test_an_order_says_what_it_rests_on(words: str, keys: set[str], here: Path) -> None:
    assert keys <= set(order(here, "alike.json", *words.split()))


@pytest.mark.parametrize("groups", [(), ("--groups", "good")])
def test_hubs_are_in_no_order(groups: tuple[str, ...], here: Path) -> None:
    """Nor in groups: that of the hub has three hosts."""
    document = order(here, "hub.json", "--algo", "2lha", *groups)
    assert sorted(document["hosts"]) == NAMES[:7]


@pytest.mark.parametrize("algo", ["ring", "nccl"])
def test_pinned_hosts_have_their_ranks(algo: str, here: Path) -> None:
    document = order(here, "n.json", "--algo", algo, "--pin", "h=0", "--pin", "c=5")
    assert (document["hosts"][0], document["hosts"][5], sorted(document["hosts"])) == ("h", "c", NAMES)
    assert document["pins"] == {"h": 0, "c": 5}


def test_a_proof_or_exit_code_3(here: Path) -> None:
    document = order(here, "n.json", "--algo", "halving-doubling", "--prove")
    assert (document["proven"], document["proven_by_rounds"], document["bound_by"]) == (False, True, "links")
    document = order(here, "n.json", "--algo", "halving-doubling", "--model", "latency", "--prove")
    assert (document["proven"], document["gap"]) == (True, 0)
    document = order(here, "n.json", "--algo", "nccl", "--size", "4MB", "--prove")
    assert (document["proven"], document["bound_by"]) == (True, "all orders")
    more = [{"name": f"n{k}", "address": f"10.0.1.{k}"} for k in range(1, 12)]
    rows = np.random.default_rng(0).integers(20, 99, (11, 11)) * ~np.eye(11, dtype=bool)
    write(here / "more.json", network(hosts=more, latency_us=np.maximum(rows, rows.T).tolist()))
    document = order(here, "more.json", "--algo", "nccl", "--size", "4MB", "--prove", code=3)
    assert (document["proven"], "proven_by_rounds" in document) == (False, False)
    document = order(here, "more.json", "--algo", "tree", "--model", "latency", "--prove", code=3)
    assert document["questions"] > 0


def test_noise_keeps_the_baseline_unless_forced(here: Path) -> None:
    without_force = order(here, "alike.json", "--prove")
    assert (without_force["hosts"], without_force["proven"], without_force["cost"]) == (
        NAMES,
        False,
        without_force["baseline"]["given"],
    )
    assert without_force["validation"]["low"] <= 0 < without_force["validation"]["predicted"]
    forced = order(here, "alike.json", "--force")
    assert forced["hosts"] == without_force["kept_baseline"]["result"] != NAMES
    assert (forced["cost"], forced["validation"]) == (
        without_force["kept_baseline"]["result_cost"],
        without_force["validation"],
    )
    assert "kept_baseline" not in forced
    assert "bottleneck" not in without_force  # that would be the found order's


def test_noise_does_not_keep_an_infeasible_order(here: Path) -> None:
    done = typed("reorder", "alike.json", "--pin", "h=0", "--format", "hosts", "--max-moves", "50", cwd=here)
    assert done.stdout.startswith("h\n")
    assert done.stderr.endswith(": within the noise; the given order is not kept, for it violates the constraints\n")


def test_a_prior_fills_what_was_not_measured(here: Path) -> None:
    """a was measured against b and h only; the topology knows that it belongs to c, e and g."""
    rows = [[None if 0 in (i, j) and not {i, j} <= {0, 1, 7} else ROWS[i][j] for j in range(8)] for i in range(8)]
    write(here / "n.json", network(hosts=HOSTS, latency_us=rows))
    assert order(here, "n.json")["cost"] > 280
    done = typed("reorder", "n.json", "--prior", "topo.conf", "--max-moves", "200", "--json", cwd=here)
    assert json.loads(done.stdout)["cost"] == 280
    assert done.stderr.startswith("plink: 5 pairs that were not measured are taken to be as far as others that topo")


def test_hosts_file_supplies_slots(here: Path) -> None:
    """Of the network's hosts, in any order."""
    (here / "two.txt").write_text("".join(f"{name} slots=2 address=10.1.0.1{name}\n" for name in NAMES[::-1]))
    done = typed("reorder", "n.json", "--hosts", "two.txt", "--format", "slurm", "--max-moves", "20", cwd=here)
    assert sorted(done.stdout.split()) == sorted([*NAMES, *NAMES])


def test_some_of_the_hosts_are_ordered_by_the_measurement_of_all(here: Path) -> None:
    """a and c are in one rack, b and d in the other; the given order, and slots, are those of the hosts file."""
    (here / "few.txt").write_text("d slots=2\na slots=2\nb slots=2\nc slots=2\n")
    few = ("n.json", "--hosts", "few.txt")
    done = typed("reorder", *few, "-o", "o.json", "--max-moves", "200", cwd=here)
    assert "4 of the 8 hosts of n.json" in done.stderr
    result = json.loads((here / "o.json").read_text())
    assert (result["cost"], result["baseline"]["given"]) == (200, 320)
    ordered = (*few, "--order", "o.json")
    priced = json.loads(typed("cost", *ordered, "--model", "latency", "--json", cwd=here).stdout)
    assert (priced["hosts"], priced["cost_us"], priced["ranks"]) == (result["hosts"], 200, 8)
    planned = json.loads(typed("plan", *ordered, "--algo", "ring", "--json", cwd=here).stdout)
    assert [(host["name"], host["slots"]) for host in planned["hosts"]] == [(name, 2) for name in result["hosts"]]
    shown = typed("report", *ordered, "--terminal", cwd=here).stdout
    assert shown.startswith("The network between 4 hosts\n")
    assert "another measurement" not in shown
    advice = json.loads(typed("advise", *few, "--size", "1KB", "--json", cwd=here).stdout)
    assert advice["network"] == result["network"]


def test_the_given_order_is_that_of_the_hosts_file(here: Path) -> None:
    (here / "sorted.txt").write_text("".join(f"{name}\n" for name in "acegbdfh"))
    assert order(here, "n.json")["baseline"]["given"] > 280
    result = order(here, "n.json", "--hosts", "sorted.txt")
    assert result["baseline"]["given"] == result["cost"] == 280


def test_an_order_without_probing(here: Path) -> None:
    words = ("--topology", "topo.conf", "--hosts", "four.txt", "--format", "hosts", "-o", "out")
    printed = typed("reorder", *words, cwd=here).stderr
    assert printed.startswith("plink: round trips are assumed from topo.conf, none was measured; ")
    assert "\nplink: 4 hosts in 2 groups\n" in printed
    assert (here / "out").read_text() in ("a\nc\nb\nd\n", "a\nc\nd\nb\n", "a\nb\nd\nc\n")
    assert not (here / ".plink").exists()
    assert order(here, "--topology", "topo.conf")["cost"] == 270


@pytest.mark.parametrize("algo", ["ring", "tree", "2lha"])
def test_two_hosts_and_one(algo: str, here: Path) -> None:
    assert sorted(order(here, "two.json", "--algo", algo)["hosts"]) == ["a", "b"]
    assert order(here, "two.json", "--algo", algo, "--pin", "b=0")["hosts"] == ["b", "a"]
    assert order(here, "one.json", "--algo", algo, "--pin", "a=0", "--groups", "1", "--prove")["hosts"] == ["a"]

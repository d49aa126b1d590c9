"""`plink report --terminal`: the network in the terminal, word for word, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.files import network, refusal, write
from tests.conftest import plink, typed
from tests.model.schemas import keys

GOLDEN = """\
The network between 4 hosts
11 of 12 round trips between 4 hosts were measured (91.7%).
The hosts form two groups. A round trip usually takes 10 us inside groups, 100
us between groups.
A ring costs 220 us in plink's order and 400 us in the given one, 45% less (by
the measurements that it was fitted to).
One thing looks wrong: unmeasured.

Round trips, hosts as given    The same in plink's order for a ring
a   ██··██                     a   ··████
b ██  ██··                     c ··  ██??
c ··██  ??                     b ████  ··
d ██··██                       d ████··
10 us ·░▒▓█ 100 us   ? not measured

tier             pairs measured   median        80% within
inside groups                 2    10 us     10 us – 10 us
between groups                4   100 us   100 us – 100 us

round trips
    9.8 – 11.9 us    █████████████████████████████████ 4
   11.9 – 14.5 us
   14.5 – 17.6 us
   17.6 – 21.4 us
   21.4 – 26 us
     26 – 31.6 us
   31.6 – 38.4 us
   38.4 – 46.7 us
   46.7 – 56.8 us
   56.8 – 69 us
     69 – 83.9 us
   83.9 – 102 us     █████████████████████████████████████████████████████████ 7
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    document = network()
    document["latency_us"][2][3] = None
    write(tmp_path / "cloud.json", document)
    order = {"schema": "plink.order/1", "algo": "ring", "hosts": list("acbd"), "cost": 220, "baseline": {"given": 400}}
    write(tmp_path / "order.json", order)
    return tmp_path


def test_piped_it_is_plain_text(cloud: Path) -> None:
    done = typed("report", "cloud.json", "--terminal", "--order", "order.json", cwd=cloud, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == GOLDEN.splitlines()


def test_colour_where_it_is_wanted_and_not_where_it_is_not(cloud: Path) -> None:
    colourful = {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color", "COLUMNS": "80"}
    done = typed("report", "cloud.json", "--terminal", cwd=cloud, **colourful, NO_COLOR="")
    assert "\x1b[38;2;" in done.stdout
    assert "▀" in done.stdout
    done = typed("report", "cloud.json", "--terminal", cwd=cloud, **colourful)
    assert "\x1b[38" not in done.stdout
    assert "·" in done.stdout


def test_ascii_where_the_terminal_has_no_more(cloud: Path) -> None:
    done = plink("report", "cloud.json", "--terminal", cwd=cloud, PYTHONIOENCODING="ascii", COLUMNS="60")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 60


def test_the_figures_as_json(cloud: Path) -> None:
    document = json.loads(typed("report", "cloud.json", "--order", "order.json", "--json", cwd=cloud).stdout)
    assert set(document) == keys("show") - {"predicted_pairs"}  # there are none
    assert (document["hosts"], document["measured"], document["possible"]) == (4, 11, 12)
    assert document["groups"] == [["a", "c"], ["b", "d"]]
    assert document["bottleneck"] is None  # the model latency adds up all hops
    assert [tier["median_us"] for tier in document["tiers"]] == [10.0, 100.0]


def test_how_sure_shared_tiers_are(tmp_path: Path) -> None:
    """In words and as JSON; the doctor says of which hosts they may be wrong, which is no failure."""
    capacity = {"out_gbps": 1.0, "in_gbps": 1.0, "out_limited_by": "link", "in_limited_by": "link"}
    groups = [
        {"members": members, "confidence": share, **capacity}
        for members, share in ((["a", "c"], 0.97), (["b", "d"], 0.4))
    ]
    write(tmp_path / "n.json", network(shared_links=[{"confidence": 0.39, "groups": groups}]))
    assert "two groups (confidence 39%)" in typed("report", "n.json", "--terminal", cwd=tmp_path, COLUMNS="200").stdout
    document = json.loads(typed("report", "n.json", "--json", cwd=tmp_path).stdout)
    assert document["shared_tiers"] == [{"groups": 2, "confidence": 0.39}]
    done = typed("doctor", "n.json", "--json", cwd=tmp_path)
    assert done.returncode == 0
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["severity"], finding["hosts"]) == ("info", ["b", "d"])
    assert "40%" in finding["evidence"]
    write(tmp_path / "n.json", network(shared_links=[{"confidence": 1.5, "groups": groups}]))
    assert "shared_links[0].confidence" in refusal(typed("report", "n.json", "--terminal", cwd=tmp_path))


def test_longest_hop_is_named_where_it_is_the_objective(cloud: Path) -> None:
    order = json.loads((cloud / "order.json").read_text()) | {"objective": "bottleneck"}
    write(cloud / "order.json", order)
    done = typed("report", "cloud.json", "--terminal", "--order", "order.json", cwd=cloud, COLUMNS="200")
    assert "Its longest hop is a – d, 100 us." in done.stdout
    document = json.loads(typed("report", "cloud.json", "--order", "order.json", "--json", cwd=cloud).stdout)
    assert document["bottleneck"] == {
        "kind": "hop",
        "links": [],
        "hosts": ["a", "d"],
        "time_us": 100.0,
        "cost_us": 100.0,
    }


@pytest.mark.parametrize(
    ("groups", "message"),
    [("a b\nc\n", "leaves out d"), ("a b c d e\n", "e is none of the hosts"), ("a b\nb c d\n", "b is in two groups")],
)
def test_groups_of_other_hosts_are_refused(groups: str, message: str, cloud: Path) -> None:
    (cloud / "groups.txt").write_text(groups)
    assert message in refusal(typed("report", "cloud.json", "--terminal", "--groups", "groups.txt", cwd=cloud))


def test_errors_of_unknown_hosts_are_passed_over(cloud: Path) -> None:
    document = network(errors=[{"from": "x", "to": "y", "why": ""}, {"from": "c", "to": "d", "why": "timed out"}])
    document["latency_us"][2][3] = None
    write(cloud / "n.json", document)
    assert typed("report", "n.json", "--terminal", cwd=cloud).returncode == 0

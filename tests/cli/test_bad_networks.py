"""Bad network files: one line that names the file and the key, nothing written, nothing executed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import network, refuses, write
from tests.conftest import typed

NAMES = [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "$(touch gotcha)"}]
RAILS = {"names": [["e0", "e1"]] * 4, "used": [[None] * 4] * 4, "relays": [[None] * 4] * 4, "switches": []}

BAD: list[tuple[str | dict[str, Any], str]] = [
    (json.dumps(network())[:-1], "n.json:1: not JSON"),
    ("[]", "n.json: a JSON object was expected, this is a list"),
    (json.dumps(network()).replace("100", "NaN", 1), "n.json: NaN is not a JSON number"),
    ("[" * 100_000, "n.json: not JSON that plink reads: nested too deeply"),
    ({"schema": "plink.order/1"}, "n.json: schema: expected 'plink.network/1'"),
    ({"hosts": NAMES}, "n.json: hosts[3].name: expected a host name"),
    ({"errors": [{"from": ["a"], "to": "b", "why": ""}]}, "n.json: errors[0].from: expected text"),
    (
        {"shared_links": [{"groups": [{"members": ["a"], "out_gbps": -1}]}]},
        "n.json: shared_links[0].groups[0].out_gbps: expected a number >= 0",
    ),
    (
        {"shared_links": [{"groups": [{"members": ["b", "c"]}]}, {"groups": [{"members": ["a", "b"]}]}]},
        "n.json: shared_links[1].groups[0].members: b without c, which are in one group of a tier below",
    ),
    (
        {"shared_links": [{"groups": [{"members": ["a", "b"]}, {"members": ["c", "nobody"]}]}]},
        "n.json: shared_links[0].groups[1].members: 'nobody' is not one of the hosts",
    ),
    (
        {"shared_links": [{"groups": [{"members": ["a", "b"]}, {"members": ["c", "b"]}]}]},
        "n.json: shared_links[0].groups[1].members: host 'b' is in groups[0], too",
    ),
    (
        {"interfaces": {**RAILS, "out_gbps": [[1.0]] * 4}},
        "n.json: interfaces.out_gbps: one value for each interface in names is expected",
    ),
    (
        {"interfaces": {**RAILS, "why": [["no route"]] * 4}},
        "n.json: interfaces.why: one value for each interface in names is expected",
    ),
    (
        {"interfaces": {**RAILS, "out_gbps": [[0, 1.0]] + [[1.0, 1.0]] * 3}},
        "n.json: interfaces.out_gbps[0][0]: expected a number >= 1e-06",
    ),
    (
        {"interfaces": {**RAILS, "in_gbps": [[1.0, 1.0]] * 3 + [[1.0, 1e-300]]}},
        "n.json: interfaces.in_gbps[3][1]: expected a number >= 1e-06",
    ),
    ({"machines": [{"hostname": "a"}, 7]}, "n.json: machines[1]: expected an object or null"),
    ({"latency_us": [[0] * 4] * 3 + [[0, "12", 0, 0]]}, 'n.json: latency_us[3][1]: "12" is not a number or null'),
    ({"bandwidth_gbps": [[0]]}, "n.json: bandwidth_gbps: 4 rows of 4 numbers were expected"),
    ({"bandwidth_gbps": []}, "n.json: bandwidth_gbps: 4 rows of 4 numbers were expected"),
    ({"predicted_us": []}, "n.json: predicted_us: 4 rows of 4 numbers were expected"),
    ({"halves_us": [[[0] * 4] * 4, [["x"] * 4] * 4]}, 'n.json: halves_us[1][0][0]: "x" is not a number or null'),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_network_is_refused_and_changes_nothing(bad: str | dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(bad if isinstance(bad, str) else json.dumps(network(**bad)))
    (tmp_path / "hostfile").write_text("an older result\n")
    refuses(tmp_path, ["reorder", "n.json", "--format", "openmpi", "-o", "hostfile"], message)


def test_a_bound_by_predicted_pairs_is_an_estimate(tmp_path: Path) -> None:
    rows = network()["latency_us"]
    rows[0][2] = rows[2][0] = None
    predicted = [[0 if i == j else 50 for j in range(4)] for i in range(4)]
    write(tmp_path / "n.json", network(latency_us=rows, predicted_us=predicted, plan="adaptive"))
    done = typed("reorder", "n.json", "--json", cwd=tmp_path)
    assert "estimated bound" in done.stderr
    assert "no order" not in done.stderr
    assert json.loads(done.stdout)["estimated_bound"] is True
    write(tmp_path / "whole.json", network())
    assert "estimated_bound" not in json.loads(typed("reorder", "whole.json", "--json", cwd=tmp_path).stdout)


def test_a_round_trip_of_zero_is_doubted_by_every_command(tmp_path: Path) -> None:
    rows = network()["latency_us"]
    rows[0][1] = rows[1][0] = 0
    write(tmp_path / "n.json", network(latency_us=rows))
    for words in ("reorder n.json", "cost n.json --algo ring", "report --terminal n.json"):
        assert "a round trip of 0, first a and b" in typed(*words.split(), cwd=tmp_path).stderr
    done = typed("doctor", "n.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "round trips of 0 us between different hosts" in done.stdout


def test_pairs_that_were_not_measured_and_cannot_be_avoided_are_named(tmp_path: Path) -> None:
    """Nobody but a was measured against d."""
    rows = network()["latency_us"]
    for i in (1, 2):
        rows[i][3] = rows[3][i] = None
    write(tmp_path / "n.json", network(latency_us=rows))
    assert typed("reorder", "n.json", "--json", cwd=tmp_path).returncode == 3
    done = typed("reorder", "n.json", "--prove", "--json", cwd=tmp_path)
    assert done.returncode == 3
    order = json.loads(done.stdout)
    assert (order["lower_bound"], order["gap"], order["proven"]) == (None, None, False)
    _, message, proof = done.stderr.splitlines()
    used = {frozenset(pair) for pair in zip(order["hosts"], order["hosts"][1:] + order["hosts"][:1], strict=True)}
    (pair,) = used & {frozenset("bd"), frozenset("cd")}
    assert message.startswith(
        f"plink: no order was found without pairs that were not measured: {' - '.join(sorted(pair))}; "
    )
    assert message.endswith("`plink probe HOSTS --resume` measures them")
    assert proof == "plink: no proof: it would need the pairs that were not measured"


def test_nothing_measured_has_no_answer(tmp_path: Path) -> None:
    rows = [[0 if i == j else None for j in range(4)] for i in range(4)]
    write(tmp_path / "n.json", network(latency_us=rows))
    message = "n.json: no pair was measured; measure them: plink probe, or give --prior FILE"
    refuses(tmp_path, ["reorder", "n.json"], message, code=4)


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("no/such/folder", 2, "no/such/folder: there is no folder no/such"),
        ("/dev/full", 1, "cannot write /dev/full: No space left on device"),
        (".", 2, ".: is a folder; name a file in it"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(target: str, code: int, message: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    refuses(tmp_path, ["reorder", "n.json", "-o", target], message, code)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algo", "star"), "--algo star: choose one of ring"),
        (("--format", "slrum"), "--format slrum: did you mean slurm?"),
        (("--json", "--format", "hosts"), "--json prints the order itself"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    refuses(tmp_path, ["reorder", "n.json", *words], message)


def test_debug_shows_where(tmp_path: Path) -> None:
    done = typed("--debug", "reorder", "gone.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "plink: error: gone.json: no such file"

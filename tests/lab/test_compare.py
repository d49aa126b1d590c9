"""`plink compare` to its end: whose metric counts, what the gain is, what is kept, what stops it."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from plink.model.network import read_network
from plink.model.storage import read_document
from tests.cli.files import write
from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts, write_script
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
# Rank 0 on the k-th host of the hosts file takes 4 - k "seconds", and a fifth more in the fourth run of all; the other
# ranks report others. The runs are counted by the folders they leave.
PROGRAM = """
import json, os, sys, time
names = [line.split()[0] for line in open("hosts.txt") if line[0] not in "#\\n"]
place, runs = names.index(os.uname().nodename), len(os.listdir(".plink/runs"))
if sys.argv[1:] == ["fails"] and runs == 2 and os.environ["RANK"] == "1":
    sys.exit(3)
if sys.argv[1:] == ["waits"] and runs == 3:
    time.sleep(100)
print("begun")
print(json.dumps({"loss": 7, "seconds": (4 - place) * (1.2 if runs == 4 else 1)}))
"""
COMPARING = """
import json, plink
hosts, order = plink.read_hosts("hosts.txt"), plink.read_order(".plink/order.json")
begun = []
observer = plink.RunObserver(lambda rank, stream, line: begun.append(rank) if line == "begun" else None)
request = plink.CompareRequest(pairs=2, metric="seconds")
kept = plink.LaunchRequest(record=plink.RecordRequest())
compared = plink.compare(plink.Job("train.py"), hosts, order, request, kept, observer)
try:
    plink.compare(plink.Job("train.py"), order.arrange(hosts, "order"), order)
except plink.NoAnswer as error:
    print(json.dumps([compared.gain, [run.order for run in compared.runs], len(begun), str(error)]))
"""
STUDENT_975 = 12.7062  # of one degree of freedom


@pytest.fixture
def measured(small_lab: Lab, tmp_path: Path) -> Path:
    """A folder in which the four hosts have been measured and ordered: the third of the hosts file comes first."""
    write_hosts(small_lab, tmp_path)
    write_script(tmp_path, PROGRAM)
    names = small_lab.hosts.names
    network = tmp_path / ".plink" / "network.json"
    network.parent.mkdir()
    write(
        network,
        {
            "schema": "plink.network/1",
            "lab": small_lab.name,
            "hosts": [host.to_json() for host in small_lab.hosts],
            "latency_us": [[0 if a == b else 100 for a in names] for b in names],
            "bandwidth_gbps": None,
        },
    )
    order = [names[k] for k in (2, 0, 3, 1)]
    order_document = {
        "schema": "plink.order/1",
        "algo": "ring",
        "hosts": order,
        "network": read_network(network).fingerprint(),
    }
    write(network.with_name("order.json"), order_document)
    return tmp_path


def compare(folder: Path, figure: str, *more: str) -> "tuple[int, str, str]":
    """Two pairs of runs: exit code, standard output, standard error."""
    done = plink("compare", "--hosts", "hosts.txt", "--pairs", "2", "--metric", figure, "train.py", *more, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def test_the_gain_is_the_one_worked_out_by_hand(small_lab: Lab, measured: Path) -> None:
    """4 and 4.8 seconds in the given order, 2 and 2 in plink's: ratios 2 and 2.4, and Student's interval of their
    logarithms, which with two pairs holds 1."""
    code, out, err = compare(measured, "seconds")
    assert code == 0, err
    gain, half = math.sqrt(2 * 2.4), STUDENT_975 * math.log(2.4 / 2) / 2
    low, high = gain / math.exp(half), gain * math.exp(half)
    assert out.splitlines()[-4:] == [
        "given order: seconds 4.4 s, median of 2",
        "plink order: seconds 2 s, median of 2",
        f"gain {gain:.2f} times, 95% between {low:.2f} and {high:.2f}",
        "that is within the noise of 2 pairs: no significant difference between the orders",
    ]
    document = read_document(measured / ".plink" / "compare.json")
    assert list(Draft202012Validator(read_document(SCHEMAS / "compare.schema.json")).iter_errors(document)) == []
    assert document["gain"] == pytest.approx(gain, abs=1e-4)
    assert document["interval"] == pytest.approx([low, high], abs=1e-3)
    assert (document["metric"], document["pairs"], document["confidence"]) == ("seconds", 2, 0.95)
    assert [(run["order"], run["pair"], run["value"]) for run in document["runs"]] == [
        ("given", 0, 4),
        ("plink", 0, 2),
        ("plink", 1, 2),
        ("given", 1, pytest.approx(4.8)),
    ]
    recorded = {run["id"]: run for run in json.loads(plink("runs", "--json", cwd=measured).stdout)["runs"]}
    assert set(recorded) == {run["id"] for run in document["runs"]}
    first = {"given": small_lab.hosts.names[0], "plink": small_lab.hosts.names[2]}
    for run in document["runs"]:
        assert recorded[run["id"]]["compared"] == run["order"]
        assert recorded[run["id"]]["hosts"][0]["name"] == first[run["order"]]
        assert recorded[run["id"]]["proof"]["held"] is True


def test_ctrl_c_keeps_the_result_of_whole_pairs(measured: Path, start: Callable[..., Running]) -> None:
    """In the third run of four: that of the first pair, 4 against 2 seconds."""
    arguments = "--pairs", "2", "--metric", "seconds", "train.py", "waits"
    running = start("compare", "--hosts", "hosts.txt", *arguments)
    until(lambda: len(list(measured.glob(".plink/runs/*"))) == 3, 60, "the third run")
    running.process.send_signal(signal.SIGINT)
    assert running.ends(10) == 130
    document = read_document(measured / ".plink" / "compare.json")
    assert (document["pairs"], document["gain"], len(document["runs"])) == (1, 2, 2)
    assert "gain 2.00 times" in running.out


def test_a_mesh_runs_its_own_traffic(small_lab: Lab, measured: Path) -> None:
    """Both kinds of groups of four ranks: seconds of each in both orders, and the gain of a step."""
    mesh = {"schema": "plink.mesh/1", "mesh": "pp=2,dp=2", "traffic": ["pp=p2p:200KB*4", "dp=1MB"]}
    write(measured / "job.json", mesh)
    compared = "compare", "--hosts", "hosts.txt", "--mesh-file", "job.json", "--pairs", "1"
    refused = plink(*compared, cwd=measured)
    assert refused.returncode == 2
    assert "reorder --mesh-file job.json" in refusal_of(refused.stderr)
    ordered = plink("reorder", "--mesh-file", "job.json", "--model", "contention", "--max-moves", "100", cwd=measured)
    assert ordered.returncode == 0, ordered.stderr
    order = read_document(measured / ".plink" / "order.json")
    order["hosts"] = order["hosts"][2:] + order["hosts"][:2]  # of hosts that are alike every order is the given one
    write(measured / ".plink" / "order.json", order)
    done = plink(*compared, cwd=measured)
    assert done.returncode == 0, done.stderr
    document = read_document(measured / ".plink" / "compare.json")
    assert list(Draft202012Validator(read_document(SCHEMAS / "compare.schema.json")).iter_errors(document)) == []
    assert [row["traffic"] for row in document["traffic"]] == ["pp p2p", "dp all-reduce"]
    assert "traffic of a step" in done.stdout
    baseline_s, _ = (run["value"] for run in document["runs"])
    assert baseline_s == pytest.approx(sum(row["given_s"] for row in document["traffic"]), rel=0.5)


def test_programs_compare_orders(small_lab: Lab, measured: Path) -> None:
    """As the command does; nothing is written but the runs that were asked for, and hosts in that order are refused."""
    write_script(measured, COMPARING, "comparing.py")
    done = subprocess.run(
        [sys.executable, "comparing.py"], cwd=measured, capture_output=True, text=True, timeout=120, check=True
    )
    gain, orders, lines, refused = json.loads(done.stdout)
    assert (gain, orders) == (pytest.approx(math.sqrt(2 * 2.4), abs=1e-4), ["given", "plink", "plink", "given"])
    assert lines == 4 * 4  # "begun", of every rank of every run
    assert "nothing to compare" in refused
    assert len(list(measured.glob(".plink/runs/*"))) == 4
    assert not (measured / ".plink" / "compare.json").exists()


def refusal_of(err: str) -> str:
    """The one line that says why it ended."""
    (error,) = [line for line in err.splitlines() if line.startswith("plink: error: ")]
    assert err.splitlines()[-1] == error
    assert "Traceback" not in err
    return error.removeprefix("plink: error: ")


def test_a_run_that_fails_is_named(measured: Path) -> None:
    """The second of four, in plink's order: no more are begun, and there is no gain."""
    code, _, err = compare(measured, "seconds", "fails")
    assert code == 1
    runs = json.loads(plink("runs", "--json", cwd=measured).stdout)["runs"]
    (failed,) = [run for run in runs if run["exit_code"]]
    assert (len(runs), failed["exit_code"], failed["compared"]) == (2, 3, "plink")
    name = failed["id"]
    message = refusal_of(err)
    assert message.startswith("in plink order rank ")
    assert " was the first to fail, with exit code 3" in message
    assert message.endswith(f"; `plink runs show {name}` shows more")
    assert not (measured / ".plink" / "compare.json").exists()


@pytest.mark.parametrize("figure", ["minutes", "took ([0-9]+) s"])
def test_missing_metric_is_reported_after_the_first_run(measured: Path, figure: str) -> None:
    code, _, err = compare(measured, figure)
    assert code == 1
    (run,) = json.loads(plink("runs", "--json", cwd=measured).stdout)["runs"]
    name = run["id"]
    assert (
        refusal_of(err)
        == f"--metric {figure}: no rank of the run {name} printed one; `plink runs show {name}` shows more"
    )
    assert not (measured / ".plink" / "compare.json").exists()

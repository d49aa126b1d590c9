"""``plink check --results``: recorded runs judged without hosts; what CI is given; what is refused before any run."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.files import network, refusal, write
from tests.conftest import typed

ORDERS = ["abcd", "acbd", "abdc", "adbc"]


def series(times: list[list[float]], **changes: Any) -> dict[str, Any]:
    """A Gloo ring over four hosts: as given it leaves the racks four times, else twice."""
    runs = [
        {"order": f"{k + 1} of 4", "hosts": list(hosts), "predicted_us": 100.0 * (k + 1), "achieved_s": seconds}
        for k, (hosts, seconds) in enumerate(zip(ORDERS, times, strict=True))
    ]
    return {"algo": "gloo", "model": "latency", "size_bytes": 1000, "options": [], "runs": runs} | changes


def checked(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"schema": "plink.check/1", "network": None, "ok": True, "checks": list(entries)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "cloud.json", network(hosts=[{"name": name, "address": "10.0.0.1"} for name in "abcd"]))
    write(tmp_path / "good.json", checked(series([[1.0, 1.2], [2.0, 2.2], [3.0, 3.1], [4.0, 4.4]], model="contention")))
    write(tmp_path / "bad.json", checked(series([[4.0, 4.2], [3.0, 3.2], [2.0, 2.1], [1.0, 1.4]])))
    return tmp_path


def test_figures_by_hand(here: Path) -> None:
    done = typed("check", "--results", "good.json", "--json", "--min-spearman", "0.9", cwd=here)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (entry,) = document["checks"]
    assert (document["ok"], document["failures"], document["spearman"]) == (True, [], 1.0)
    assert (entry["spearman"], entry["interval"][1], entry["orders"]) == (1.0, 1.0, 4)
    assert entry["calibration"] == {"factor": 10500.0, "low": 10166.6667, "high": 11000.0}
    # medians of the four orders: 2.5 and 2.65 s; the first took 1.0 and 1.2 s
    assert entry["gain"]["gain"] == pytest.approx((2.5 / 1.0 * 2.65 / 1.2) ** 0.5, abs=1e-4)


def test_falling_short_is_exit_code_1_and_a_failure_in_junit(here: Path) -> None:
    done = typed("check", "--results", "bad.json", "--min-spearman", "0.9", "--junit", "out.xml", cwd=here)
    assert done.returncode == 1
    assert "is -1.000, below --min-spearman 0.9" in done.stderr
    assert "Spearman's rank correlation: -1.000" in done.stdout
    top = ElementTree.parse(here / "out.xml").getroot()
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("1", "1", "0")
    (case,) = top.iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("plink.gloo", "spearman")
    failure = case.find("failure")
    assert failure is not None
    assert "below --min-spearman 0.9" in str(failure.get("message"))


def test_costs_are_recomputed_by_another_model(here: Path) -> None:
    """Recorded by `contention`; by latency nothing is told of times, so there is no calibration."""
    words = ("check", "cloud.json", "--results", "good.json", "--json")
    (entry,) = json.loads(typed(*words, cwd=here).stdout)["checks"]
    assert (entry["model"], entry["calibration"] is None) == ("contention", False)
    (entry,) = json.loads(typed(*words, "--model", "latency", cwd=here).stdout)["checks"]
    assert (entry["model"], entry["calibration"]) == ("latency", None)
    assert [run["predicted_us"] for run in entry["runs"]] == [400, 220, 220, 220]


def test_against_a_baseline(here: Path) -> None:
    """Half as fast, and the model ranks the other way round: two failures; the same again: none."""
    slow = series([[2.0, 2.4], [1.9, 1.95], [1.8, 1.85], [1.7, 1.75]], model="contention")
    write(here / "slow.json", checked(slow))
    words = ("check", "--results", "slow.json", "--max-regression", "good.json", "--json", "--junit", "out.xml")
    done = typed(*words, cwd=here)
    assert done.returncode == 1
    first, second = json.loads(done.stdout)["failures"]
    assert first == "the cheapest order takes 2.2 s; 1.1 s in the baseline: 2.00 times, more than 1.10"
    assert second == "Spearman's rank correlation -1.000; 1.000 in the baseline, worse than tolerated"
    (entry,) = json.loads(done.stdout)["checks"]
    assert entry["baseline"] == {"then_s": 1.1, "now_s": 2.2, "ratio": 2.0, "spearman": 1.0}
    assert ElementTree.parse(here / "out.xml").getroot().get("failures") == "2"
    tolerant = typed(*words, "--tolerance", "1.5", cwd=here)
    assert len(json.loads(tolerant.stdout)["failures"]) == 1
    same = typed("check", "--results", "good.json", "--max-regression", "good.json", cwd=here)
    assert same.returncode == 0, same.stderr
    assert same.stdout.endswith(
        "the cheapest order takes 1.1 s; 1.1 s in the baseline: 1.00 times\n"
        "Spearman's rank correlation 1.000; 1.000 in the baseline\n"
    )


def test_other_options_are_another_collective_and_other_hosts_are_named(here: Path) -> None:
    times = [[1.0], [2.0], [3.0], [4.0]]
    write(here / "two.json", checked(series(times, algo="bcube", options=["base=2"])))
    write(here / "four.json", checked(series(times, algo="bcube", options=["base=4"])))
    done = typed("check", "--results", "two.json", "--max-regression", "four.json", "--junit", "out.xml", cwd=here)
    assert done.returncode == 4
    assert "no run of bcube of this size and these options" in done.stderr
    top = ElementTree.parse(here / "out.xml").getroot()
    assert (top.get("failures"), top.get("errors")) == ("0", "1")
    other_collective = series(times, algo="bcube", options=["base=2"])
    for run in other_collective["runs"]:
        run["hosts"] = list("wxyz")
    write(here / "others.json", checked(other_collective))
    words = ("check", "--results", "two.json", "--max-regression", "others.json", "--junit", "out.xml")
    assert typed(*words, cwd=here).returncode == 0
    assert "which was run on other hosts" in (here / "out.xml").read_text()


@pytest.mark.parametrize(("orders", "costs"), [(2, 4), (4, 2), (4, 4)])
def test_what_few_orders_say_is_not_passed(orders: int, costs: int, here: Path) -> None:
    """Of two orders every second guess is right, and of four with two costs every sixth."""
    few = series([[1.0], [2.0], [3.0], [4.0]])
    few["runs"] = [run | {"predicted_us": 1.0 + k * costs // 4} for k, run in enumerate(few["runs"][:orders])]
    write(here / "few.json", checked(few))
    words = ("check", "--results", "few.json", "--min-spearman", "0.9", "--json", "--junit", "out.xml")
    done = typed(*words, cwd=here)
    top = ElementTree.parse(here / "out.xml").getroot()
    if orders < 4 or costs < 4:
        (message,) = json.loads(done.stdout)["failures"]
        assert f"{orders} orders with 2 different costs can be ranked in {2 if orders == 2 else 6} ways only" in message
        assert (done.returncode, done.stderr) == (4, f"plink: error: {message}\n")
        assert (top.get("failures"), top.get("errors")) == ("0", "1")
        error = top.find(".//testcase[@name='spearman']/error")
        assert error is not None
        assert str(error.get("message")).startswith(message)
    else:
        assert (done.returncode, done.stderr, top.get("errors")) == (0, "", "0")
    assert typed("check", "--results", "few.json", cwd=here).returncode == 0


def test_file_content_is_escaped(here: Path) -> None:
    odd = series([[1.0], [2.0], [3.0], [4.0]], algo="[/x]\x1b[31m")
    odd["runs"][0]["order"] = "[/y] [bold]z\x1b[2J"
    write(here / "odd.json", checked(odd))
    done = typed("check", "--results", "odd.json", "--junit", "out.xml", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "[/x]" in done.stdout
    assert "[/y] [bold]z" in done.stdout
    assert "\x1b" not in done.stdout
    assert next(ElementTree.parse(here / "out.xml").getroot().iter("testsuite")).get("name") == "[/x]\\x1b[31m"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--results", "good.json", "--dry-run"], 2, "--dry-run goes with --measure"),
        (["--results", "good.json", "--model", "latency"], 2, "--model goes with --measure, or with NETWORK"),
        (["cloud.json", "--measure", "--dry-run", "-o", "x"], 2, "-o: --dry-run measures nothing"),
        (["--results", "cloud.json"], 2, "schema: expected 'plink.check/1' or 'plink.demo/1'"),
        (["--measure", "--algo", "lightgbm"], 2, "choose one of ring"),
        (["cloud.json", "--results", "unrelated.json"], 4, "is not one of the hosts in cloud.json"),
        (["--results", "none.json"], 2, "checks[0].ranks: expected a whole number >= 1"),
        (["cloud.json", "--results", "plain.json"], 2, "omit NETWORK"),
        (["--results", "unpredicted.json"], 4, "of order 1 of 4; give the NETWORK that it was run on"),
        (["--results", "null.json"], 2, "a JSON object was expected, this is null"),
        (["--results", "newer.json"], 2, "got 'plink.check/2'"),
        (["--results", "zero.json"], 2, "takes more than 0 seconds"),
        (["--results", "good.json", "--max-regression", "empty.json"], 2, "checks: expected a list of 1 or more"),
        (["--measure", "--max-regression", "good.json", "-o", "./good.json"], 2, "that is what is read"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], code: int, message: str, here: Path) -> None:
    plain = {"order": "given", "predicted_us": 1.0, "achieved_s": [1.0]}
    write(here / "plain.json", {"schema": "plink.check/1", "runs": [plain, plain | {"achieved_s": [2.0]}]})
    write(here / "empty.json", checked())
    write(here / "null.json", None)
    write(here / "newer.json", checked() | {"schema": "plink.check/2"})
    write(here / "none.json", checked(series([[1.0], [2.0], [3.0], [4.0]], ranks=0)))
    strange = series([[1.0], [2.0], [3.0], [4.0]])
    strange["runs"][2]["hosts"] = list("abcx")
    write(here / "unrelated.json", checked(strange))
    unpredicted = series([[1.0], [2.0], [3.0], [4.0]])
    del unpredicted["runs"][0]["predicted_us"]
    write(here / "unpredicted.json", checked(unpredicted))
    write(here / "zero.json", checked(series([[0.0], [2.0], [3.0], [4.0]])))
    assert message in refusal(typed("check", *words, cwd=here), code)


def test_runs_that_cannot_be_read_are_an_error_for_ci(here: Path) -> None:
    """The file of an earlier day must not stay there and say that all is well."""
    (here / "out.xml").write_text("of yesterday")
    done = typed("check", "--results", "nowhere.json", "--junit", "out.xml", cwd=here)
    assert "no such file" in refusal(done)
    assert ElementTree.parse(here / "out.xml").getroot().get("errors") == "1"


def test_orders_with_unmeasured_pairs_are_not_used(here: Path) -> None:
    """A search takes such a pair to be ten times as far as any other; the clock knows nothing of that."""
    rows = [[0 if i == j else 10 * (i - j) ** 2 for j in range(5)] for i in range(5)]
    rows[0][2] = rows[2][0] = None  # type: ignore[call-overload]
    hosts = [{"name": name, "address": "10.0.0.1"} for name in "abcde"]
    write(here / "hole.json", network(hosts=hosts, latency_us=rows))
    words = ("check", "hole.json", "--measure", "--dry-run", "--json", "--algo", "ring")
    orders_ = json.loads(typed(*words, cwd=here).stdout)["orders"]
    assert orders_
    for row in orders_:
        a, c = row["hosts"].index("a"), row["hosts"].index("c")
        assert (a - c) % 5 in (2, 3)
    rows[2] = [None] * 5  # type: ignore[list-item]
    for row in rows:
        row[2] = None  # type: ignore[call-overload]
    write(here / "dead.json", network(hosts=hosts, latency_us=rows))
    refused = refusal(typed("check", "dead.json", "--measure", "--dry-run", cwd=here), 4)
    assert "too many pairs were not measured; `plink probe HOSTS --resume`" in refused


def test_hosts_that_are_all_alike_have_nothing_to_rank(here: Path) -> None:
    write(here / "alike.json", network(latency_us=[[0 if i == j else 50 for j in range(4)] for i in range(4)]))
    assert "costs the same" in refusal(typed("check", "alike.json", "--measure", "--dry-run", cwd=here), 4)


def test_round_trips_within_noise_in_one_rack_are_nothing_to_rank(here: Path) -> None:
    """Rates of the hosts were measured: a clock sees these, and no differences of a few tenths of a microsecond."""
    rows = [[0 if i == j else 6 + 0.1 * ((3 * i + 5 * j) % 7) for j in range(4)] for i in range(4)]
    flows = [
        {"from": a, "to": b, "gbps": 0.198, "both_ways": both}
        for both in (False, True)
        for a in "abcd"
        for b in "abcd"
        if a != b
    ]
    hosts = [{"name": name, "address": "10.0.0.1"} for name in "abcd"]
    write(here / "rack.json", network(hosts=hosts, latency_us=rows, host_flows=flows))
    words = ("check", "rack.json", "--measure", "--algo", "gloo", "--dry-run")
    assert "costs the same" in refusal(typed(*words, cwd=here), 4)
    assert typed(*words, "--model", "latency", cwd=here).returncode == 0
    write(here / "runs.json", checked(series([[1.0], [2.0], [3.0], [4.0]], model=None, size_bytes=16e6)))
    assert typed("check", "rack.json", "--results", "runs.json", cwd=here).returncode == 4


def test_a_dry_run_lists_orders_by_cost(here: Path) -> None:
    done = typed("check", "cloud.json", "--measure", "--dry-run", "--json", "--algo", "ring", cwd=here)
    rows = json.loads(done.stdout)["orders"]
    assert [row["predicted_us"] for row in rows] == sorted(row["predicted_us"] for row in rows)
    assert all(sorted(row["hosts"]) == list("abcd") for row in rows)
    assert not (here / ".plink" / "check.json").exists()


def test_equal_costs_are_ties_in_the_document_too(here: Path) -> None:
    """Costs that differ by less than the document says; from the document, the correlation is the same."""
    entry = series([[2.0], [1.0], [4.0], [3.0]])
    for k, run in enumerate(entry["runs"]):
        run["predicted_us"] = 100 + k * 1e-7 if k < 2 else 200.0 + k
    write(here / "near.json", checked(entry))
    first = typed("check", "--results", "near.json", "--json", cwd=here)
    (here / "written.json").write_text(first.stdout)
    second = typed("check", "--results", "written.json", "--json", cwd=here)
    ours, again = (json.loads(done.stdout)["checks"][0] for done in (first, second))
    assert ours["spearman"] == again["spearman"]
    assert ours["calibration"] == again["calibration"]


def test_a_limit_is_of_what_ties_allow(here: Path) -> None:
    """Two levels of three orders have 0.878 at most."""
    costs, times = (100, 100.00001, 100, 200, 200.00001, 200), (1.0, 1.1, 1.2, 4.0, 3.9, 3.8)
    entry = series([[1.0]] * 4)
    entry["runs"] = [
        {"order": str(k), "predicted_us": cost, "achieved_s": [time]}
        for k, (cost, time) in enumerate(zip(costs, times, strict=True))
    ]
    write(here / "levels.json", checked(entry))
    done = typed("check", "--results", "levels.json", "--min-spearman", "0.9", "--json", cwd=here)
    document = json.loads(done.stdout)
    (check,) = document["checks"]
    assert (done.returncode, document["spearman"], check["attainable"]) == (0, 0.8783, 0.8783)
    for run, time in zip(entry["runs"], (1.0, 4.0, 1.1, 3.9, 4.1, 4.2), strict=True):
        run["achieved_s"] = [time]
    write(here / "levels.json", checked(entry))
    failed = typed("check", "--results", "levels.json", "--min-spearman", "0.9", cwd=here)
    assert failed.returncode == 1
    assert re.search(r"rank correlation: 0\.\d+ .* of 6 orders; equal costs allow 0\.878", failed.stdout)
    assert "below --min-spearman 0.9 of the 0.878 that equal costs allow" in failed.stderr

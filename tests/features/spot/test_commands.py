"""``plink spot``: results of each command, their schemas, and what is refused."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from plink.model.storage import read_document
from solvers.spot.footprint import Application
from tests.cli.files import refusal
from tests.conftest import typed
from tests.docs.pages import ROOT
from tests.docs.samples import MARKET_FILE, write_samples
from tests.model.spot.test_price_files import entry, page


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days of made prices of two types in two zones, and their market file."""
    folder = tmp_path_factory.mktemp("spot")
    write_samples(folder)
    return folder


def spot(here: Path, *words: str) -> Any:
    """What a command prints as JSON, held against its schema."""
    done = typed("spot", *words, "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    name = document["schema"].removeprefix("plink.").partition("/")[0]
    jsonschema.validate(document, read_document(ROOT / "docs" / "schemas" / f"{name}.schema.json"))
    return document


def shown(here: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    done = typed("spot", *words, cwd=here)
    assert done.returncode == 0, done.stderr
    return done


def test_read(here: Path) -> None:
    document = spot(here, "read", "market.toml", "--prices", "prices.json")
    assert [(row["type"], row["zone"]) for row in document["markets"]] == [
        (kind, zone) for zone in ("zone-a", "zone-b") for kind in ("c4.2xlarge", "c4.xlarge")
    ]
    assert all(0.05 < row["median"] / row["on_demand"] < 0.3 for row in document["markets"])
    table = shown(here, "read", "--prices", "prices.json").stdout.splitlines()
    assert table[0].split()[:3] == ["type", "zone", "product"]
    assert len(table) == 5


def test_made_prices_are_the_same_by_seed(here: Path) -> None:
    words = ("read", "market.toml", "--made", "3")
    first, again, other = (shown(here, *words, "--seed", seed, "-o", "-").stdout for seed in "112")
    assert first == again != other
    assert json.loads(first)["made"] == "plink spot read --made 3 --seed 1"


def test_odds(here: Path) -> None:
    document = spot(here, "odds", "--prices", "prices.json", "--zone", "zone-a", "--type", "c4.xlarge")
    (market,) = document["markets"]
    betas = [bid["beta_60min"] for bid in market["bids"]]
    assert betas == sorted(betas, reverse=True)
    assert all(bid["beta_15min"] <= bid["beta_30min"] <= bid["beta_60min"] for bid in market["bids"])
    assert betas[0] > 0.6  # a kind of market that changes often
    assert "above price" in shown(here, "odds", "--prices", "prices.json").stdout


def test_odds_go_by_what_was_known(here: Path) -> None:
    """The second half of the history does not count."""
    early = spot(here, "odds", "--prices", "prices.json", "--until", "2023-11-19")["markets"][0]
    late = spot(here, "odds", "--prices", "prices.json")["markets"][0]
    assert early["hours"] < late["hours"]
    assert early["bids"] != late["bids"]


def test_rates_of_availability(here: Path) -> None:
    (here / "us-east-2b_v100.json").write_text('{"metadata": {"gap_seconds": 300}, "data": [16, 0, 16, 16, 6]}')
    (rate,) = spot(here, "odds", "--prices", "us-east-2b_v100.json", "--bucket", "0")["rates"]
    assert (rate["interruptions"], rate["instance_hours"]) == (26, 4)
    assert rate["per_hour"] == pytest.approx(26 / 28, abs=0.01)
    assert "evictions/h" in shown(here, "odds", "--prices", "us-east-2b_v100.json").stdout
    (row,) = spot(here, "read", "--prices", "us-east-2b_v100.json")["availability"]
    assert (row["available"], row["spells"]) == (0.8, 2)


def test_simulate(here: Path) -> None:
    words = ("simulate", "market.toml", "--prices", "prices.json", "--starts", "6", "--hours", "1")
    document = spot(here, *words)
    assert len(document["results"]) == 8
    for zone in ("zone-a", "zone-b"):
        rows = {row["strategy"]: row for row in document["results"] if row["zone"] == zone}
        assert (rows["on-demand"]["cost_ratio"], rows["on-demand"]["time_ratio"]) == (1, 1)
        assert rows["bidbrain-replacing"]["cost_ratio"] < 0.5
        assert rows["bidbrain-replacing"]["time_ratio"] < rows["young-checkpoint"]["time_ratio"]
        shares = ("share_on_demand", "share_paid", "share_free")
        assert all(sum(row[share] for share in shares) == pytest.approx(1, abs=1e-3) for row in rows.values())
    assert spot(here, *words) == document
    assert spot(here, *words, "--seed", "1") != document
    assert "cost/on-demand" in shown(here, *words, "--strategies", "bidbrain").stdout


@pytest.mark.parametrize("words", ["simulate --starts 3 --hours 1 --strategies bidbrain", "advise"])
@pytest.mark.parametrize("is_late", [False, True])
def test_market_with_too_short_a_history_is_left_out(here: Path, words: str, is_late: bool) -> None:
    """The market and, in a simulation, no other one of its zone."""
    document = json.loads((here / "prices.json").read_text())
    market = next(row for row in document["markets"] if (row["zone"], row["type"]) == ("zone-b", "c4.xlarge"))
    first = market["until_s"] - 600 if is_late else market["times_s"][0]
    market |= {"times_s": [first], "prices": [0.05], "until_s": first + 600}
    (here / "part.json").write_text(json.dumps(document))
    done = shown(here, *words.split(), "market.toml", "--prices", "part.json")
    assert "c4.xlarge in zone-b" in done.stderr
    assert "zone-a" in done.stdout


@pytest.mark.parametrize(("name", "begin"), [("job.svg", b"<?xml"), ("job.png", b"\x89PNG")])
def test_picture_of_a_job(here: Path, tmp_path: Path, name: str, begin: bytes) -> None:
    words = ("simulate", "market.toml", "--prices", "prices.json", "--starts", "2", "--hours", "1")
    done = shown(here, *words, "--strategies", "standard-agile", "--picture", str(tmp_path / name))
    assert name in done.stderr
    content = (tmp_path / name).read_bytes()
    assert content.startswith(begin)
    assert name.endswith("png") or b"standard-agile in" in content


def test_simulate_with_a_deadline(here: Path) -> None:
    words = ("simulate", "market.toml", "--prices", "prices.json", "--starts", "6", "--hours", "1", "--deadline", "2h")
    document = spot(here, *words)
    assert document["deadline_s"] == 7200
    for row in document["results"]:
        assert row["missed"] == 0
    assert "missed" in shown(here, *words).stdout


@pytest.mark.parametrize("command", ["simulate", "advise", "drive"])
def test_defaults_of_a_job_s_times_are_documented(command: str, here: Path) -> None:
    shown_help = " ".join(shown(here, command, "--help").stdout.replace("│", " ").split())
    page = (ROOT / "docs" / "spot.md").read_text()
    for name in ("start_s", "add_s", "evict_s"):
        default = f"{getattr(Application(), name):g}"
        assert f"{name} = {default}" in shown_help
        assert re.search(rf"^{name} = .*default: {default}$", page, re.MULTILINE)


def test_advise(here: Path) -> None:
    document = spot(here, "advise", "market.toml", "--prices", "prices.json")
    assert (document["action"], document["cost_per_work"]) == ("acquire", None)
    costs = [row["cost_per_work"] for row in document["candidates"]]
    assert costs == sorted(costs)
    assert len(costs) == 10
    best = document["candidates"][0]
    assert f"{best['count']} x {best['type']} in {best['zone']}" in document["reason"]
    assert "acquire: " in shown(here, "advise", "market.toml", "--prices", "prices.json").stdout


def test_advise_about_what_is_held(here: Path) -> None:
    """Ten minutes before its hour ends; at the price of a spike it is not worth another hour."""
    text = MARKET_FILE + '[[held]]\nzone = "zone-a"\ntype = "c4.xlarge"\ncount = 40\nbid = 5.0\nheld_s = 3000\n'
    (here / "held.toml").write_text(text)
    document = spot(here, "advise", "held.toml", "--prices", "prices.json")
    (row,) = document["held"]
    assert row["renew"] is True
    assert row["cost_if_ended"] is None  # nothing else works
    assert document["cost_per_work"] > 0
    assert "if kept" in shown(here, "advise", "held.toml", "--prices", "prices.json").stdout


def test_advise_about_a_bid_below_the_price(here: Path) -> None:
    """By prices it is evicted already, so nothing is held; by a rate of evictions a bid says nothing."""
    held = MARKET_FILE + '[[held]]\nzone = "zone-a"\ntype = "c4.xlarge"\ncount = 40\nbid = 0.0001\nheld_s = 3000\n'
    (here / "below.toml").write_text(held)
    document = spot(here, "advise", "below.toml", "--prices", "prices.json")
    assert (document["held"], document["cost_per_work"]) == ([], None)
    assert "evicted already, for its bid of 0.0001 is below the price" in document["refused"][0]
    (here / "below.toml").write_text(held.replace("hourly-2016", "first-hour-free"))
    assert len(spot(here, "advise", "below.toml", "--prices", "prices.json")["held"]) == 1


def test_bids_that_come_to_the_same_are_shown_once(here: Path) -> None:
    """At a constant price all do: the lowest is shown. A single price is too little, whatever time is asked for."""
    rows = "".join(f"zone-a,c4.xlarge,{3600 * hour},0.05\n" for hour in range(100))
    (here / "flat.csv").write_text(f"zone,type,timestamp,price\n{rows}")
    (row,) = spot(here, "advise", "market.toml", "--prices", "flat.csv")["candidates"]
    assert row["bid"] == 0.0501
    (here / "flat.csv").write_text(f"zone,type,timestamp,price\n{rows.splitlines()[0]}\n")
    with pytest.raises(AssertionError, match="a single price"):
        spot(here, "advise", "market.toml", "--prices", "flat.csv")


def test_price_that_begins_now_is_the_price(here: Path) -> None:
    """At the last entry of a history, and later: quotes, bids and what is evicted go by it."""
    rows = "".join(f"zone-a,c4.xlarge,{3600 * hour},{0.05 if hour < 99 else 0.09}\n" for hour in range(100))
    (here / "jump.csv").write_text(f"zone,type,timestamp,price\n{rows}")
    held = '[[held]]\nzone = "zone-a"\ntype = "c4.xlarge"\ncount = 40\nbid = 0.06\nheld_s = 3000\n'
    (here / "jump.toml").write_text(MARKET_FILE + held)
    for at in ((), ("--at", "1970-01-05T03:00Z"), ("--at", "1970-01-05T03:01Z")):
        document = spot(here, "advise", "jump.toml", "--prices", "jump.csv", *at)
        assert {row["price"] for row in document["candidates"]} == {0.09}
        assert (document["held"], len(document["refused"])) == ([], 1)
    document = spot(here, "advise", "jump.toml", "--prices", "jump.csv", "--at", "1970-01-05T02:59Z")
    assert {row["price"] for row in document["candidates"]} == {0.05}
    assert len(document["held"]) == 1


def limited_gain(here: Path, of: Callable[[int, float], dict[str, Any]]) -> bool:
    """Whether more workers are worth less after a run that did not get faster beyond few of them.

    ``of`` tells an iteration's workers from their number and its seconds.
    """
    lines: list[dict[str, Any]] = [{"at": 0, "what": "log", "schema": "plink.elastic-log/1"}]
    at = 0.0
    for number in range(12):
        workers = (2, 4, 8)[number % 3]
        seconds = 0.5 + 8 / workers
        at += seconds
        lines.append({"at": at, "what": "iteration", "iteration": number, "seconds": seconds, "stage": 1,
                      "clock": number} | of(workers, seconds))  # fmt: skip
    (here / "elastic.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with_run = spot(here, "advise", "market.toml", "elastic.jsonl", "--prices", "prices.json")
    without = spot(here, "advise", "market.toml", "--prices", "prices.json")
    with_work, without_work = (each["candidates"][0]["added_work"] for each in (with_run, without))
    return bool(with_work < 0.5 * without_work)


def test_advise_by_the_iterations_of_a_run(here: Path) -> None:
    assert limited_gain(here, lambda workers, _: {"workers": workers})


def test_scaling_counts_workers_not_hosts_with_work(here: Path) -> None:
    """In logs of earlier versions the work of some hosts is missing."""

    def work(workers: int, seconds: float) -> dict[str, Any]:
        return {"workers": 4, "work": {f"node-{k}": [seconds, 0.0, 1] for k in range(workers)}}

    with pytest.raises(AssertionError, match="measured at one number of workers only"):
        limited_gain(here, work)


def test_today_s_billing_goes_by_rates(here: Path) -> None:
    (here / "today.toml").write_text(MARKET_FILE.replace("hourly-2016", "first-hour-free"))
    document = spot(here, "advise", "today.toml", "--prices", "prices.json")
    assert {row["bid"] for row in document["candidates"]} <= {0.199, 0.398}
    assert len(document["candidates"]) == 4


@pytest.mark.parametrize(("chunk", "warns"), [("chunk_cores = 6", True), ("chunk_cores = 8", False)])
def test_types_larger_than_an_allocation_are_named(here: Path, chunk: str, warns: bool) -> None:
    (here / "small.toml").write_text(f"{MARKET_FILE}{chunk}\n")
    done = typed("spot", "advise", "small.toml", "--prices", "prices.json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert ("c4.2xlarge: larger than an allocation" in done.stderr) == warns


REFUSALS = {
    "a type without an on-demand price": (
        MARKET_FILE.replace("on_demand = 0.199\n", ""), "types[0].on_demand: is missing"),
    "an unknown key": (MARKET_FILE + "[extra]\n", "extra: is no key"),
    "an unknown key of a type": (
        MARKET_FILE.replace("on_demand = 0.199", "on_demand = 0.199\nspot = 0.1"), "types[0].spot: is no key"),
    "an anchor of no type": (MARKET_FILE.replace('type = "c4.xlarge"', 'type = "m5"'), "m5 is none of types"),
    "a type twice": (MARKET_FILE.replace("c4.2xlarge", "c4.xlarge"), "was there before"),
    "no cores": (MARKET_FILE.replace("cores = 4", "cores = 0"), "types[0].cores"),
    "a chunk too small": (MARKET_FILE + "chunk_cores = 3\n", "no type is that small"),
    "a chunk too large": (MARKET_FILE + "chunk_cores = 1000\n", "more than max_cores"),
    "no TOML": ("types = [", "not TOML"),
    "other types": (MARKET_FILE.replace("c4.", "m9."), "no market of its types"),
    "another billing": (MARKET_FILE.replace("hourly-2016", "daily"), "choose one of"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_market_files_that_are_refused(name: str, here: Path) -> None:
    text, reason = REFUSALS[name]
    (here / "bad.toml").write_text(text)
    message = refusal(typed("spot", "advise", "bad.toml", "--prices", "prices.json", cwd=here))
    assert reason in message
    assert message.startswith("bad.toml")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("read", "--prices FILE"),
        ("read --made 3", "market file"),
        ("read --prices none.json", "no such file"),
        ("read --prices prices.json -o prices.json", "that is what is read"),
        ("odds --prices prices.json --zone mars", "choose one of c4.2xlarge in zone-a"),
        ("odds --prices prices.json --until soon", "'soon' is no date"),
        ("odds --prices prices.json --until 1999-01-01", "no prices before that time"),
        ("simulate market.toml --prices prices.json --strategies guess", "--strategies guess: choose some of"),
        ("simulate market.toml --prices prices.json --hours 0", "--hours 0"),
        ("simulate market.toml --prices prices.json --deadline 2h", "--deadline 2h: the reference machines need"),
        ("simulate market.toml --prices prices.json --deadline 90h", "--deadline 90h"),
        ("simulate market.toml --prices prices.json --deadline soon", "soon"),
        ("simulate market.toml --prices prices.json --deadline 10s", "--deadline 10s: the reference machines need"),
        ("simulate market.toml --prices prices.json --starts 0", "--starts 0"),
        ("simulate market.toml --prices prices.json --picture job.pdf", "--picture job.pdf"),
        ("simulate market.toml --prices prices.json --train-until 1999-01-01", "--train-until"),
        ("advise market.toml --prices prices.json --at 1999-01-01", "no prices before that time"),
        ("advise market.toml nothing --prices prices.json", "nothing"),
        ("advise market.toml", "--prices"),
        ("drive last market.toml", "drive market.toml last"),
        ("odds prices.json --market market.toml", "MARKET --prices"),
        ("read prices.json short.json", "--prices FILE"),
        ("read prices.json --prices prices.json", "prices.json: not TOML"),
        ("simulate market.toml prices.json", "--prices"),
    ],
)
def test_what_is_refused(words: str, reason: str, here: Path) -> None:
    assert reason in refusal(typed("spot", *words.split(), cwd=here))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("odds --prices short.json", "two hours of prices"),
        ("simulate market.toml --prices prices.json --hours 200", "longer histories"),
    ],
)
def test_questions_without_an_answer(words: str, reason: str, here: Path) -> None:
    page(here / "short.json", entry(0), entry(1, "0.05"))
    assert reason in refusal(typed("spot", *words.split(), cwd=here), code=4)


def test_two_products_are_refused_and_one_can_be_chosen(here: Path) -> None:
    entries = [entry(h, f"0.0{1 + h % 3}", ProductDescription=p) for p in ("Linux/UNIX", "Windows") for h in range(12)]
    page(here / "mixed.json", *entries)
    text = MARKET_FILE.replace('zones = ["zone-a", "zone-b"]\n', "").replace("c4.xlarge", "c4.large")
    (here / "mixed.toml").write_text(text)
    words = ("advise", "mixed.toml", "--prices", "mixed.json")
    assert "set product to one of them" in refusal(typed("spot", *words, cwd=here))
    (here / "mixed.toml").write_text('product = "Windows"\n' + text)
    assert spot(here, *words)["action"] == "acquire"

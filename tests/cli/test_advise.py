"""``plink advise`` on four hosts in two racks: advice that can be worked out by hand, a table and a picture."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import network, refuses, write
from tests.cli.test_cost import HOSTS, SHARED
from tests.conftest import typed

# 1 Gbit/s between any two, 8 us a kB, and every hop as long: ring and recursive doubling differ by rounds and bytes.
GBPS = [[None if i == j else 1 for j in range(4)] for i in range(4)]
EVEN = [[0 if i == j else 100 for j in range(4)] for i in range(4)]
TWO = ("--algos", "ring,recursive-doubling")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with networks in it: one like the other hosts, two racks, b - d unmeasured, one host, slots."""
    rows = network()["latency_us"]
    rows[1][3] = rows[3][1] = None
    write(tmp_path / "even.json", network(hosts=HOSTS, latency_us=EVEN, bandwidth_gbps=GBPS))
    write(tmp_path / "racks.json", network(hosts=HOSTS, shared_links=SHARED))
    write(tmp_path / "holes.json", network(hosts=HOSTS, latency_us=rows))
    write(tmp_path / "one.json", network(hosts=HOSTS[:1], latency_us=[[0]]))
    write(tmp_path / "slots.json", network())
    return tmp_path


def advice(here: Path, *words: str) -> Any:
    """What the command prints as JSON."""
    done = typed("advise", *words, "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_crossover_by_hand(here: Path) -> None:
    """Ring: 6 rounds of 50 us, 1.5 vectors of 8000 us a MB. Recursive doubling: 2 rounds, 2 vectors. Equal at 50 kB."""
    done = typed("advise", "even.json", *TWO, "--size", "1KB..1MB", "--json", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["schema"], document["model"], document["left_out"]) == ("plink.advice/1", "alpha-beta", {})
    doubling, ring = document["best"]
    assert (doubling["algo"], doubling["start_us"], doubling["us_per_mb"]) == ("recursive-doubling", 100, 16_000)
    assert (ring["algo"], ring["start_us"], ring["us_per_mb"]) == ("ring", 300, 12_000)
    assert (doubling["from_bytes"], doubling["to_bytes"]) == (1000, ring["from_bytes"]) == (1000, 50_000)
    assert ring["to_bytes"] == 1_000_000
    assert [row["size_bytes"] for row in document["sizes"]] == [1000, 4000, 16_000, 64_000, 256_000, 1_000_000]
    assert [row["time_us"] for row in document["sizes"][:3:2]] == [116, 356]
    assert document["sizes"][-1]["time_us"] == 12_300


def test_a_table_and_a_picture(here: Path) -> None:
    done = typed("advise", "even.json", *TWO, "--size", "1KB..1MB", "--plot", "advice.png", cwd=here)
    assert (done.returncode, done.stderr) == (0, "plink: plot -> advice.png\n")
    assert (here / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert "take" in done.stdout
    assert "recursive-doubling, order given" in done.stdout
    (here / "advice.png").write_bytes(b"an earlier one")
    (here / "link").hardlink_to(here / "advice.png")
    assert typed("advise", "even.json", *TWO, "--plot", "advice.png", cwd=here).returncode == 0
    assert (here / "link").read_bytes() == b"an earlier one"  # replaced as a whole, as a full disk needs it
    assert done.stdout.splitlines()[-2:] == [
        "1 kB to 50 kB: recursive-doubling, order given (116 us to 900 us)",
        "50 kB to 1 MB: ring, order given (900 us to 12.3 ms)",
    ]


def test_one_algorithm_has_its_column_off_a_terminal(here: Path) -> None:
    done = typed("advise", "even.json", "--algos", "ring", "--size", "1MB", cwd=here)
    assert "without a column" not in done.stdout
    assert "…" not in done.stdout


def on_a_terminal(here: Path, columns: int, term: str) -> tuple[list[list[str]], str]:
    """The rows of the table, and all of it. Of five algorithms two are the fastest somewhere."""
    words = ("--algos", "ring,recursive-doubling,tree,double-binary-tree,openmpi-ring", "--size", "4KB..100GB")
    done = typed("advise", "even.json", *words, cwd=here, FORCE_COLOR="1", TERM=term, COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)
    table = [line for line in text.splitlines() if line[:1] in "┏┃┡│└"]
    assert max(map(len, table)) <= columns
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in table if line.startswith("│")], text


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers(here: Path, term: str) -> None:
    """Large times were 1.2e+06 milliseconds, of which 80 columns left `1.2e…`."""
    left_out = {
        200: None,
        90: "without a column (nowhere the fastest): tree, double-binary-tree, openmpi-ring; a wider terminal and",
        60: "without a column (too many for this width): ring, recursive-doubling, tree, double-binary-tree, openmpi-",
    }
    for (columns, left_out_text), cells in zip(left_out.items(), (7, 4, 3), strict=True):
        rows, text = on_a_terminal(here, columns, term)
        assert {len(row) for row in rows} == {cells}
        assert (rows[0][0], rows[0][-1]) == ("4 kB", "recursive-doubling, order given")
        assert (rows[-1][0], rows[-1][1], rows[-1][-1]) == ("100 GB", "1,200 s", "ring, order given")
        assert not re.search(r"\de[+-]?\d|…", text)
        assert left_out_text in text if left_out_text else "without a column" not in text


def test_inapplicable_algorithm_is_left_out_and_reported(here: Path) -> None:
    done = typed("advise", "even.json", "--algos", "ring,bcube", "--set", "base=3", "--size", "1MB", cwd=here)
    assert done.returncode == 0
    assert done.stderr == "plink: bcube is left out: bcube of base 3 needs a power of 3 ranks, not 4; nearest: 3 or 9\n"


def test_pairs_that_were_not_measured_matter_only_where_they_are_used(here: Path) -> None:
    """The ring a, b, c, d does not need b - d; what everybody sends everybody does."""
    document = advice(here, "holes.json", "--algos", "ring,flat", "--size", "1MB")
    assert [(line["algo"], line["order"]) for line in document["best"]] == [("ring", "given")]
    assert list(document["left_out"]) == ["flat"]
    assert document["left_out"]["flat"].startswith("the round trip b - d is needed and was not measured; `plink probe ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("even.json --size 0", "--size 0 B..0 B: give a size of more than 0 bytes"),
        ("even.json --size 1MB..1KB", "--size 1 MB..1 kB: give a size"),
        ("even.json --algos butterfly", "--algos butterfly: choose some of ring, "),
        ("even.json --model latency", "--model latency knows no sizes"),
        ("even.json --algos ring --set base=2", "--set base=2: ring has no option base"),
        ("even.json --algos bcube --set base=3", "none of the algorithms fits: bcube of base 3 needs a power of 3"),
        # A picture that cannot be is refused before anything is read.
        ("gone.json --plot no/such/advice.svg", "--plot no/such/advice.svg: its folder is missing"),
        ("gone.json --plot folder.svg", "--plot folder.svg: is a folder"),
    ],
)
def test_what_is_refused(words: str, message: str, here: Path) -> None:
    (here / "folder.svg").mkdir()
    refuses(here, ["advise", *words.split()], message)


BALANCE = ("--parameters", "1MB", "--step", "10ms")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--parameters", "0", "--step", "1s"), "--parameters 0"),
        (("--parameters", "1MB", "--step", "0"), "--step 0"),
        ((*BALANCE, "--overlap", "1.2"), "--overlap 1.2"),
        ((*BALANCE, "--overlap", "nan"), "--overlap nan"),
        ((*BALANCE, "--size", "1MB"), "without --size"),
        (("--parameters", "8e9", "--step", "1s"), "--parameters: '8e9' is not a size"),
        (("--parameters", "1MB", "--step", "soon"), "--step: 'soon' is not a duration"),
        (("--size", "many"), "--size: 'many' is not a size"),
        (("--parameters", "1MB"), "go together"),
        (("--overlap", "0.5"), "--overlap goes with"),
        (("--prices", "prices.toml"), "--prices goes with"),
        ((*BALANCE, "--prices", "prices.toml"), "prices.toml: hub_interface: is missing"),
        ((*BALANCE, "--prices", "negative.toml"), "negative.toml: cable: expected a number >= 0, got -2"),
        ((*BALANCE, "--prices", "nan.toml"), "nan.toml: cable"),
        ((*BALANCE, "--prices", "other.toml"), "other.toml: gpu: choose from worker"),
    ],
)
def test_a_balance_that_cannot_be_is_refused(words: tuple[str, ...], message: str, here: Path) -> None:
    prices = "worker = 1\naccelerators = 1\ninterface = 1\nswitch_port = 1\nhub = 1\nhub_interfaces = 2\n"
    (here / "prices.toml").write_text(f"{prices}cable = 1\n")
    (here / "negative.toml").write_text(f"{prices}hub_interface = 1\ncable = -2\n")
    (here / "nan.toml").write_text(f"{prices}hub_interface = 1\ncable = nan\n")
    (here / "other.toml").write_text(f"{prices}gpu = 1\n")
    refuses(here, ["--quiet", "advise", "even.json", *words], message)


def test_balance_on_the_command_line(here: Path) -> None:
    """1 MB among four at 1 Gbit/s: a ring's 1.5 MB take 12 ms, so a step of 10 ms leaves 2 of them."""
    rows = advice(here, "even.json", *BALANCE)["balance"]["forms"]
    ring = next(row for row in rows if row["algo"] == "ring")
    assert (ring["link_bytes"], ring["link_gbps"]) == (1_500_000, 1)
    assert ring["exposed_s"] == pytest.approx(0.0023)
    os.utime(here / "even.json", (0, 0))
    shown = typed("advise", "even.json", *BALANCE, cwd=here)
    assert "No form hides 1 MB in 10 ms" in shown.stdout
    assert "even.json is" in shown.stderr
    assert typed("advise", "slots.json", *BALANCE, cwd=here).returncode == 4


def test_a_recorded_step(here: Path) -> None:
    """What is typed wins over the run; a run without bytes says what to type."""
    for name, step in (("aa", {"bytes_per_step": 2_000_000, "step_s": 0.02}), ("bb", {})):
        (here / f".plink/runs/{name}").mkdir(parents=True)
        write(here / f".plink/runs/{name}/run.json", {"schema": "plink.run/1", "id": name, "started": name} | step)
    for words, expected in (((), (2_000_000, 0.02)), (("--step", "1s"), (2_000_000, 1.0))):
        step = advice(here, "even.json", "--run", "aa", *words)["balance"]
        assert (step["parameter_bytes"], step["step_s"]) == expected
    refuses(here, ["advise", "even.json", "--run", "last"], "run bb did not last for enough steps")

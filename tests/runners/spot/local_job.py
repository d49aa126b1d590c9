"""A real elastic job on this machine, whose transient hosts ``plink spot drive`` rents by a price history."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plink.model.spot.price_files import read_histories
from plink.model.spot.prices import Market
from solvers.spot.billing import BILLINGS, Stay

BILLING = "per-second"
SPEED = 60  # of the replayed history
EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic_mf.py"
DATA = ("--users", "200", "--movies", "80", "--count", "8000", "--rank", "4", "--shards", "6")


def market_file(types: Mapping[str, tuple[int, float]], cores: int, chunk_cores: int, more: str = "") -> str:
    """Return ``market.toml``: one anchor of the first type, and at most so many cores.

    :param types: cores and the on-demand price of each.
    :param more: lines at the end of ``[provider]``.
    """
    first = next(iter(types))
    tables = "".join(
        f'[[types]]\nname = "{name}"\ncores = {size}\non_demand = {price}\n' for name, (size, price) in types.items()
    )
    return f"""\
billing = "{BILLING}"
{tables}[anchors]
type = "{first}"
count = 1
[reference]
type = "{first}"
count = {cores}
[limits]
max_cores = {cores}
chunk_cores = {chunk_cores}
budget = 1000.0
[application]
iteration_s = [0.0, 1.0, 0.0]
start_s = 1
add_s = 1
evict_s = 1
[provider]
kind = "replay"
history = "prices.csv"
hosts = "more.txt"
speed = {SPEED}
{more}"""


def hosts_file(hosts: int) -> str:
    """Return ``more.txt``: hosts that are this machine."""
    return "".join(f"w{number} address=127.0.0.1\n" for number in range(1, hosts + 1))


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start plink in the folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "plink", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def start_job(folder: Path, max_hosts: int, timeout: str) -> "subprocess.Popen[bytes]":
    """Start a job of one reliable host that would go on for days."""
    return start(
        folder, "elastic", "run", "--runner", "local", "--slots", "1", "--max-hosts", str(max_hosts), "--timeout",
        timeout, str(EXAMPLE), *DATA, "--clocks", "100000000",
    )  # fmt: skip


def status_of(folder: Path, group: str) -> dict[str, Any]:
    """Return what ``plink spot status --json``, or that of the elastic job, prints; empty before there is any."""
    done = subprocess.run(
        [sys.executable, "-m", "plink", group, "status", "last", "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else {}


def rented(folder: Path) -> list[dict[str, Any]]:
    """Return all that was rented, by the provider's own file."""
    files = list(folder.glob(".plink/runs/*/spot/cloud.json"))
    return list(json.loads(files[0].read_text())["instances"].values()) if files else []


def bill(folder: Path) -> float:
    """Return what ended instances cost, by the provider's own file and the price history alone."""
    prices = read_histories([folder / "prices.csv"]).prices
    return sum(
        BILLINGS[BILLING]
        .charged(Stay(each["since_s"], each["until_s"], 1, each["end"]), prices[Market(*each["market"])].price_at)
        .money
        for each in rented(folder)
        if each["end"] is not None
    )

"""The driver of transient instances, killed again and again: ``make bench NAME=spot_drive``, about eight minutes.

A job of real processes runs on this machine; a price history runs 60 times faster than time, evicts and is billed by
the second or by the hour. The driver is killed (SIGKILL) at random moments, and started again each time; at the end the
job is stopped. Then nothing may be held, and what the driver says it cost must be what the provider's own file and the
price history come to.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import Bar, record
from plink.model.spot.price_files import read_histories
from plink.model.spot.prices import Market, Prices
from solvers.spot.billing import BILLINGS, Stay

_ROOT = Path(__file__).parents[1]
_KILLS, _SEED, _SPEED = 20, 1, 60
_HOSTS = 4
_BILLING = "per-second"
_TYPES = {"small": 0.2, "large": 0.4}
_MARKET = f"""\
billing = "{_BILLING}"
[[types]]
name = "small"
cores = 1
on_demand = 0.2
[[types]]
name = "large"
cores = 2
on_demand = 0.4
[anchors]
type = "small"
count = 1
[reference]
type = "small"
count = 4
[limits]
max_cores = 4
chunk_cores = 2
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
speed = {_SPEED}
end = ["{sys.executable}", "-m", "plink", "elastic", "evict", "last", "{{host}}", "--in", "0s"]
"""


def write_inputs(folder: Path, rng: random.Random) -> None:
    """A market file, hosts that are this machine, and prices that exceed the on-demand price now and then."""
    (folder / "market.toml").write_text(_MARKET)
    (folder / "more.txt").write_text("".join(f"w{k} address=127.0.0.1\n" for k in range(_HOSTS)))
    rows = ["zone,type,timestamp,price"]
    for name, on_demand in _TYPES.items():
        time_s = 1.5e9
        while time_s < 1.5e9 + 3 * 86400:
            share = 1.2 if rng.random() < 0.1 else rng.uniform(0.2, 0.6)
            rows.append(f"zone-a,{name},{time_s:.0f},{share * on_demand:.4f}")
            time_s += rng.uniform(300, 2400)
    (folder / "prices.csv").write_text("\n".join(rows) + "\n")


def plink(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start plink in the folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "plink", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def status(folder: Path) -> dict[str, Any]:
    """What `plink spot status --json` prints; empty before there is a journal."""
    done = subprocess.run([sys.executable, "-m", "plink", "spot", "status", "last", "--json"], cwd=folder,
                          capture_output=True, text=True, check=False)  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else {}


def instances(folder: Path) -> list[dict[str, Any]]:
    """All that was rented, by the provider's own file."""
    files = list(folder.glob(".plink/runs/*/spot/cloud.json"))
    return list(json.loads(files[0].read_text())["instances"].values()) if files else []


def bill(rented: list[dict[str, Any]], prices: Prices) -> float:
    """What that costs by the price history."""
    money = 0.0
    for each in rented:
        stay = Stay(each["since_s"], each["until_s"], 1, each["end"])
        money += BILLINGS[_BILLING].charged(stay, prices[Market(*each["market"])].price_at).money
    return money


def main() -> int:
    """Run and record; the exit code."""
    rng = random.Random(_SEED)
    with tempfile.TemporaryDirectory(prefix="plink-bench-") as name:
        folder = Path(name)
        write_inputs(folder, rng)
        data = ("--users", "200", "--movies", "80", "--count", "8000", "--rank", "4", "--shards", "6")
        job = plink(
            folder, "elastic", "run", "--runner", "local", "--slots", "1", "--max-hosts", str(_HOSTS + 1), "--timeout",
            "3000s", str(_ROOT / "examples" / "agile_mf.py"), *data, "--clocks", "100000000",
        )  # fmt: skip
        try:
            while not list(folder.glob(".plink/runs/*/agile.jsonl")):
                time.sleep(0.2)
            moments, driver = [], plink(folder, "spot", "drive", "last", "market.toml")
            while not instances(folder):
                time.sleep(0.2)
            for _ in range(_KILLS):
                moments.append(round(rng.uniform(3.0, 20.0), 2))
                time.sleep(moments[-1])
                driver.kill()
                driver.wait()
                driver = plink(folder, "spot", "drive", "last", "market.toml")
            time.sleep(30)
            job.send_signal(signal.SIGINT)
            job.wait()
            code = driver.wait()
        finally:
            job.kill()
        rented, prices, end = instances(folder), read_histories([folder / "prices.csv"]).prices, status(folder)
    held = sum(each["end"] is None for each in rented)
    tokens = {each["token"] for each in rented}
    reported = end["cost"]["transient"]
    replayed = bill([each for each in rented if each["end"] is not None], prices)
    figures = {
        "rented": len(rented), "requests": len(tokens), "interrupted": end["ended"]["interrupted"],
        "released": end["ended"]["released"], "driver_exit_code": code, "cost": reported,
        "replayed": round(replayed, 6), "moments_s": moments,
    }  # fmt: skip
    bars = [
        Bar("instances held at the end", held, at_most=0),
        Bar(
            "instances in the journal as held, or open requests",
            len(end["held"]) + len(end["open_requests"]),
            at_most=0,
        ),
        Bar(
            "cost by the driver from that by the provider's file and the history",
            abs(reported - replayed),
            at_most=0.005,
        ),
        Bar("instances that were rented", len(rented), at_least=4),
    ]
    configuration = {"kills": _KILLS, "seed": _SEED, "speed": _SPEED, "hosts": _HOSTS, "market": _MARKET}
    return record("spot_drive", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())

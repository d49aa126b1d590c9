"""The driver of transient instances, killed again and again: ``make bench NAME=spot_drive``, about eight minutes.

A job of real processes runs on this machine; a price history runs 60 times faster than time, evicts and is billed by
the second or by the hour. The driver is killed (SIGKILL) at random moments, and started again each time; at the end the
job is stopped. Then nothing may be held, and what the driver says it cost must be what the provider's own file and the
price history come to.
"""

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import Bar, record
from tests.runners.spot.local_job import SPEED, bill, hosts_file, market_file, rented, start, start_job, status_of

_KILLS, _SEED = 20, 1
_HOSTS = 4
_TYPES = {"small": (1, 0.2), "large": (2, 0.4)}
_END = f'end = ["{sys.executable}", "-m", "plink", "elastic", "evict", "last", "{{host}}", "--in", "0s"]\n'
_MARKET = market_file(_TYPES, cores=_HOSTS, chunk_cores=2, more=_END)


def write_inputs(folder: Path, rng: random.Random) -> None:
    """A market file, hosts that are this machine, and prices that exceed the on-demand price now and then."""
    (folder / "market.toml").write_text(_MARKET)
    (folder / "more.txt").write_text(hosts_file(_HOSTS))
    rows = ["zone,type,timestamp,price"]
    for name, (_, on_demand) in _TYPES.items():
        time_s = 1.5e9
        while time_s < 1.5e9 + 3 * 86400:
            share = 1.2 if rng.random() < 0.25 else rng.uniform(0.2, 0.6)
            rows.append(f"zone-a,{name},{time_s:.0f},{share * on_demand:.4f}")
            time_s += rng.uniform(300, 2400)
    (folder / "prices.csv").write_text("\n".join(rows) + "\n")


def main() -> int:
    """Run and record; the exit code."""
    rng = random.Random(_SEED)
    with tempfile.TemporaryDirectory(prefix="plink-bench-") as name:
        folder = Path(name)
        write_inputs(folder, rng)
        job = start_job(folder, _HOSTS + 1, "3000s")
        try:
            while not list(folder.glob(".plink/runs/*/elastic.jsonl")):
                time.sleep(0.2)
            moments, driver = [], start(folder, "spot", "drive", "market.toml", "last")
            while not rented(folder):
                time.sleep(0.2)
            for _ in range(_KILLS):
                moments.append(round(rng.uniform(3.0, 20.0), 2))
                time.sleep(moments[-1])
                driver.kill()
                driver.wait()
                driver = start(folder, "spot", "drive", "market.toml", "last")
            time.sleep(30)
            job.send_signal(signal.SIGINT)
            job.wait()
            code = driver.wait()
        finally:
            job.kill()
        instances, replayed, end = rented(folder), bill(folder), status_of(folder, "spot")
    held = sum(each["end"] is None for each in instances)
    tokens = {each["token"] for each in instances}
    reported = end["cost"]["transient"]
    figures = {
        "rented": len(instances), "requests": len(tokens), "interrupted": end["ended"]["interrupted"],
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
        Bar("instances that were rented", len(instances), at_least=4),
    ]
    configuration = {"kills": _KILLS, "seed": _SEED, "speed": SPEED, "hosts": _HOSTS, "market": _MARKET}
    return record("spot_drive", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())

"""Spot machines on a lab, end to end: ``make bench NAME=spot_lab``, about six minutes. ``--short``: two, and nothing is
written.

One reliable host runs an elastic job whose work is to wait, so that two cores carry all hosts. ``plink elastic run
--spot`` rents from eight others, two at a time, in three markets of two types, at prices that run 60 times faster than
time. Each market rises above its on-demand price once: its hosts get a notice, and are powered off. Then the same
prices are simulated, with the scaling and the pauses that the job showed.
"""

import json
import math
import random
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record, report_bars
from plink.features.spot.run import measured_application
from plink.model.hosts import read_hosts, render_hosts
from plink.model.spot.journal import InstanceGranted, InstanceJoined, JournalEntry
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.model.spot.price_files import read_spot_histories
from plink.records.elastic_history import History, history_of
from plink.records.elastic_log import HostEvent, RollBackLogEntry, read_elastic_log
from runners.spot.journal import FOLDER, read_journal
from solvers.spot.billing import BILLINGS
from solvers.spot.deciding import Anchors, Footprint, offer_book
from solvers.spot.footprint import Application, Outlook, Scaling
from solvers.spot.ledger import Ledger
from solvers.spot.offers import anchors_of, application_of, rate_offers
from solvers.spot.simulating import Acquire, SimulatedMarkets, SimulationOutcome, Start, simulate_job
from solvers.spot.strategies import BidBrain
from tests.runners.spot.local_job import SPEED, bill, rented, status_of

_SHORT = "--short" in sys.argv
_STRETCH = 0.35 if _SHORT else 1.0  # of the price path
# Short iterations: the data is divided anew some iterations after a host has joined, which the simulator does not know.
_ITERATIONS, _WAIT_S, _ROWS = (170 if _SHORT else 640), 0.005, 200
_TIMEOUT_S = 900
_LAB = ("--racks", "3", "--hosts-per-rack", "3", "--seed", "5")
_WAITING = str(Path(__file__).parent / "timing" / "waiting_app.py")
_START, _DAY_S, _SEED = 1_500_000_000, 86400, 1
_TYPES = {"small": 0.20, "other": 0.25}  # on demand, an hour
_PATHS = {  # the usual price, and from when until when it is above on-demand, hours
    ("zone-a", "small"): (0.05, 1.3, 3.5),
    ("zone-b", "small"): (0.06, 2.6, 24.0),
    ("zone-a", "other"): (0.075, 3.9, 24.0),
}
_ABOVE = 0.6
_MARKET = """\
billing = "per-second"
{types}[anchors]
type = "small"
count = 1
works = true
[reference]
type = "small"
count = 3
[limits]
max_cores = 3
chunk_cores = 1
budget = 1000.0
[application]
iteration_s = [0.0, {work_s}, 0.0]
start_s = 480
add_s = 60
evict_s = 120
[provider]
kind = "replay"
history = "prices.csv"
hosts = "more.txt"
speed = {speed}
notice = {notice}
end = {end}
"""


def write_inputs(bench: BenchLab) -> None:
    """Hosts files, a market file, and prices that change every quarter of an hour."""
    folder, hosts = bench.folder, read_hosts(bench.hosts_file)
    first, *others = hosts.members
    (folder / "hosts.txt").write_text(render_hosts(replace(hosts, members=(replace(first, tier="reliable"),))))
    rentable = tuple(replace(host, tier="transient") for host in others)
    (folder / "more.txt").write_text(render_hosts(replace(hosts, members=rentable)))
    plink = [sys.executable, "-m", "plink"]
    types = "".join(f'[[types]]\nname = "{name}"\ncores = 1\non_demand = {price}\n' for name, price in _TYPES.items())
    text = _MARKET.format(
        types=types, work_s=240 * _WAIT_S * SPEED, speed=SPEED,
        notice=json.dumps([*plink, "elastic", "evict", "last", "{host}", "--in", "2s"]),
        end=json.dumps([*plink, "lab", "kill", "{host}", "--name", bench.name]),
    )  # fmt: skip
    (folder / "market.toml").write_text(text)
    rng, rows = random.Random(_SEED), ["zone,type,timestamp,price"]
    for (zone, kind), (usual, above_from, above_until) in _PATHS.items():
        edges = {round(hours * 3600 * _STRETCH) for hours in (above_from, above_until)}
        for after_s in sorted({*range(0, _DAY_S, 900), *edges}):
            is_above = above_from * 3600 * _STRETCH <= after_s + 0.5 < above_until * 3600 * _STRETCH
            price = _ABOVE if is_above else usual * rng.uniform(0.96, 1.04)
            rows.append(f"{zone},{kind},{_START + after_s},{price:.5f}")
    (folder / "prices.csv").write_text("\n".join(rows) + "\n")


def run_job(folder: Path) -> int:
    """Run the job and its driver to the end; the exit code."""
    with (folder / "job.err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "plink", "elastic", "run", "--env", "OMP_NUM_THREADS=1", "--hosts", "hosts.txt",
             "--spot", "market.toml", "--heartbeat-timeout", "6s", "--timeout", f"{_TIMEOUT_S}s", _WAITING, "--clocks",
             str(_ITERATIONS), "--wait", str(_WAIT_S), "--rows", str(_ROWS)],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        try:
            return process.wait(_TIMEOUT_S + 120)
        finally:
            if process.poll() is None:  # its driver releases everything
                process.send_signal(signal.SIGINT)
                process.wait()


def job_application(market_file: MarketFile, history: History, journal: list[JournalEntry]) -> Application:
    """Return how the job scaled and paused, in seconds of the price path."""
    measured = measured_application(history, application_of(market_file).start_s)
    granted = {entry.instance: entry.at for entry in journal if isinstance(entry, InstanceGranted)}
    starts = [entry.at - granted[entry.instance] for entry in journal if isinstance(entry, InstanceJoined)]
    scaling = measured.scaling
    return Application(
        Scaling(scaling.a * SPEED, scaling.b * SPEED, scaling.c * SPEED), statistics.mean(starts),
        measured.add_s * SPEED, measured.evict_s * SPEED,
    )  # fmt: skip


@dataclass(frozen=True)
class RateBidBrain:
    """BidBrain where no bid decides: it bids the on-demand price, as ``plink spot drive`` does."""

    brain: BidBrain
    on_demand: tuple[float, ...]
    checkpointing: None = None
    is_periodic: bool = True

    @property
    def anchors(self) -> Anchors:
        """Those of BidBrain."""
        return self.brain.anchors

    def acquire(self, footprint: Footprint, prices: Any, now: float) -> Acquire | None:
        """Return what BidBrain would take."""
        order = self.brain.acquire(footprint, prices, now)
        return None if order is None or order.count < 1 else replace(order, bid=self.on_demand[order.market])

    def renews(self, footprint: Footprint, number: int, prices: Any, now: float) -> bool:
        """As BidBrain."""
        return self.brain.renews(footprint, number, prices, now)


def simulate(folder: Path, market_file: MarketFile, application: Application, start: float) -> SimulationOutcome:
    """Return how the same job goes at the same prices, by the simulator. Its reliable host works from the start, and
    that of the simulator when others would: what it does until then is added to the work."""
    prices = market_file.select(read_spot_histories([folder / "prices.csv"]).prices)
    offers = rate_offers(market_file, prices, {})
    billing, anchors = BILLINGS[market_file.billing], anchors_of(market_file)
    on_demand = tuple(offer.on_demand for offer in offers)
    markets = SimulatedMarkets(
        tuple(prices[offer.market] for offer in offers), tuple(offer.cores for offer in offers), on_demand, billing
    )
    book = offer_book(offers, Outlook(billing), application)
    strategy = RateBidBrain(BidBrain(book, market_file.limits, anchors), on_demand)
    early = application.start_s * application.scaling.speed(anchors.count * anchors.cores)
    until = min(trace.until for trace in markets.traces)
    work = _ITERATIONS * application.scaling.b + early
    return simulate_job(markets, strategy, application, Start(start, until), work)


def measure(folder: Path, code: int) -> tuple[dict[str, Any], list[Bar]]:
    """Return the figures of a run that has ended, and its bars."""
    [run] = [path.parent for path in folder.glob(".plink/runs/*/elastic.jsonl")]
    entries, journal = read_elastic_log(run / "elastic.jsonl"), list(read_journal(run / FOLDER))
    history, ledger, market_file = history_of(entries), Ledger.of(journal), read_market_file(folder / "market.toml")
    status, replayed, instances = status_of(folder, "spot"), bill(folder), rented(folder)
    assert ledger.opened is not None
    assert ledger.job_ended_at_s is not None
    application = job_application(market_file, history, journal)
    outcome = simulate(folder, market_file, application, ledger.opened.at)
    iterations, cost = len(history.completed), status["cost"]
    measured, simulated = cost["total"] / max(1, iterations), outcome.money / _ITERATIONS
    events = [entry for entry in entries if isinstance(entry, HostEvent)]
    undone = sum(entry.redone for entry in entries if isinstance(entry, RollBackLogEntry))
    held = sum(each["end"] is None for each in instances) + len(status["held"]) + len(status["open_requests"])
    evicted = sum(each["end"] == "interrupted" for each in instances)
    figures = {
        "exit_code": code, "iterations": iterations, "rolled_back": undone, "evictions": evicted,
        "warned": sum(event.event == "warned" for event in events), "rented": len(instances),
        "hours": round((ledger.job_ended_at_s - ledger.opened.at) / 3600, 3),
        "cost": cost, "replayed": round(replayed, 6), "cost_per_iteration": measured,
        "simulated": {
            "cost_per_iteration": simulated, "hours": round(outcome.seconds / 3600, 3),
            "evictions": outcome.evictions, "money": round(outcome.money, 6), "finished": outcome.finished,
        },
        "application": {
            "iteration_s": [application.scaling.a, application.scaling.b, application.scaling.c],
            "start_s": application.start_s, "add_s": application.add_s, "evict_s": application.evict_s,
        },
    }  # fmt: skip
    bars = [
        Bar("exit code of the job", code, at_most=0),
        Bar("hosts that were evicted", evicted, at_least=4 if _SHORT else 6),
        Bar("iterations lost to roll-backs", undone, at_most=0),
        Bar("cost by the driver from that by the provider's file and prices", abs(cost["transient"] - replayed),
            at_most=0.005),
        Bar("held at the end", held, at_most=0),
        Bar("cost of an iteration from that of the simulation, share", abs(measured / simulated - 1),
            at_most=math.inf if _SHORT else 0.10),
    ]  # fmt: skip
    return figures, bars


def main() -> int:
    """Run and record; the exit code."""
    with lab(*_LAB) as bench:
        write_inputs(bench)
        code = run_job(bench.folder)
        try:
            figures, bars = measure(bench.folder, code)
        except BaseException:
            print((bench.folder / "job.err").read_text()[-4000:], file=sys.stderr)
            raise
        market = (bench.folder / "market.toml").read_text().replace(bench.name, "LAB").replace(sys.executable, "python")
    if _SHORT:
        print(json.dumps(figures, indent=2))
        return report_bars(bars)
    configuration = {
        "lab": _LAB, "speed": SPEED, "seed": _SEED, "iterations": _ITERATIONS, "wait_s": _WAIT_S, "market": market,
        "paths": [[*market, *path] for market, path in _PATHS.items()],
    }  # fmt: skip
    return record("spot-lab", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())

"""``plink demo``: probe, reorder and benchmark an emulated cloud, in a few minutes."""

import os
import statistics
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import UsageError
from plink.model.units import format_us
from plink.terminal.screen import print_json, progress, say

if TYPE_CHECKING:
    from plink.model.hosts import Hosts
    from plink.model.network import Network
    from plink.transport.connector import Connector
    from runners.lab.blueprint import Blueprint

_MIN_BYTES = 4  # one number
_WORDS = (
    "round trips: added up around the ring of that order",
    "predicted: one all-reduce by plink's cost model, and where 90 % of measured times on labs were",
    "measured: the median of five with PyTorch (Gloo)",
    "bound: no all-reduce can be faster over links of these rates; of bound: how near the measured one comes to it",
)


def demo(
    racks: Annotated[int, typer.Option(help="Racks of the emulated cloud.")] = 4,
    hosts_per_rack: Annotated[int, typer.Option(help="Hosts in each rack.")] = 4,
    rate: Annotated[str, typer.Option(help="Rate of every host and every uplink.")] = "200mbit",
    size: Annotated[str, typer.Option(help="Size of the all-reduce.")] = "8MB",
    seed: Annotated[int | None, typer.Option(help="Assigns hosts to racks; default: at random.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Emulate a cloud on this machine, probe it, reorder, and time a PyTorch all-reduce in both orders (needs root).

    Example: sudo plink demo
    """
    import secrets

    from plink.model.units import format_bytes, parse_bytes, parse_rate
    from runners.lab import kernel, lifecycle
    from runners.lab.blueprint import LabSettings
    from runners.lab.state import LabState, need_root
    from runners.ssh.connector import SshConnector

    bits, size_bytes = parse_rate(rate), parse_bytes(size)
    if size_bytes < _MIN_BYTES:
        raise UsageError(f"--size {size}: an all-reduce has {_MIN_BYTES} bytes at least")
    if racks == hosts_per_rack == 1:
        raise UsageError("--racks 1 --hosts-per-rack 1: one host has no order; use two hosts or more")
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    name = f"demo-{os.getpid()}"
    settings = LabSettings(name, racks, hosts_per_rack, bits, bits, seed=seed)
    need_root("plink demo")
    say(f"an emulated cloud on this machine: {racks} racks of {hosts_per_rack} hosts, links of {rate} (seed {seed})")
    say("its hosts are probed and ordered, then an all-reduce is timed in both orders: a minute or two")
    try:
        blueprint, _ = lifecycle.up(settings)
        with kernel.inside(blueprint.namespace("ctl")):
            connector = SshConnector(identity=LabState(name).identity)
            result = _measure(blueprint, connector, size_bytes, bits, seed)
    finally:
        try:
            lifecycle.down(name)
        except KeyboardInterrupt:  # it came while the lab was going: that is finished first
            lifecycle.down(name)
            raise
    if as_json:
        print_json(result)
    else:
        print_result(result, f"{len(result['hosts'])} hosts, all-reduce of {format_bytes(size_bytes)}")


def _measure(
    blueprint: "Blueprint", connector: "Connector", size_bytes: int, bits_per_s: int, seed: int
) -> dict[str, Any]:
    import time

    import numpy as np

    from plink.features.order.request import OrderRequest
    from plink.features.order.run import reorder
    from probes.methods import ProbeSettings
    from probes.session import ProbeProgress, measure_all
    from solvers.costs.accuracy import RINGS, calibrated_interval
    from solvers.costs.closed_forms import ring_seconds
    from solvers.hierarchy.tiers import nearest_tier

    hosts = blueprint.hosts()
    say("plink probe: round trips between all pairs of hosts")
    with progress("connecting", "measuring") as bars:
        watcher = ProbeProgress(bars["connecting"], bars["measuring"])
        network = measure_all(hosts, connector, ProbeSettings(count=1000, seed=seed), watcher, time.monotonic).network()
    say("plink reorder --algo ring")
    order = reorder(network, OrderRequest(model="latency", seed=seed))
    plink_hosts = order.arrange(hosts, "order")
    groups = nearest_tier(network.rtt_us)
    n = len(hosts)
    index = {host: i for i, host in enumerate(hosts.names)}
    orders = {"given": hosts, "plink": plink_hosts}
    seconds: dict[str, list[float]] = {}
    predicted: dict[str, float] = {}
    for order_name, ordered in orders.items():
        ranks = np.array([index[host] for host in ordered.names])
        predicted[order_name] = ring_seconds(groups, ranks, size_bytes, bits_per_s, bits_per_s)
        order_text = "as the hosts were given" if order_name == "given" else "plink’s order"
        say(f"plink launch allreduce_benchmark.py, {order_text}")
        seconds[order_name] = _benchmark(ordered, connector, network, size_bytes)
    racks = {place.name: place.rack for place in blueprint.places}
    interval_s = {name: [us / 1e6 for us in calibrated_interval(1e6 * s, RINGS)] for name, s in predicted.items()}
    bound = 8 * size_bytes * 2 * (n - 1) / n / bits_per_s
    baseline_s, plink_s = (statistics.median(seconds[order_name]) for order_name in orders)
    return {
        "schema": "plink.demo/1",
        "hosts": plink_hosts.names,
        "racks_recovered": _racks_contiguous([racks[host] for host in plink_hosts.names]),
        "baseline_s": baseline_s,
        "plink_s": plink_s,
        "bound_s": round(bound, 6),
        "speedup": round(baseline_s / plink_s, 3),
        "predicted_baseline_s": round(predicted["given"], 6),
        "predicted_plink_s": round(predicted["plink"], 6),
        "predicted_baseline_interval_s": interval_s["given"],
        "predicted_plink_interval_s": interval_s["plink"],
        "baseline_samples_s": seconds["given"],
        "plink_samples_s": seconds["plink"],
        "group_count": int(groups.max()) + 1,
        "cost_baseline_us": order.baseline["given"],
        "cost_plink_us": order.cost,
        "size_bytes": size_bytes,
        "seed": seed,
    }


def _racks_contiguous(racks: list[int]) -> bool:
    """Return whether each rack's hosts are one block of the ring (which wraps around)."""
    changes = sum(a != b for a, b in zip(racks, racks[1:] + racks[:1], strict=True))
    return changes == (len(set(racks)) if len(set(racks)) > 1 else 0)


def _benchmark(ordered: "Hosts", connector: "Connector", network: "Network", size_bytes: int) -> list[float]:
    """Run the benchmark as a job in this order and return the seconds of each all-reduce."""
    import json
    import time
    from pathlib import Path

    import plink.runtime
    from plink.errors import PlinkError
    from runners.job.fleet_runner import FleetRunner
    from runners.job.job import Job
    from runners.job.runner import RunContext, RunObserver

    script = Path(plink.runtime.__file__).parent / "allreduce_benchmark.py"
    job = Job(
        program=str(script),
        args=("--size-bytes", str(size_bytes), "--repeats", "5"),
        workdirs=("/",),
        pythons=(sys.executable,),
        env={"OMP_NUM_THREADS": "1"},  # all hosts of the lab share this machine's cores
    )
    printed: list[str] = []

    def sink(rank: int | None, stream: str, line: str) -> None:
        if stream == "out":
            printed.append(line)

    context = RunContext(RunObserver(sink), time.monotonic, host_identities=network.host_identities)
    result = FleetRunner("ssh", connector).run(job, ordered, context)
    if result.failure is not None:
        last_line = (result.failure.last_lines or ("it printed nothing",))[-1]
        raise PlinkError(f"the benchmark failed on {result.failure.host}: {last_line}")
    return [float(value) for value in json.loads(printed[-1])["seconds"]]


def print_result(result: dict[str, Any], title: str) -> None:
    """Print a ``plink.demo`` document as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("order", "round trips", "predicted", "measured", "of bound", title=title)
    for order_name, label in (("baseline", "given"), ("plink", "plink's")):
        table.add_row(
            label,
            format_us(result[f"cost_{order_name}_us"]),
            "{:.3f} s ({:.3f} to {:.3f})".format(
                result[f"predicted_{order_name}_s"], *result[f"predicted_{order_name}_interval_s"]
            ),
            f"{result[f'{order_name}_s']:.3f} s",
            f"{result['bound_s'] / result[f'{order_name}_s']:.0%}",
        )
    table.add_row("bound", "", "", f"{result['bound_s']:.3f} s", "100%", style="dim")
    console = Console()
    console.print(table)
    for order_name, label in (("baseline", "the given"), ("plink", "plink's")):
        low, high = result[f"predicted_{order_name}_interval_s"]
        if not low <= result[f"{order_name}_s"] <= high:
            off = result[f"{order_name}_s"] / result[f"predicted_{order_name}_s"] - 1
            says = f"the prediction did not hold for {label} order"
            console.print(f"{says}: it took {abs(off):.0%} {'longer' if off > 0 else 'less'}", style="yellow")
    verdict = "every rack found" if result["racks_recovered"] else "racks NOT found"
    console.print(f"{verdict}; {result['speedup']:.2f} times as fast in plink's order")
    for line in _WORDS:
        console.print(line, style="dim", highlight=False)

"""``plink demo``: probe, reorder and benchmark an emulated cloud, in a few minutes."""

import os
import secrets
import statistics
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.table import Table

from plink.errors import UsageError
from plink.features.check.request import CheckRequest
from plink.features.measure.request import ProbeRequest
from plink.features.order.request import OrderRequest
from plink.model.check import US_PER_S
from plink.model.demo import Demo
from plink.model.request import FeatureRequest, Option, Text
from plink.model.units import format_bytes, format_gbps, format_us, numbered, parse_bytes
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, progress, say
from plink.transport.fleet import Connector
from runners.lab import kernel, lifecycle
from runners.lab.blueprint import Blueprint, LabSettings, Rate
from runners.lab.state import LabState, need_root
from solvers.costs.by_name import RINGS, calibrated_interval
from solvers.costs.closed_forms import ring_seconds
from solvers.hierarchy.tiers import nearest_tier
from solvers.schedules.catalogue import Options

_MIN_BYTES = 4  # one number
_REPEATS = 5
_WORDS = (
    "round trips: added up around the ring of that order",
    "predicted: one all-reduce by plink's cost model, and where 90 % of measured times on labs were",
    "measured: the median of five with PyTorch (Gloo; with --gpu NCCL)",
    "bound: no all-reduce can be faster over links of these rates; of bound: how near the measured one comes to it",
)


@dataclass(frozen=True)
class DemoRequest(FeatureRequest):
    """Request for a demo. ``rate`` in bits per second; ``seed``: None is a random one."""

    racks: Annotated[int, Option("Racks of the emulated cloud.")] = 4
    hosts_per_rack: Annotated[int, Option("Hosts in each rack.")] = 4
    rate: Annotated[Rate, Option("Rate of every host and every uplink.")] = 200_000_000
    size_bytes: Annotated[
        int,
        Text("SIZE", parse_bytes, lambda size: f"{size / 1e6:g}MB"),
        Option("Size of the all-reduce.", ("--size",)),
    ] = 8_000_000
    gpu: Annotated[bool, Option("Time NCCL on this machine's GPU, which all hosts share.")] = False
    seed: Annotated[int | None, Option("Assigns hosts to racks; default: at random.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size_bytes < _MIN_BYTES:
            raise UsageError(f"--size {self.size_bytes}: an all-reduce has {_MIN_BYTES} bytes at least")
        if self.racks == self.hosts_per_rack == 1:
            raise UsageError("--racks 1 --hosts-per-rack 1: one host has no order; use two hosts or more")


@takes(DemoRequest)
def demo(request: DemoRequest, as_json: Json = False) -> None:
    """Emulate a cloud on this machine, probe it, reorder, and time a PyTorch all-reduce in both orders (needs root).

    Example: sudo plink demo
    """
    from runners.ssh.connector import SshConnector  # brings paramiko

    seed = secrets.randbelow(1 << 31) if request.seed is None else request.seed
    name, racks, per_rack, rate = f"demo-{os.getpid()}", request.racks, request.hosts_per_rack, request.rate
    settings = LabSettings(name, racks, per_rack, rate, rate, seed=seed, gpu=request.gpu)
    need_root("plink demo")
    say(
        f"an emulated cloud on this machine: {numbered(racks, 'rack')} of {numbered(per_rack, 'host')}, "
        f"links of {format_gbps(rate / 1e9)} (seed {seed})"
    )
    say("its hosts are probed and ordered, then an all-reduce is timed in both orders: a minute or two")
    try:
        blueprint, _ = lifecycle.up(settings)
        with kernel.inside(blueprint.namespace("ctl")):
            connector = SshConnector(identity=LabState(name).identity)
            result = _measure(blueprint, connector, request, seed)
    finally:
        try:
            lifecycle.down(name)
        except KeyboardInterrupt:  # it came while the lab was going: that is finished first
            lifecycle.down(name)
            raise
    if as_json:
        print_json(result.to_json())
    else:
        print_result(result, f"{len(result.hosts)} hosts, all-reduce of {format_bytes(request.size_bytes)}")


def _measure(blueprint: Blueprint, connector: Connector, request: DemoRequest, seed: int) -> Demo:
    from plink.features.check.benchmark import PHASES, PlannedBenchmark, time_orders  # these bring numba
    from plink.features.measure.run import probe
    from plink.features.order.run import reorder

    hosts, size_bytes, rate = blueprint.hosts(), request.size_bytes, request.rate
    say("plink probe: round trips between all pairs of hosts")
    with progress("connecting", "measuring") as bars:
        probing = ProbeRequest(count=1000, pairs="all", host_rates=False, shared_links=False, seed=seed)
        network = probe(hosts, probing, progress=lambda phase, done, total: bars[phase](done, total))
    say("plink reorder --algo ring")
    order = reorder(network, OrderRequest(model="latency", seed=seed))
    plink_hosts = order.arrange(hosts, "order")
    groups, n = nearest_tier(network.rtt_us), len(hosts)
    index = {host: i for i, host in enumerate(hosts.names)}
    ranks = [np.array([index[host] for host in ordered.names]) for ordered in (hosts, plink_hosts)]
    predicted_s = [ring_seconds(groups, each, size_bytes, rate, rate) for each in ranks]
    timed_orders = [(each, seconds * US_PER_S) for each, seconds in zip(ranks, predicted_s, strict=True)]
    algo = "nccl-ring" if request.gpu else "gloo"
    say(f"plink check --measure --algo {algo}: PyTorch's all-reduce in the given order and in plink's, in turns")
    benchmark = PlannedBenchmark(
        network, CheckRequest(measure=True), algo, "latency", timed_orders, Options(), (size_bytes,) * 2, _REPEATS
    )
    with progress(*PHASES) as bars:
        run = time_orders(benchmark, connector, lambda phase, done, total: bars[phase](done, total))
    baseline, optimised = (timing.achieved_s for timing in run.runs)
    racks = {place.name: place.rack for place in blueprint.places}
    baseline_interval_s, plink_interval_s = (
        (low_us / US_PER_S, high_us / US_PER_S)
        for low_us, high_us in (calibrated_interval(cost_us, RINGS) for _, cost_us in timed_orders)
    )
    baseline_s, plink_s = statistics.median(baseline), statistics.median(optimised)
    return Demo(
        hosts=tuple(plink_hosts.names),
        racks_recovered=_racks_contiguous([racks[host] for host in plink_hosts.names]),
        baseline_s=baseline_s,
        plink_s=plink_s,
        bound_s=round(8 * size_bytes * 2 * (n - 1) / n / rate, 6),
        speedup=round(baseline_s / plink_s, 3),
        predicted_baseline_s=round(predicted_s[0], 6),
        predicted_plink_s=round(predicted_s[1], 6),
        predicted_baseline_interval_s=baseline_interval_s,
        predicted_plink_interval_s=plink_interval_s,
        baseline_samples_s=baseline,
        plink_samples_s=optimised,
        group_count=int(groups.max()) + 1,
        cost_baseline_us=order.baseline["given"] or 0.0,
        cost_plink_us=order.cost or 0.0,
        size_bytes=size_bytes,
        seed=seed,
    )


def _racks_contiguous(racks: list[int]) -> bool:
    """Return whether each rack's hosts are one block of the ring (which wraps around)."""
    changes = sum(a != b for a, b in zip(racks, racks[1:] + racks[:1], strict=True))
    return changes == (len(set(racks)) if len(set(racks)) > 1 else 0)


def print_result(result: Demo, title: str) -> None:
    """Print the result as a table."""
    table = Table("order", "round trips", "predicted", "measured", "of bound", title=title)
    missed = []
    baseline = (result.cost_baseline_us, result.predicted_baseline_s, result.predicted_baseline_interval_s)
    reordered = (result.cost_plink_us, result.predicted_plink_s, result.predicted_plink_interval_s)
    for label, (cost_us, predicted_s, (low, high)), measured_s in (
        ("given", baseline, result.baseline_s),
        ("plink's", reordered, result.plink_s),
    ):
        prediction = f"{predicted_s:.3f} s ({low:.3f} to {high:.3f})"
        table.add_row(
            label, format_us(cost_us), prediction, f"{measured_s:.3f} s", f"{result.bound_s / measured_s:.0%}"
        )
        if not low <= measured_s <= high:
            off, order = measured_s / predicted_s - 1, "the given" if label == "given" else label
            how = f"{abs(off):.0%} {'longer' if off > 0 else 'less'}"
            missed.append(f"the prediction did not hold for {order} order: it took {how}")
    table.add_row("bound", "", "", f"{result.bound_s:.3f} s", "100%", style="dim")
    console = Console()
    console.print(table)
    for line in missed:
        console.print(line, style="yellow")
    verdict = "every rack found" if result.racks_recovered else "racks NOT found"
    console.print(f"{verdict}; {result.speedup:.2f} times as fast in plink's order")
    for line in _WORDS:
        console.print(line, style="dim", highlight=False)

"""A mesh's orders: which ranks are on a host, and what each traffic costs in an order."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plink.errors import NoAnswer, UsageError
from plink.model.mesh import Mesh, Traffic, labels
from plink.model.network import Network
from plink.model.order import TrafficCost
from plink.model.units import count
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import Transfers, resource_loads
from solvers.costs.mesh_patterns import traffic_pattern, weight_of
from solvers.ordering.annealing import sorted_by_group
from solvers.ordering.problem import Order, OrderingProblem

if TYPE_CHECKING:
    from solvers.simulation.cost import SimulatedCost


def hosts_of_blocks(network: Network, mesh: Mesh, baseline: Order) -> Order:
    """Return the host of each block of ranks in the given order, shape (B,): a host's ranks are a block.

    :param baseline: shape (N,), the host at each rank. :raises UsageError: for another number of ranks.
    :raises NoAnswer: for hosts of different slots.
    """
    slots = sorted({host.slots for host in network.hosts if host.slots})
    if len(slots) > 1:
        few, many = (next(host.name for host in network.hosts if host.slots == each) for each in (slots[0], slots[-1]))
        raise NoAnswer(f"a mesh needs equal slots; {few} and {many} have {slots[0]} and {slots[-1]}")
    if mesh.ranks != len(baseline):
        axes = " x ".join(f"{name} {size}" for name, size in mesh.axes)
        raise UsageError(
            f"--mesh: {axes} = {mesh.ranks} ranks, the hosts have {count(len(baseline), 'slot')} (slots=N in the hosts "
            "file: how many ranks a host takes)"
        )
    return baseline[:: slots[0]]


def block_pins(pins: dict[int, int], slots: int, names: tuple[str, ...]) -> dict[int, int]:
    """Return the block of each pinned host. :raises UsageError: for a rank that begins none."""
    for host, rank in pins.items():
        if rank % slots:
            raise UsageError(f"--pin {names[host]}={rank}: a host's first rank is a multiple of its {slots} slots")
    return {host: rank // slots for host, rank in pins.items()}


def leaving(mesh: Mesh, blocks: int) -> list[Traffic]:
    """Return the traffic that leaves hosts and that computing does not hide whole."""
    return [t for t in mesh.traffic if weight_of(t) > 0 and len(traffic_pattern(mesh, t, blocks).repeat)]


def notes_of(mesh: Mesh, blocks: int) -> list[str]:
    """Return what to know of a mesh before its costs: which groups leave their hosts."""
    outside = {t.axes for t in leaving(mesh, blocks)}
    grouped = [t for t in mesh.traffic if len(mesh.groups(t.axes)[0]) > 1]
    inside = sorted({"+".join(t.axes) for t in grouped if t.axes not in outside})
    notes = []
    if inside:
        notes.append(f"inside hosts, or hidden by computing, whatever the order: {', '.join(inside)}")
    if alone := sorted({"+".join(t.axes) for t in mesh.traffic if t not in grouped}):
        notes.append(f"of one rank, which sends nothing: {', '.join(alone)}")
    stated = {name for t in mesh.traffic for name in t.axes}
    if unstated := [name for name, size in mesh.axes if size > 1 and name not in stated]:
        notes.append(f"warning: no traffic was given along {', '.join(unstated)}: it counts as none")
    heavy = [t for t in mesh.traffic if t.axes in outside and (t.kind == "all-to-all" or "tp" in t.axes)]
    if heavy and blocks < mesh.ranks:
        fits = len(mesh.groups(heavy[0].axes)[0]) <= mesh.ranks // blocks
        how = "as the inner axis" if fits else "with fewer ranks in its groups"
        notes.append(f"warning: {heavy[0].label} leaves its hosts; {how} it would not")
    return notes


def refuse_unweighed(mesh: Mesh, blocks: int, model: str, requested_model: str) -> None:
    """Refuse several kinds of traffic on a network without rates.

    :raises NoAnswer: unless ``latency`` was asked for.
    """
    several = leaving(mesh, blocks)
    if model == "latency" and requested_model == "auto" and len(several) > 1:
        raise NoAnswer(
            f"no rates are known, so bytes of {several[0].label} and {several[1].label} cannot be weighed: "
            "`plink probe HOSTS` measures rates; --model latency counts round trips alone"
        )


@dataclass(frozen=True)
class MeshCosts:
    """Costs of a mesh's orders by traffic. ``simulated``: the cost that chose the order, None: the closed form."""

    task: OrderingProblem
    mesh: Mesh
    simulated: "SimulatedCost | None"

    def by_traffic(self, order: Order) -> list[float]:
        """Return the microseconds of each traffic that leaves hosts, times as often as it occurs."""
        if self.simulated is not None:
            return [weight * cost_us for weight, _, cost_us in self.simulated.part_costs(order)]
        blocks, fabric, model = len(order), self.task.fabric, self.task.model
        return [
            weight_of(t) * closed_form(traffic_pattern(self.mesh, t, blocks), fabric, 1.0, model)(order)
            for t in leaving(self.mesh, blocks)
        ]

    @property
    def sorted_by_group(self) -> Order:
        """Return the order of hosts sorted by group: by rack, where these are known."""
        return sorted_by_group(self.task.fabric, self.task.baseline)

    def rows(self, order: Order) -> tuple[TrafficCost, ...]:
        """Return what each traffic costs in an order, beside the given one and that of sorted hosts."""
        task, blocks = self.task, len(order)
        columns = (self.by_traffic(each) for each in (order, task.baseline, self.sorted_by_group))
        traffic = leaving(self.mesh, blocks)
        rows = []
        for name, each, cost, baseline, by_group in zip(labels(traffic), traffic, *columns, strict=True):
            busiest, crossing = self._links(each, order)
            costs = {"cost": cost, "baseline": baseline, "sorted_by_group": by_group}
            rounded = {key: round(value, 3) for key, value in costs.items()}
            rows.append(TrafficCost(traffic=name, busiest=busiest, crossing=crossing, **rounded))
        return tuple(rows)

    def _links(self, traffic: Traffic, order: Order) -> tuple[str | None, float]:
        """Return the busiest link, and the share of the bytes between hosts that leaves a group."""
        pattern, fabric = traffic_pattern(self.mesh, traffic, len(order)), self.task.fabric
        rounds = len(pattern.repeat)
        source, target = order[pattern.source], order[pattern.target]
        moved = pattern.share * pattern.repeat[pattern.round]
        crosses = fabric.group_of[source] != fabric.group_of[target]
        busiest = None
        if self.task.model != "latency":
            most = 0.0
            transfers = Transfers(rounds, pattern.round.astype(np.int64), source, target, pattern.share)
            for names, load in resource_loads(fabric, transfers, self.task.model):
                total = pattern.repeat @ load
                if total.max(initial=0.0) > most:
                    most, busiest = float(total.max()), names[int(total.argmax())]
        return busiest, round(float(moved[crosses].sum() / moved.sum()), 4)

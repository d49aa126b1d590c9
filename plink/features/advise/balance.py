"""What a training step needs of each link in each form of its exchange, what the links give, and what that hides."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.errors import NoAnswer, UsageError
from plink.features.advise.request import FORMS, BalanceRequest
from plink.features.advise.run import ALL_INTERFACES, Advice, advise, bcube_of, order_and_options
from plink.features.order.algorithms import fabric_from, order_from
from plink.features.order.hubs import Ranks, with_hubs
from plink.features.order.interfaces import fabric_of_algorithm
from plink.model.advice import BalanceForm, StatedAdvice, StatedRackTimes, StepBalance
from plink.model.document import UNSET
from plink.model.network import Network
from solvers.advice import CostLine
from solvers.balance import BusiestLink, RackTimes, busiest_link, rack_times, speed_up, wide_hosts
from solvers.costs.by_name import pattern_for, priced_options
from solvers.costs.evaluator import with_host_costs
from solvers.costs.fabric import Fabric
from solvers.schedules.catalogue import HUB_ALGORITHMS, Options
from solvers.simulation.cost import SimulatedCost, cost_by_model

_MAX_HUBS = 8  # that are tried one more at a time
_MIN_GAIN = 0.02  # of work by one more
_ALIKE = 0.01  # rates of hubs


@dataclass(frozen=True)
class FormBalance:
    """A form of the exchange. ``order``: the family of its rank order; ``servers``: the hosts that aggregate where not
    all ranks do; ``hosts``: indices of all that it uses, hubs last; ``workers``: ranks. ``need_gbps``: of the busiest
    link, with all links faster by the same factor, so that the step hides the exchange; infinite where no rate is
    enough. ``exposed_s``: what the step does not hide; ``step_s``: the step with that. ``speed_up``: by what factor."""

    algo: str
    order: str
    servers: tuple[str, ...]
    hosts: tuple[int, ...]
    workers: int
    link: BusiestLink
    exchange_s: float
    exposed_s: float
    step_s: float
    speed_up: Callable[[], float] = field(repr=False, compare=False)

    @cached_property
    def need_gbps(self) -> float:
        """What the busiest link would have to carry."""
        return self.link.gbps * self.speed_up()

    @property
    def work(self) -> float:
        """Steps of single workers a second."""
        return self.workers / self.step_s

    @property
    def name(self) -> str:
        """Name for people: the algorithm, and where it aggregates."""
        return f"{self.algo} on {', '.join(self.servers)}" if self.servers else self.algo


@dataclass(frozen=True)
class Balance:
    """Balance of a step and a network. ``forms``: those with the most work per time first, of equal ones the fastest
    exchange. ``candidates``: hosts that serve as hubs in ``forms``, the widest first; ``hubs_stated``: whether the
    hosts file says so. ``by_rack``: hubs of several racks that are alike, by links alone."""

    request: BalanceRequest
    advice: Advice
    forms: tuple[FormBalance, ...]
    candidates: tuple[str, ...]
    hubs_stated: bool
    by_rack: RackTimes | None

    @property
    def without_hubs(self) -> FormBalance | None:
        """Return the best form of ranks alone; None where only hubs were asked for."""
        return next((form for form in self.forms if form.algo not in HUB_ALGORITHMS), None)

    @property
    def with_hubs(self) -> FormBalance | None:
        """Return the best form with hubs; None without candidates."""
        return next((form for form in self.forms if form.algo in HUB_ALGORITHMS), None)

    @property
    def hub_gbps(self) -> float:
        """Return what all hubs of the best form with any, or of all ranks, need together each way, by bytes alone."""
        workers = self.with_hubs.workers if self.with_hubs else sum(host.slots for host in self.advice.network.hosts)
        bytes_, hidden_s = workers * self.request.parameter_bytes, self.request.hidden_s
        return bytes_ * 8e-9 / hidden_s if hidden_s > 0 else math.inf

    def of(self, algo: str) -> FormBalance | None:
        """Return the best form by this algorithm."""
        return next((form for form in self.forms if form.algo == algo), None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Return the hosts without a price, where hosts are rented."""
        hosts = self.advice.network.hosts
        return () if self.request.parts else tuple(host.name for host in hosts if host.price is None)

    def money(self, form: FormBalance) -> tuple[float, float] | None:
        """Return what a form costs, and the steps of single workers that money pays for: rented, money per hour and
        steps per money; bought, money and steps an hour per 1000 of it. None where prices are missing, or all 0."""
        hosts, parts = list(self.advice.network.hosts), self.request.parts
        hubs = len(form.servers) if form.algo in HUB_ALGORITHMS else 0
        if parts is None and self.unpriced:
            return None
        if parts is not None:
            cost = parts.total(len(form.hosts) - hubs, hubs)
        else:
            cost = sum(hosts[k].price or 0.0 for k in form.hosts)
        per_hour = 3600 * form.work
        return None if cost == 0 else (cost, per_hour / cost * (1000 if parts else 1))

    def stated(self) -> StatedAdvice:
        """Return the document ``plink.advice/1`` with ``balance``, and ``money`` where there are prices."""
        request, racks, forms = self.request, self.by_rack, tuple(map(self._stated_form, self.forms))
        is_priced = forms[0].cost is not UNSET
        return structs.replace(
            self.advice.stated(),
            balance=StepBalance(
                parameter_bytes=round(request.parameter_bytes),
                step_s=request.step_s,
                overlap=request.overlap,
                forms=forms,
                hub_gbps=_finite(self.hub_gbps),
                by_rack=UNSET
                if racks is None
                else StatedRackTimes(**{key: round(value, 6) for key, value in vars(racks).items()}),
            ),
            money=("bought" if request.parts else "rented") if is_priced else UNSET,
        )

    def _stated_form(self, form: FormBalance) -> BalanceForm:
        cost, work_per_money = self.money(form) or (UNSET, UNSET)
        return BalanceForm(
            form=form.name,
            algo=form.algo,
            order=form.order,
            servers=form.servers,
            workers=form.workers,
            link=form.link.name,
            equal_links=form.link.equals,
            link_bytes=round(form.link.bytes),
            link_gbps=round(form.link.gbps, 6),
            need_gbps=_finite(form.need_gbps),
            exchange_s=round(form.exchange_s, 6),
            exposed_s=round(form.exposed_s, 6),
            step_s=round(form.step_s, 6),
            cost=cost,
            work_per_money=work_per_money,
        )


def _finite(gbps: float) -> float | None:
    return round(gbps, 6) if math.isfinite(gbps) else None


def balance(network: Network, request: BalanceRequest) -> Balance:
    """Return what each form of a step's exchange needs of the links of a network, and what the step hides.

    :raises UsageError: for a request that cannot be met.
    :raises NoAnswer: when no rates were measured, a pair that all need was not, or nothing crosses a link.
    """
    fabric, ranks = fabric_from(network, request.advise.smooth_latencies), order_from(network, None)
    if fabric.rate_gbps is None:
        raise NoAnswer(f"{network.location} has no measured rates of hosts or links; `plink probe HOSTS` measures them")
    size, algorithms = request.parameter_bytes, request.advise.algorithms
    if algorithms == FORMS:
        is_bcube, is_grouped = bcube_of(network) is not None, len(set(fabric.group_of[ranks].tolist())) > 1
        algorithms = tuple(algo for algo in FORMS if is_grouped or algo != "2lha")  # of one group it is flat
        algorithms += ALL_INTERFACES if is_bcube else ()
    options = {"sharded": False, "colocated": True} if "ps" in algorithms else {}
    advice = advise(
        network,
        replace(
            request.advise,
            min_bytes=size,
            max_bytes=size,
            algorithms=algorithms,
            options=options | dict(request.advise.options),
        ),
    )
    rates = advice.fabric.host_gbps
    stated = [k for k, host in enumerate(network.hosts) if not host.slots]
    candidates = sorted(stated, key=lambda k: -rates[k]) if stated else wide_hosts(rates.tolist())
    forms = [*_forms_of_ranks(advice, request), *_forms_of_hubs(advice, request, candidates)]
    if not forms:
        raise NoAnswer("all ranks are on one host: their exchange crosses no link")
    forms.sort(key=lambda form: (-form.work, form.exchange_s))
    return Balance(
        request,
        advice,
        tuple(forms),
        tuple(advice.fabric.names[k] for k in candidates),
        bool(stated),
        _by_rack(network, advice.fabric, candidates, rates, size),
    )


def _forms_of_ranks(advice: Advice, request: BalanceRequest) -> Iterator[FormBalance]:
    """Yield the forms in which ranks aggregate, each in the best of its orders."""
    size, fabric = request.parameter_bytes, advice.fabric
    for algo in dict.fromkeys(line.algo for line in advice.lines if line.algo not in HUB_ALGORITHMS):
        line = advice.best(size, algo)
        order, options = order_and_options(advice.network, advice.request, fabric, algo, advice.orders[line.family])
        central = algo == "ps" and not options.sharded and options.colocated
        servers = (fabric.names[order[options.root]],) if central else ()
        form = _form(advice, request, _Setting(algo, line.family, order, options, servers), line)
        if form is not None:
            yield form


def _forms_of_hubs(advice: Advice, request: BalanceRequest, candidates: Sequence[int]) -> Iterator[FormBalance]:
    """Yield the forms of one hub, of as many as hide the exchange or gain most, and rack by rack with all."""
    network, fabric = advice.network, advice.fabric
    for algo in HUB_ALGORITHMS if candidates else ():
        forms: list[FormBalance] = []
        numbers = range(1, min(len(candidates), _MAX_HUBS) + 1) if algo == "phub" else [len(candidates)]
        for number in numbers:
            hubs, ranks = candidates[:number], advice.orders["given"]
            ranks = ranks[~np.isin(ranks, hubs)]
            if len(ranks) < 2 or (algo != "phub" and len(set(fabric.group_of[ranks].tolist())) < 2):
                continue
            try:
                joined = with_hubs(network, fabric, algo, ranks, Options(), hubs)
            except UsageError:  # a group of hosts has none
                continue
            if algo == "phub-2l" and len(joined.options.groups or ()) == 1:  # which is phub
                continue
            names = tuple(fabric.names[k] for k in hubs)
            form = _form(advice, request, _Setting(algo, "given", joined.order, joined.options, names))
            if form is not None and (not forms or form.work > (1 + _MIN_GAIN) * forms[-1].work):
                forms.append(form)
            if forms and forms[-1].exposed_s == 0:
                break
        yield from dict.fromkeys((*forms[:1], *forms[-1:]))


class _Setting(NamedTuple):
    """An algorithm in an order of a family, hubs last, with its options, and the hosts that aggregate."""

    algo: str
    family: str
    order: Ranks
    options: Options
    servers: tuple[str, ...]


def _form(
    advice: Advice, request: BalanceRequest, setting: _Setting, line: CostLine | None = None
) -> FormBalance | None:
    """Return the balance of a form; None when nothing crosses a link.

    :param line: of its costs; None: priced here.
    """
    (algo, family, order, options, servers), size, model = setting, request.parameter_bytes, advice.model
    fabric = fabric_of_algorithm(advice.network, advice.fabric, algo)
    cost_of = cost_by_model(algo, len(order), options, fabric, size, model)
    if line is not None and line.is_by_rounds(size):
        cost_of = SimulatedCost.by_rounds(algo, len(order), options, fabric, size)
    exchange_s = (cost_of(order) if line is None else line.at(size)) / 1e6
    pattern = pattern_for(algo, len(order), priced_options(options, algo, size, model))
    link = busiest_link(pattern, fabric, order, size, model != "alpha-beta")
    if link is None:
        return None
    hidden_s = request.hidden_s
    exposed_s = max(0.0, exchange_s - hidden_s)

    def seconds_of(factor: float) -> float:
        links, costs = (advice.fabric.links or advice.fabric).faster(factor), advice.network.host_costs
        faster = links if costs is None else with_host_costs(links, costs.overhead_us, costs.byte_ns)
        faster = fabric_of_algorithm(advice.network, faster, algo)
        if isinstance(cost_of, SimulatedCost):  # which is prepared
            return replace(cost_of, fabric=faster)(order) / 1e6
        return cost_by_model(algo, len(order), options, faster, size, model)(order) / 1e6

    workers = len(order) - (options.servers or 0 if algo in HUB_ALGORITHMS else 0)
    return FormBalance(
        algo, family, servers, tuple(dict.fromkeys(order.tolist())), workers, link, exchange_s, exposed_s,
        request.step_s + exposed_s, lambda: speed_up(seconds_of, hidden_s, link.busy_s),
    )  # fmt: skip


def _by_rack(
    network: Network, fabric: Fabric, candidates: Sequence[int], rates: npt.NDArray[np.float64], size_bytes: float
) -> RackTimes | None:
    """Return the times of hubs as shards and rack by rack, of the innermost tier in which each of its groups has hubs
    and workers; None without any, and of hubs that are not alike, whose shares are not."""
    is_hub, slots = np.isin(np.arange(len(network.hosts)), candidates), np.array([host.slots for host in network.hosts])
    slowest = float((rates / np.maximum(1, slots))[~is_hub].min(initial=math.inf))
    if not np.allclose(rates[candidates], rates[candidates].max(initial=0.0), rtol=_ALIKE):
        return None
    for tier in fabric.tiers:
        groups, group_of = np.unique(tier.group_of, return_inverse=True)
        hubs, workers = (
            np.bincount(group_of, np.where(chosen, weights, 0.0))
            for chosen, weights in ((is_hub, rates), (~is_hub, slots))
        )
        if len(groups) > 1 and workers.all() and hubs.all() and np.allclose(hubs, hubs.max(), rtol=_ALIKE):
            core = np.minimum(tier.out_gbps, tier.in_gbps)[groups].tolist()
            return rack_times(workers.astype(int).tolist(), hubs.tolist(), core, slowest, size_bytes)
    return None

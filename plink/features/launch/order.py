"""Decide in which order a job's hosts take its ranks, from files or by measuring and searching first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.errors import InputError, NoAnswer, PartlyDone, PlinkError, UsageError
from plink.features.launch.request import KEEP_HOSTS_ORDER, JobRequest
from plink.features.measure.request import ProbeRequest
from plink.features.measure.session import measure_into
from plink.features.order.interfaces import interface_warnings
from plink.features.order.request import OrderRequest
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.network import Network, read_network
from plink.model.order import RankOrder, read_order
from plink.model.plan import is_plan, read_plan
from plink.model.subnetwork import subnetwork
from plink.records import workspace
from plink.terminal.inputs import part_of
from plink.terminal.interrupts import deferred_interrupts
from plink.terminal.screen import say, say_read
from probes.measurements import Measurements

# Enough to tell racks apart (docs/results/probing.md); `plink probe` takes more, and measures more than round trips.
_PROBES_PER_PAIR = 1000


@dataclass(frozen=True)
class JobOrder:
    """Hosts of a job in rank order. ``baseline``: the same as in the hosts file; ``identities``: of the machines when
    they were measured, by name; ``environment``: variables of a plan or a mesh for every process; ``network``: what was
    measured of these hosts before now, for the order; ``hubs``: hosts that take no ranks; ``source``: how the order is
    recorded; ``plan_file``: where it is that of a plan."""

    hosts: Hosts
    baseline: Hosts
    identities: dict[str, dict[str, Any]]
    environment: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None
    hubs: tuple[Host, ...] = ()
    source: str = "given"
    plan_file: Path | None = None


def job_order(
    options: JobRequest, check: Callable[[Hosts], None] = lambda hosts: None, may_probe: bool = True
) -> JobOrder:
    """Return a job's hosts in rank order, and say where they are from. Without an order, hosts are probed and ordered
    first, unless a recent network file of theirs exists.

    :param check: called with the hosts, hubs among them, before they are probed or an order is searched for, which
        takes long; raises what keeps them from running the job.
    :param may_probe: hosts without an order may be probed.
    :raises UsageError: when there are no hosts. :raises PlinkError: as probing does.
    """
    keep_order = options.order == KEEP_HOSTS_ORDER
    order_file = None if options.order is None or keep_order else Path(options.order)
    if order_file is not None and is_plan(order_file):
        return _from_plan(order_file, options.hosts_file)
    network = compared = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
    if options.hosts_file is not None:
        baseline = read_hosts(options.hosts_file)
    elif network is not None:
        say_read(workspace.NETWORK, network.measured_at)
        baseline = network.hosts
    else:
        raise UsageError("no hosts: give --hosts hosts.txt, or `plink probe hosts.txt` first")
    ranked = baseline.ranked()
    order, location, source = None, str(workspace.ORDER), "given"
    if order_file is not None:
        order, location = read_order(order_file, baseline), str(order_file)
        source = location
    elif not keep_order and len(ranked) >= 3:
        network, order, is_new = _computed_order(options, baseline, network, check, may_probe)
        compared = None if is_new else network  # what was measured a moment ago need not be
        source = f"plink ({order.algo})"
    hosts = ranked if order is None else order.arrange(baseline, location)
    environment = {} if order is None else order.environment
    compared = compared if not keep_order and _has_hosts(compared, baseline) else None
    identities = {} if network is None else network.host_identities
    return JobOrder(hosts, ranked, identities, environment, compared, baseline.hubs, source)


def _has_hosts(network: Network | None, hosts: Hosts) -> bool:
    """Return whether a network has all of these hosts, at the same addresses."""
    measured = {} if network is None else {host.name: host.address for host in network.hosts}
    return all(measured.get(host.name) == host.address for host in hosts)


def _same_hosts(measured: Hosts, baseline: Hosts) -> bool:
    """Return whether these are the same hosts at the same addresses: a recreated machine may keep its name."""
    return {host.name: host.address for host in measured} == {host.name: host.address for host in baseline}


def _from_plan(plan_file: Path, hosts_file: Path | None) -> JobOrder:
    plan = read_plan(plan_file)
    location = str(plan_file)
    network = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
    if hosts_file is not None:
        baseline = read_hosts(hosts_file)
    else:  # as they stood when they were measured, if that is known
        baseline = network.hosts if network is not None and _same_hosts(network.hosts, plan.hosts) else plan.hosts
    hosts = plan.order.arrange(baseline, location)
    for planned, host in zip(plan.hosts, hosts, strict=True):
        if planned.slots != host.slots:
            raise InputError(
                location, f"the plan gives {host.name} {planned.slots} slots, the hosts file {host.slots}; plan again"
            )
    identities = {} if network is None else network.host_identities
    compared = network if _has_hosts(network, hosts) else None
    return JobOrder(
        hosts, baseline.ranked(), identities, plan.environment, compared, baseline.hubs, location, plan_file
    )


def _computed_order(
    options: JobRequest, baseline: Hosts, network: Network | None, check: Callable[[Hosts], None], may_probe: bool
) -> tuple[Network, RankOrder, bool]:
    """Return the network of these hosts, which is probed where it is missing or too old, the last order for them or a
    new one, and whether they were probed."""
    stored, reason = network, None  # to measure
    if network is None or not _has_hosts(network, baseline) or _is_empty(network):
        reason = f"nothing was measured of these {len(baseline)} hosts here yet"
    elif options.hosts_file is not None:  # without, it is what was measured here that was asked for, however old
        if workspace.age_s(workspace.NETWORK, network.measured_at) > options.settings.max_network_age_s:
            old = workspace.age(workspace.NETWORK, network.measured_at)
            reason = f"{workspace.NETWORK} is {old} old, more than max-network-age"
        else:
            say_read(workspace.NETWORK, network.measured_at)
            measured_hosts = len(network.hosts)
            try:
                network = part_of(network, baseline)
            except NoAnswer as error:
                reason = str(error)
            if len(network.hosts) < measured_hosts and _lacks_hosts(network):
                reason = "some of these hosts were away when the others were measured"
    warned: list[str] = []  # by the probe
    if is_new := network is None or reason is not None:
        if not may_probe:
            raise UsageError(
                f"{reason}: give --order order.json, or --order given for that of the hosts file, or `plink probe` "
                "first; no host is contacted here"
            )
        check(baseline)
        say(f"{reason}: probing them (--order given starts without)")
        if stored is not None and not _is_empty(stored) and _has_more(stored, baseline):
            _keep(stored)
        network = _probe(options, baseline)
        warned = interface_warnings(network)
    order = read_order(workspace.ORDER) if workspace.ORDER.is_file() else None
    if order is not None and set(order.hosts) != (names := set(baseline.ranked().names)):
        is_newer = workspace.ORDER.stat().st_mtime >= workspace.NETWORK.stat().st_mtime  # else of other measurements
        if options.hosts_file is None and is_newer and set(order.hosts) <= set(network.hosts.names):
            raise UsageError(
                f"{workspace.ORDER} is for {len(order.hosts)} hosts of {workspace.NETWORK}, and not for the "
                f"{len(names)} that take ranks there: --hosts FILE names the hosts of the job, or `plink reorder` "
                "orders all of them"
            )
        say(f"{workspace.ORDER} is for other hosts and is ignored")
        order = None
    if order is not None and options.algo in (None, order.algo) and order.network in (None, network.fingerprint()):
        say_read(workspace.ORDER)
        if order.interrupted:
            say("the search for it was interrupted; `plink reorder` searches anew")
    else:
        if reason is None:
            check(baseline)
        # Roles and slots of the file are from when it was measured.
        order = _search_order(subnetwork(network, baseline), options.algo or "ring", warned, not options.dry_run)
    return network, order, is_new


def _is_empty(network: Network) -> bool:
    """Return whether no round trip is known."""
    finite = network.completed_us == network.completed_us  # with each host's to itself
    return int(finite.sum()) <= len(network.hosts)


def _lacks_hosts(network: Network) -> bool:
    """Return whether a host was lost when they were measured, or no round trip of it to the others is known."""
    counts = (network.completed_us == network.completed_us).sum(axis=0)  # with its own
    return bool((counts < 2).any()) or not network.lost_hosts.keys().isdisjoint(network.hosts.names)


def _has_more(network: Network, hosts: Hosts) -> bool:
    """Return whether a network has what the probe of these hosts in a launch does not measure."""
    parts = network.host_costs, network.library_costs, network.shared_links, set(network.hosts.names) - set(hosts.names)
    return any(parts) or network.bandwidth_gbps is not None


def _keep(network: Network) -> None:
    """Write a measurement that the probe of a launch replaces under a name of its own."""
    path = workspace.NETWORK.with_stem(f"network-{network.fingerprint().removeprefix('sha256:')[:8]}")
    network.write(path)
    say(f"{workspace.NETWORK} has more than is measured here; it is kept as {path}")


def _probe(options: JobRequest, baseline: Hosts) -> Network:
    measurements = Measurements(baseline)
    request = ProbeRequest(
        count=_PROBES_PER_PAIR, shared_links=False, accept_new_host_keys=options.accept_new_host_keys
    )
    try:
        measure_into(workspace.NETWORK, measurements, request)
    except PartlyDone as error:
        if not measurements.any():
            raise PlinkError(str(error)) from None
        say(str(error))
    return measurements.network()


def _search_order(network: Network, algo: str, warned: list[str], save: bool) -> RankOrder:
    from plink.features.order.session import save_order, search_with_status

    with deferred_interrupts() as stopped:
        outcome = search_with_status(network, OrderRequest(algo), stopped)
        if save:
            save_order(outcome.order)
    for line in outcome.lines:
        if line not in warned:
            say(line)
    if stopped():
        raise KeyboardInterrupt
    return outcome.order

"""In which order a job's hosts take its ranks: as was asked, by what is at hand, or measured and worked out first."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.cli.screen import say, took
from plink.errors import InputError, PartlyDone, UsageError
from plink.model.hosts import Hosts, read_hosts
from plink.model.network import Network, read_network
from plink.model.order import RankOrder, read_order
from plink.records import workspace

# Enough to tell racks apart (docs/results/probing.md); `plink probe` takes more, and measures more than round trips.
_PROBES = 1000


@dataclass(frozen=True)
class JobOrder:
    """``hosts`` in rank order; ``given``: as they stood in the hosts file; ``identities``: of the machines behind them
    when they were measured, by name; ``environment``: what a plan has every process started with."""

    hosts: Hosts
    given: Hosts
    identities: dict[str, dict[str, Any]]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sources:
    """What was typed. ``as_given``: the order of the hosts file is the one that is wanted."""

    hosts_file: Path | None = None
    order_file: Path | None = None
    plan_file: Path | None = None
    as_given: bool = False
    max_age_s: float = 86400.0
    algo: str | None = None
    accept_new_host_keys: bool = False


def job_order(asked: Sources, check: Callable[[Hosts], None] = lambda hosts: None) -> JobOrder:
    """Says where hosts and order came from. With nothing but hosts they are probed first and put in order, unless a
    network file of theirs is at hand that is young enough.

    :param check: called with the hosts before they are probed or an order is searched for, which takes long; raises
        what keeps them from running the job.
    :raises UsageError: when there are no hosts. :raises PlinkError: as probing does.
    """
    if asked.plan_file is not None:
        return _planned(asked.plan_file, asked.hosts_file)
    network = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
    if asked.hosts_file is not None:
        given = read_hosts(asked.hosts_file)
    elif network is not None:
        took(workspace.NETWORK)
        given = network.hosts
    else:
        raise UsageError("no hosts: give --hosts hosts.txt, or `plink probe hosts.txt` first")
    if asked.order_file is not None:
        hosts = read_order(asked.order_file).arrange(given, str(asked.order_file))
    elif asked.as_given or len(given) < 3:
        hosts = given
    else:
        network, hosts = _worked_out(asked, given, network, check)
    return JobOrder(hosts, given, {} if network is None else network.host_identities)


def _same(known: Hosts, given: Hosts) -> bool:
    """The same hosts at the same addresses: machines that were made anew under old names are not."""
    return {host.name: host.address for host in known} == {host.name: host.address for host in given}


def _planned(plan_file: Path, hosts_file: Path | None) -> JobOrder:
    from plink.model.plan_file import read_plan

    plan = read_plan(plan_file)
    where = str(plan_file)
    network = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
    if hosts_file is not None:
        given = read_hosts(hosts_file)
    else:  # as they stood when they were measured, if that is known
        given = network.hosts if network is not None and _same(network.hosts, plan.hosts) else plan.hosts
    hosts = plan.order.arrange(given, where)
    for planned, host in zip(plan.hosts, hosts, strict=True):
        if planned.slots != host.slots:
            raise InputError(
                where, f"the plan gives {host.name} {planned.slots} slots, the hosts file {host.slots}; plan again"
            )
    return JobOrder(hosts, given, {} if network is None else network.host_identities, plan.environment)


def _worked_out(
    asked: Sources, given: Hosts, network: Network | None, check: Callable[[Hosts], None]
) -> tuple[Network, Hosts]:
    """The order found last for these hosts, or one found now from their network, which is measured first where it is
    missing or too old."""
    if asked.algo is not None:
        from plink.api.ordering import OrderRequest

        OrderRequest(asked.algo).check()
    reason = None  # to measure
    if network is None or not _same(network.hosts, given):
        reason = (
            f"nothing was measured of these {len(given)} hosts here yet: probing them (--order given starts without)"
        )
    elif asked.hosts_file is not None:  # without, it is what was measured here that was asked for, however old
        if time.time() - workspace.NETWORK.stat().st_mtime > asked.max_age_s:
            reason = (
                f"{workspace.NETWORK} is {workspace.age(workspace.NETWORK)} old, more than max-network-age: probing"
            )
        else:
            took(workspace.NETWORK)
    if network is None or reason is not None:
        check(given)
        say(str(reason))
        network = _probed(asked, given)
    order = read_order(workspace.ORDER) if workspace.ORDER.is_file() else None
    fits = order is not None and set(order.hosts) == set(given.names) and asked.algo in (None, order.algo)
    if order is not None and fits and order.network in (None, network.fingerprint()):
        took(workspace.ORDER)
        if order.details.get("interrupted"):
            say("the search for it was interrupted; `plink reorder` searches anew")
    else:
        if reason is None:
            check(given)
        order = _ordered(network, asked.algo or "ring")
    return network, order.arrange(given, str(workspace.ORDER))


def _probed(asked: Sources, given: Hosts) -> Network:
    from plink.api.probe_request import ProbeRequest
    from plink.cli.probe import measure_into
    from probes.measurements import Measurements

    found = Measurements(given)
    request = ProbeRequest(count=_PROBES, shared_links=False, accept_new_host_keys=asked.accept_new_host_keys)
    try:
        measure_into(workspace.NETWORK, found, request)
    except PartlyDone as error:
        say(str(error))
    return found.network()


def _ordered(network: Network, algo: str) -> RankOrder:
    from plink.api.ordering import OrderRequest
    from plink.cli.interrupts import noted
    from plink.cli.reorder import keep, search_shown

    with noted() as stopped:
        found = search_shown(network, OrderRequest(algo), stopped)
        keep(found.order)
    for line in found.lines:
        say(line)
    if stopped():
        raise KeyboardInterrupt
    return found.order

"""A driver that an elastic job is started with: what is refused before the job, and the command of its process."""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from plink.errors import UsageError
from plink.features.spot.drive import check_on_demand
from plink.features.spot.request import SpotDriveRequest
from plink.model.codec import convert
from plink.model.hosts import Hosts
from plink.model.spot.market_file import AwsTable, CommandTable, MarketFile, read_market_file
from plink.model.storage import read_document, write_document
from runners.spot.choice import choose_provider

RUNNERS = ("ssh", "local")
MAX_INSTANCES = 10_000  # of a job that is started with its driver
_REQUEST_FILE = "spot-driver.json"  # in the run's folder


def driver_command(request: SpotDriveRequest, folder: Path) -> list[str]:
    """Write the request of a run's driver into its folder, and return the driver's argument vector; ``-P``: files of
    the working folder are no modules."""
    write_document(folder / _REQUEST_FILE, msgspec.to_builtins(request))
    return [sys.executable, "-P", "-m", "plink", "spot", "drive-job", folder.name]


def request_of(folder: Path) -> SpotDriveRequest:
    """Return what the driver of a run was started with. :raises InputError: where that cannot be read."""
    path = folder / _REQUEST_FILE
    return convert(SpotDriveRequest, read_document(path), str(path))


def checked_max_hosts(request: SpotDriveRequest, hosts: Hosts, runner: str, max_hosts: int | None) -> int:
    """Return ``--max-hosts`` of a job: what was typed, or what it and its driver need.

    :raises PlinkError: for what the driver would refuse once the job runs; no host is asked, and no provider.
    """
    if runner not in RUNNERS:
        raise UsageError(f"--spot: choose --runner {' or '.join(RUNNERS)}, not {runner}")
    assert request.market is not None
    market_file = read_market_file(request.market)
    with tempfile.TemporaryDirectory(prefix="plink-spot-") as scratch:
        chosen = choose_provider(market_file, "check", Path(scratch), "dry run")
    for program in _programs(market_file):
        if shutil.which(program) is None:
            raise UsageError(f"{market_file.path}: there is no command {program} to rent instances with")
    if chosen.hosts is not None and chosen.hosts.lab != hosts.lab:
        raise UsageError(f"{market_file.path}: the provider's hosts are not where the job's hosts are")
    check_on_demand(market_file, chosen, request)
    reliable = sum(host.tier == "reliable" for host in hosts)
    if market_file.anchors is not None and market_file.anchors.count != reliable:
        raise UsageError(
            f"{market_file.path}: anchors.count is {market_file.anchors.count}, and the hosts file has {reliable} "
            "reliable hosts; costs would be wrong"
        )
    rented = _max_instances(market_file, request.deadline_s is not None, chosen.hosts)
    needed = len(hosts) + rented
    if max_hosts is not None and max_hosts < needed:
        raise UsageError(
            f"--max-hosts {max_hosts}: {len(hosts)} hosts and up to {rented} instances that {market_file.path} "
            f"allows (limits.max_cores) are {needed}; give --max-hosts {needed}, or lower max_cores"
        )
    return needed if max_hosts is None else max_hosts


def _programs(market_file: MarketFile) -> Sequence[str]:
    match market_file.provider:
        case AwsTable():
            return ("aws",)
        case CommandTable() as table:
            return tuple(words[0] for words in (table.prices, table.acquire, table.listing, table.release))
    return ()


def _max_instances(market_file: MarketFile, has_deadline: bool, own_hosts: Hosts | None) -> int:
    """Return how many instances a driver may hold at once, at most.

    :param has_deadline: whether it may fall back to the reference machines. :param own_hosts: of a provider that has a
        list of them.
    :raises UsageError: when there is no bound that a job could be prepared for.
    """
    anchors = market_file.anchors
    working = anchors.count * anchors.type.cores if anchors is not None and market_file.anchors_work else 0.0
    cores = max(0.0, market_file.limits.max_cores - working)
    if own_hosts is not None:
        cores = min(cores, len(own_hosts) * max(kind.cores for kind in market_file.types))
    smallest = min(kind.cores for kind in market_file.types)
    if cores / smallest > MAX_INSTANCES:
        raise UsageError(f"{market_file.path}: limits.max_cores allows more than {MAX_INSTANCES} instances; lower it")
    count = int(cores // smallest) + (market_file.reference.count if has_deadline else 0)
    return count if own_hosts is None else min(count, len(own_hosts))

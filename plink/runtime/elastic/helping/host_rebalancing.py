"""Rebalancing on one host: who its workers may help, and the data of those in memory before they are needed."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plink.errors import PlinkError
from plink.model.consistency import check_rebalance
from plink.runtime.elastic.helping.help_network import HelpNetwork
from plink.runtime.elastic.helping.rebalancer import HelpStore, Rebalancer
from plink.runtime.elastic.helping.sides import Rebalance
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts
from plink.runtime.elastic.worker.worker import WorkOff


def helper_groups(hosts: Mapping[int, int], size: int) -> dict[int, tuple[int, ...]]:
    """Return the helpers of each worker. Each pair has a score by its numbers alone (rendezvous hashing), so that
    everybody who knows the workers sees the same, and little changes when some join or leave.

    :param hosts: the host of each worker.
    """
    return {worker: _helpers(worker, hosts, size) for worker in sorted(hosts)}


def _helpers(worker: int, hosts: Mapping[int, int], size: int) -> tuple[int, ...]:
    ranked = sorted((other for other in hosts if other != worker), key=lambda other: _score(worker, other))
    here = [other for other in ranked if hosts[other] == hosts[worker]][:1] if size > 1 else []
    chosen: list[int] = list(here)
    used = {hosts[worker]}
    for other in ranked:  # each from a host of its own
        if len(chosen) < size and hosts[other] not in used:
            chosen.append(other)
            used.add(hosts[other])
    chosen += [other for other in ranked if other not in chosen][: size - len(chosen)]
    return tuple(chosen)


def _score(worker: int, other: int) -> bytes:
    return hashlib.sha256(f"{worker} {other}".encode()).digest()


def helpees(groups: Mapping[int, tuple[int, ...]], helper: int) -> tuple[int, ...]:
    """Return the workers whom one may help."""
    return tuple(worker for worker, helpers in groups.items() if helper in helpers)


_FINE_PARTS = 20  # of a clock: with fewer, much of the delay stays
_TIMEOUTS = Timeouts(primary_s=5.0, workers_s=5.0)  # a helper that waits longer helps nobody


class HostRebalancing:
    """Rebalancing on one host; for one thread, but for :meth:`close`.

    :param server: of this host: others' messages come over its connections.
    :param say: for lines of the log.
    :raises UsageError: of the run's rule, as :func:`plink.model.consistency.check_rebalance`.
    """

    def __init__(
        self, loaded: LoadedShards[Any], server: Server, settings: Rebalance, say: Callable[[str], None]
    ) -> None:
        check_rebalance(server.config.rule)
        self._loaded, self._config, self._settings, self._say = loaded, server.config, settings, say
        self.network = HelpNetwork(server.config)
        self._rebalancers: dict[int, Rebalancer] = {}
        self._stores: dict[int, HelpStore] = {}
        self._groups: dict[int, tuple[int, ...]] = {}
        self._hosts: dict[int, int] = {}
        self._warned = False
        server.help = self.network.answer

    def start(self, worker: int, primaries: Mapping[int, PrimaryAddress]) -> WorkOff:
        """Let a worker of this host give work away and help others; return how it is to work off a clock."""
        store = self._stores[worker] = HelpStore(self._config, primaries, _TIMEOUTS)
        made = self._rebalancers[worker] = Rebalancer(worker, self._loaded, store, self.network, self._settings)
        made.set_helpees(helpees(self._groups, worker))
        return made.work_off

    def end(self, worker: int) -> None:
        """End a worker's part."""
        self._stores.pop(worker, None)
        if (made := self._rebalancers.pop(worker, None)) is not None:
            made.close()
            count, total = made.moved
            if count:
                self._say(f"worker {worker}: others did {100 * count / total:.1f} % of its work")

    def helped(self, worker: int) -> tuple[int, Mapping[int, int]]:
        """Return how many grains a worker's latest clock had, and how many each helper did; 0 where it takes no
        part."""
        made = self._rebalancers.get(worker)
        return (0, {}) if made is None else made.helped

    def assign(self, workers: Mapping[int, tuple[int, Sequence[int], int]], addresses: Mapping[int, str]) -> None:
        """Set all workers of the job, and load what those have whom the workers here may help.

        :param workers: host, shards and first clock of each worker.
        :param addresses: of the servers, by host.
        """
        hosts = {number: host for number, (host, _, _) in workers.items()}
        self.network.set_addresses({number: addresses[host] for number, host in hosts.items() if host in addresses})
        moved = {number for number, host in self._hosts.items() if hosts.get(number) != host}
        self._groups, self._hosts = helper_groups(hosts, self._settings.helpers), hosts
        ahead: set[int] = set()
        for number, made in list(self._rebalancers.items()):
            mine = helpees(self._groups, number)
            made.set_helpees(mine)
            made.drop(moved - {number})
            ahead.update(shard for helpee in mine for shard in workers[helpee][1])
            self._warn_if_coarse(len(workers[number][1]) if number in workers else 0)
        missing = sorted(ahead - set(self._loaded.here()))
        if missing:
            threading.Thread(target=self._load, args=(missing,), name="plink-preload", daemon=True).start()

    def _warn_if_coarse(self, shards: int) -> None:
        parts = shards * self._loaded.app.grains
        if 0 < parts < _FINE_PARTS and not self._warned:
            self._warned = True
            self._say(
                f"--rebalance: a worker's clock has {parts} parts, and helpers can do no less than one; cut it into "
                f"{_FINE_PARTS} or more, by more shards or by grains of a shard"
            )

    def _load(self, shards: Sequence[int]) -> None:
        try:
            self._loaded.ahead(shards)
        except PlinkError as error:
            self._say(f"the data of workers that may be helped could not be loaded: {error}")

    def set_primaries(self, primaries: Mapping[int, PrimaryAddress]) -> None:
        """Set the primaries of partitions, for all that is read for others."""
        for store in list(self._stores.values()):
            for partition, primary in primaries.items():
                store.set_primary(partition, primary)

    def moved(self) -> tuple[int, int]:
        """Return how many grains of the workers here others have done, and how many there were."""
        counts = [made.moved for made in list(self._rebalancers.values())]
        return sum(count for count, _ in counts), sum(total for _, total in counts)

    def close(self) -> None:
        """End all."""
        for worker in list(self._rebalancers):
            self.end(worker)
        self.network.close()

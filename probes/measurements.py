"""Results of measurements: matrices that fill round by round, and the network file that holds them."""

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network, matrix_from_json, to_rows
from plink.model.network_file import MachineIdentity, NetworkDetails, PairError
from probes.agent.summary import PERCENTILES

_MAIN = PERCENTILES.index(10)
# How a pair was measured: indices in a matrix; the file has these names.
METHODS = ("", "stamp", "icmp", "tcp")
CLOCKS = ("", "user", "kernel")
_CONTINUED = ("host_flows", "host_flow_errors", "interfaces", "shared_links", "host_costs", "predicted_us")
NO_ANSWER = "no probe was answered; check firewalls and security groups"
NOT_TRIED = "not tried: the budget was spent"
_MAX_VALUE = 1 << 53  # microseconds, or packets: an agent's number above it is invalid


class Measurements:
    """Results of N hosts; ``[i, j]`` is what i measured towards j (bandwidth: what j received from i)."""

    def __init__(self, hosts: Hosts) -> None:
        n = len(hosts)
        self.hosts = hosts
        self.percentiles: dict[int, Matrix] = {p: _empty(n) for p in PERCENTILES}
        self.halves: list[Matrix] = [_empty(n), _empty(n)]
        self.jitter = _empty(n)
        self.loss_forward, self.loss_back = _empty(n), _empty(n)
        self.samples: npt.NDArray[np.int64] = np.zeros((n, n), dtype=np.int64)
        self.clock_steps: npt.NDArray[np.int64] = np.zeros((n, n), dtype=np.int64)
        self.hops = _empty(n)
        self.method: npt.NDArray[np.int8] = np.zeros((n, n), dtype=np.int8)
        self.clock: npt.NDArray[np.int8] = np.zeros((n, n), dtype=np.int8)
        self.bandwidth: Matrix | None = None
        self.errors: dict[tuple[int, int], str] = {}
        self.bandwidth_errors: dict[tuple[int, int], str] = {}
        self.machines: list[MachineIdentity | None] = [None] * n
        self.details = NetworkDetails()

    def add(self, **keys: Any) -> None:
        """Set other keys of the network file."""
        self.details = structs.replace(self.details, **keys)

    @property
    def latency(self) -> Matrix:
        """10th percentiles of the round trips, microseconds, NaN where unmeasured, shape (N, N); not a copy."""
        return self.percentiles[10]

    def bandwidth_matrix(self) -> Matrix:
        """Return bandwidths, Gbit/s, shape (N, N), all NaN before the first is measured."""
        if self.bandwidth is None:
            self.bandwidth = _empty(len(self.hosts))
        return self.bandwidth

    def any(self) -> bool:
        """Return whether any pair was measured."""
        off = ~np.eye(len(self.hosts), dtype=bool)
        return bool(np.isfinite(self.latency[off]).any()) or self.bandwidth is not None

    def missing(self) -> list[tuple[int, int]]:
        """Return the pairs (i < j) that lack a round trip in one direction or both."""
        unmeasured = np.isnan(self.latency)
        return [(int(i), int(j)) for i, j in np.argwhere(np.triu(unmeasured | unmeasured.T, 1))]

    def record(self, i: int, j: int, method: str, result: dict[str, Any]) -> None:
        """Record the result that host i reports of j. An invalid result is recorded as an error."""
        error = result.get("error")
        if "sent" in result and not _is_valid(result):
            error = "its agent sent a malformed result"
        elif "sent" in result:
            self._set(i, j, method, result)
            if result["percentiles_us"][_MAIN] is not None:
                self.errors.pop((i, j), None)
                return
        self.record_error(i, j, self.reported(error or NO_ANSWER))

    def _set(self, i: int, j: int, method: str, result: dict[str, Any]) -> None:
        sent, received = result["sent"], result["received"]
        self.samples[i, j] = received
        self.clock_steps[i, j] = result.get("clock_steps") or 0
        self.method[i, j] = METHODS.index(method)
        self.clock[i, j] = CLOCKS.index(result.get("clock", "user"))
        for p, value in zip(PERCENTILES, result["percentiles_us"], strict=True):
            self.percentiles[p][i, j] = np.nan if value is None else value
        for half, value in zip(self.halves, result["halves_us"], strict=True):
            half[i, j] = np.nan if value is None else value
        self.jitter[i, j] = np.nan if result["jitter_us"] is None else result["jitter_us"]
        if result.get("hops") is not None:
            self.hops[i, j] = result["hops"]
        reflected = result.get("reflected")
        if sent and reflected is not None:
            self.loss_forward[i, j] = 1 - reflected / sent
            self.loss_back[i, j] = 1 - received / reflected if reflected else np.nan
        elif sent:  # the direction is unknown: losses count as losses on the forward path
            self.loss_forward[i, j] = 1 - received / sent

    def reported(self, text: object) -> str:
        """Return an agent's own words as a reason; a host's name at their start would say that this host is lost."""
        start, colon, _ = str(text).partition(": ")
        return f"reported: {text}" if colon and start in self.hosts.names else str(text)

    def record_error(self, i: int, j: int, error: str) -> None:
        """Record why the round trip from i to j could not be measured."""
        self.errors[i, j] = error

    def network(self) -> Network:
        """Return the network with all results, as it is written to disk."""
        np.fill_diagonal(self.latency, 0.0)
        names = self.hosts.names
        details = structs.replace(
            self.details,
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            percentiles_us={str(p): to_rows(self.percentiles[p]) for p in PERCENTILES if p != 10},
            halves_us=[to_rows(half) for half in self.halves],
            jitter_us=to_rows(self.jitter),
            loss_forward=to_rows(self.loss_forward, digits=6),
            loss_back=to_rows(self.loss_back, digits=6),
            samples=self.samples.tolist(),
            clock_steps=self.clock_steps.tolist(),
            hops=[[None if value != value else int(value) for value in row] for row in self.hops.tolist()],
            methods=list(METHODS),
            method_used=self.method.tolist(),
            clocks=list(CLOCKS),
            clock_used=self.clock.tolist(),
            machines=self.machines,
            errors=_rows(names, self.errors),
            bandwidth_errors=UNSET if self.bandwidth is None else _rows(names, self.bandwidth_errors),
        )
        return Network(self.hosts, self.latency.copy(), self.bandwidth, details)


def _is_valid(result: dict[str, Any]) -> bool:
    """Return whether a result has all keys of a measurement, with values in range."""
    if not {"sent", "received", "percentiles_us", "halves_us", "jitter_us"} <= set(result):
        return False
    counts = [result.get(key) for key in ("sent", "received")]
    counts += [result[key] for key in ("reflected", "clock_steps", "hops") if result.get(key) is not None]
    percentiles, halves = result["percentiles_us"], result["halves_us"]
    if (
        not isinstance(percentiles, list)
        or not isinstance(halves, list)
        or (len(percentiles), len(halves)) != (len(PERCENTILES), 2)
    ):
        return False
    times = [*percentiles, *halves, result["jitter_us"]]
    return (
        all(type(count) is int and 0 <= count < _MAX_VALUE for count in counts)
        and all(value is None or (type(value) in (int, float) and 0 <= value < _MAX_VALUE) for value in times)
        and result.get("clock", "user") in CLOCKS[1:]
    )


def _rows(names: list[str], errors: dict[tuple[int, int], str]) -> list[PairError]:
    return [PairError(source=names[i], target=names[j], reason=error) for (i, j), error in sorted(errors.items())]


def measurements_from(network: Network) -> Measurements:
    """Return measurements that continue those of a network file; what the file lacks counts as unmeasured.

    Agents that were lost may be back: what failed for their sake counts as not tried.
    """
    measurements = Measurements(network.hosts)
    n, details = len(network.hosts), network.details

    def matrix(key: str) -> Matrix:
        value = network.detail(key)
        return _empty(n) if value is None else value

    for p, rows in (details.percentiles_us or {}).items():
        if p in map(str, PERCENTILES):
            measurements.percentiles[int(p)] = matrix_from_json(rows, n, f"{network.location}: percentiles_us.{p}")
    measurements.percentiles[10] = network.latency_us.copy()
    measurements.halves = list(network.halves() or measurements.halves)
    measurements.jitter = matrix("jitter_us")
    measurements.loss_forward = matrix("loss_forward")
    measurements.loss_back = matrix("loss_back")
    measurements.hops = matrix("hops")
    measurements.samples = np.nan_to_num(matrix("samples")).astype(np.int64)
    measurements.clock_steps = np.nan_to_num(matrix("clock_steps")).astype(np.int64)
    measurements.method = np.nan_to_num(matrix("method_used")).astype(np.int8)
    measurements.clock = np.nan_to_num(matrix("clock_used")).astype(np.int8)
    measurements.bandwidth = None if network.bandwidth_gbps is None else network.bandwidth_gbps.copy()
    measurements.details = NetworkDetails(**{key: getattr(details, key) for key in _CONTINUED})
    failed = [row for row in network.host_flow_errors if not _is_of_lost_host(row.reason, network)]
    if len(failed) < len(network.host_flow_errors):
        measurements.add(host_flow_errors=failed or UNSET)  # an empty list: there were flows between all partners
    if (interfaces := details.interfaces) and interfaces.errors:
        rows = [
            [NOT_TRIED if reason and _is_of_lost_host(reason, network) else reason for reason in row]
            for row in interfaces.errors
        ]
        measurements.add(interfaces=structs.replace(interfaces, errors=rows))
    measurements.machines = list(network.machines)
    index = {name: i for i, name in enumerate(network.hosts.names)}
    for error in network.errors:
        is_known = error.source in index and error.target in index
        if is_known and not _is_of_lost_host(error.reason, network):
            measurements.record_error(index[error.source], index[error.target], error.reason)
    return measurements


def _is_of_lost_host(reason: str, network: Network) -> bool:
    """Return whether a reason begins with a host's name: that of one whose agent was lost."""
    name, colon, _ = reason.partition(": ")
    return bool(colon) and name in network.hosts.names


def _empty(n: int) -> Matrix:
    return np.full((n, n), np.nan)

"""The measured network between hosts: the file on which every decision is based (``plink.network/1``)."""

import hashlib
import json
import logging
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs, to_builtins

from plink.argument_checks import check_argument
from plink.errors import InputError
from plink.model.codec import decode, short_json, undeclared
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts, hosts_of
from plink.model.network_file import (
    FlowEntry,
    HostCostsEntry,
    InterfacesEntry,
    LibraryCostsEntry,
    MachineIdentity,
    NetworkDetails,
    NetworkFile,
    PairError,
    SharedTierEntry,
)
from plink.model.network_table import SMALLEST, parse_table
from plink.model.storage import (
    JsonObject,
    file_and_fragment,
    instead_of_json,
    name_of,
    parse_document,
    read_text,
    write_document,
)
from plink.model.types import MAX_QUANTITY

_log = logging.getLogger("plink.network")
_MAX_ROUNDED = 1e9  # from where on NumPy's digits would not be exact
_FIRST_KEYS = ("schema", "hosts", "lab", "latency_us", "bandwidth_gbps")  # as a person wants to see them

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """Measurements between N hosts.

    ``latency_us[i, j]``, shape (N, N): round trip from i to j in microseconds, the 10th percentile; NaN where
    unmeasured, 0 on the diagonal. ``bandwidth_gbps[i, j]``, same shape or None: what j received from i. ``details``:
    the rest of the file (percentiles, loss, samples, method, errors, time), whose matrices are yet to be checked;
    ``location`` names the file in errors about them; ``others``: its keys that plink does not know. ``whole``: where
    these are some hosts of a measured network, or in another order, that network (:mod:`plink.model.subnetwork`): it
    shows what they cannot, such as what links that others share carry. Files have no ``whole``. Matrices are read-only
    copies: what is worked out of them is kept.
    """

    hosts: Hosts
    latency_us: Matrix
    bandwidth_gbps: Matrix | None = None
    details: NetworkDetails = field(default_factory=NetworkDetails)
    location: str = "network"
    others: JsonObject = field(default_factory=dict)
    whole: "Network | None" = None

    def __post_init__(self) -> None:
        check_argument("Network: hosts", self.hosts, Hosts)
        for key in ("latency_us", "bandwidth_gbps"):
            if (matrix := getattr(self, key)) is not None or key == "latency_us":
                object.__setattr__(self, key, _checked(matrix, len(self.hosts), f"{self.location}: {key}"))
        if np.any(self.latency_us.diagonal() != 0):  # of a host to itself, NaN too
            object.__setattr__(self, "latency_us", _read_only(np.where(np.eye(len(self.hosts)), 0.0, self.latency_us)))

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is copied, and passed to other processes: without what follows from its fields."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def rtt_us(self) -> Matrix:
        """:func:`symmetrised` ``latency_us``."""
        return _read_only(symmetrised(self.latency_us))

    @cached_property
    def completed_us(self) -> Matrix:
        """``rtt_us``, with the file's predictions where nothing was measured either way, but of hosts without any.

        :raises InputError: when ``predicted_us`` is no such matrix.
        """
        predicted = self.detail("predicted_us")
        if predicted is None:
            return self.rtt_us
        has_any = np.isfinite(self.rtt_us).sum(axis=0) > 1  # its own is one
        both = has_any & has_any[:, None]
        return _read_only(np.where(np.isnan(self.rtt_us) & both, symmetrised(predicted), self.rtt_us))

    @property
    def predicted_pairs(self) -> int:
        """How many pairs have a predicted round trip and no measured one."""
        return int((np.isnan(self.rtt_us) & np.isfinite(self.completed_us)).sum()) // 2

    @cached_property
    def half_rtts_us(self) -> tuple[Matrix, ...]:
        """:func:`symmetrised` :meth:`halves`; empty where the file has none.

        :raises InputError: as :meth:`halves`.
        """
        return tuple(_read_only(symmetrised(half)) for half in self.halves() or ())

    @property
    def host_identities(self) -> dict[str, JsonObject]:
        """Identity of the machine behind each name (``hostname``, ``addresses``), as far as known."""
        identities = zip(self.hosts.names, self.machines, strict=True)
        return {name: to_builtins(machine) for name, machine in identities if machine is not None}

    def detail(self, key: str) -> Matrix | None:
        """Return one of the other matrices of the file (``loss_forward``, ``predicted_us``, ...), None where it has
        none.

        :raises InputError: when its shape or a value is wrong, naming file and key.
        """
        value = getattr(self.details, key)
        return (
            None
            if value is None or value is UNSET
            else matrix_from_json(value, len(self.hosts), f"{self.location}: {key}")
        )

    def halves(self) -> tuple[Matrix, Matrix] | None:
        """Return the round trips of each half of the samples, two of shape (N, N), NaN where missing; None without
        halves.

        :raises InputError: when they are no two such matrices.
        """
        if self.details.halves_us is UNSET:
            return None
        location = f"{self.location}: halves_us"
        first, second = (
            matrix_from_json(half, len(self.hosts), f"{location}[{k}]") for k, half in enumerate(self.details.halves_us)
        )
        return first, second

    @property
    def errors(self) -> list[PairError]:
        """Round trips that could not be measured, with a reason each."""
        return self.details.errors or []

    @property
    def measured_at(self) -> str:
        """When the round trips were measured, RFC 3339; empty where the file does not say."""
        return self.details.measured_at or ""

    @property
    def host_flows(self) -> list[FlowEntry]:
        """Flows of every host with a few partners; empty where none were measured."""
        return self.details.host_flows or []

    @property
    def host_flow_errors(self) -> list[PairError]:
        """Pairs of hosts whose flows could not be measured, with a reason each."""
        return self.details.host_flow_errors or []

    @property
    def lost_hosts(self) -> dict[str, str]:
        """Hosts whose agents were lost, or could not be started, by name, with the reason.

        By the reasons of pairs where the measurement ended before it asked all agents.
        """
        lost = self.details.lost_hosts
        if lost is UNSET:
            lost = {
                name: row.reason.removeprefix(f"{name}: ")
                for row in (*self.errors, *self.host_flow_errors)
                for name in (row.source, row.target)
                if row.reason.startswith(f"{name}: ")
            }
        return {name: reason.strip() or "its agent was lost" for name, reason in lost.items()}

    @cached_property
    def shared_links(self) -> list[SharedTierEntry]:
        """Capacity of what groups of hosts share, by tiers, the innermost first.

        :raises InputError: when a group names a host that there is none of, or that another group of its tier has, or
            holds only a part of a group of a tier below.
        """
        tiers, hosts = self.details.shared_links or [], set(self.hosts.names)
        for number, outer in enumerate(tiers):
            parts = [set(row.members) for tier in tiers[:number] for row in tier.groups]
            group_of = dict[str, int]()
            for k, group in enumerate(outer.groups):
                members = set(group.members)
                location = f"{self.location}: shared_links[{number}].groups[{k}].members"
                if unknown := members - hosts:
                    raise InputError(location, f"{min(unknown)!r} is not one of the hosts")
                if twice := members & group_of.keys():
                    name = min(twice)
                    raise InputError(location, f"host {name!r} is in groups[{group_of[name]}], too")
                group_of |= dict.fromkeys(members, k)
                for part in parts:
                    inside, outside = part & members, part - members
                    if inside and outside:
                        raise InputError(
                            location,
                            f"{min(inside)} without {min(outside)}, which are in one group of a tier below",
                        )
        return tiers

    @cached_property
    def interfaces(self) -> InterfacesEntry | None:
        """Which interface each host uses towards each other one; None where each uses one.

        :raises InputError: when an interface or host is named that is not there.
        """
        entry = self.details.interfaces
        if entry is UNSET:
            return None
        n, location = len(self.hosts), f"{self.location}: interfaces"
        if len(entry.names) != n:
            raise InputError(f"{location}.names", f"{len(entry.names)} entries, one a host is expected: {n}")
        limits = {"used": [len(names) for names in entry.names], "relays": [n] * n}
        for key, limit in limits.items():
            matrix = matrix_from_json(getattr(entry, key), n, f"{location}.{key}")
            for host in range(n):
                if np.nanmax(np.nan_to_num(matrix[host], nan=-1.0)) >= limit[host]:
                    raise InputError(f"{location}.{key}[{host}]", f"numbers below {limit[host]} are expected")
        ports = [(host, interface) for switch in entry.switches for host, interface in switch]
        for host, interface in ports:
            if host >= n or interface >= len(entry.names[host]):
                raise InputError(f"{location}.switches", f"there is no interface {interface} of host {host}")
        if len(set(ports)) != len(ports):
            raise InputError(f"{location}.switches", "an interface is on two switches")
        for key in ("addresses", "out_gbps", "in_gbps", "errors"):
            rows = getattr(entry, key) or []
            if rows and [len(row) for row in rows] != [len(names) for names in entry.names]:
                name = "why" if key == "errors" else key
                raise InputError(f"{location}.{name}", "one value for each interface in names is expected")
        return entry

    @property
    def host_costs(self) -> HostCostsEntry | None:
        """What hosts take for each message and byte; None where that was not fitted."""
        return self.details.host_costs or None

    @property
    def library_costs(self) -> tuple[LibraryCostsEntry, ...]:
        """What a library takes besides the network, by algorithm; empty where that was not fitted."""
        return tuple(self.details.library_costs or ())

    @property
    def machines(self) -> list[MachineIdentity | None]:
        """Report of each of the N hosts about itself, None where the file has none."""
        machines = self.details.machines or []
        return machines if len(machines) == len(self.hosts) else [None] * len(self.hosts)

    def to_json(self) -> JsonObject:
        """Return the document as written to disk."""
        document = NetworkFile(
            hosts=self.hosts.entries(),
            lab=self.hosts.lab or UNSET,
            latency_us=to_rows(self.latency_us),
            bandwidth_gbps=None if self.bandwidth_gbps is None else to_rows(self.bandwidth_gbps, 6),
            **structs.asdict(self.details),
        ).to_json()
        first = {key: document[key] for key in _FIRST_KEYS if key in document}
        return first | document | self.others

    def fingerprint(self) -> str:
        """Short hash of names and measured values: which network an order was solved for."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        if self.whole is not None:
            if len(self.hosts) == len(self.whole.hosts):
                return self.whole.fingerprint()
            return _hash([self.whole.fingerprint(), sorted(self.hosts.names)])
        bandwidth = None if self.bandwidth_gbps is None else to_rows(self.bandwidth_gbps, 6)
        measured = [self.hosts.names, to_rows(self.latency_us), bandwidth]
        details = self.details
        rates = {key: getattr(details, key) or None for key in ("shared_links", "host_flows", "interfaces")}
        if any(rates.values()):
            measured.append(to_builtins(rates))
        return _hash(measured)

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def _hash(content: object) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def symmetrised(latency_us: Matrix) -> Matrix:
    """Return ``max(c[i, j], c[j, i])`` (PLink thesis, 5.2.2), shape (N, N); where one direction is missing, the
    other."""
    return np.asarray(np.fmax(latency_us, latency_us.T))


def _read_only(matrix: Matrix) -> Matrix:
    if not matrix.flags.writeable and matrix.flags.owndata:
        return matrix
    own = matrix.copy()
    own.setflags(write=False)
    return own


def _checked(values: npt.ArrayLike, n: int, location: str) -> Matrix:
    """Return a read-only matrix of numbers from 0 to below :data:`MAX_QUANTITY`, NaN where unknown.

    :raises InputError: naming the entry that is wrong.
    """
    try:
        array = np.asarray(values)
        matrix = array.astype(np.float64, casting="same_kind" if np.iscomplexobj(array) else "unsafe")
    except (TypeError, ValueError):
        raise InputError(location, "no matrix of numbers") from None
    if matrix.shape != (n, n):
        raise InputError(location, f"the shape is {matrix.shape}, {n} hosts need ({n}, {n})")
    wrong = (matrix < 0) | (matrix >= MAX_QUANTITY)
    if wrong.any():
        i, j = np.argwhere(wrong)[0].tolist()
        raise InputError(f"{location}[{i}][{j}]", f"{matrix[i, j]:g} is no number from 0 to below {MAX_QUANTITY:g}")
    return _read_only(matrix)


def to_rows(matrix: Matrix, digits: int = 3) -> list[list[float | None]]:
    """Return a matrix as JSON rows, null for NaN, rounded: 3 digits of a microsecond are a ns, 6 of a Gbit/s a
    kbit/s."""
    rounded = np.where(np.abs(matrix) < _MAX_ROUNDED, np.round(matrix, digits), matrix)
    return [[None if value != value else value for value in row] for row in rounded.tolist()]


def matrix_from_json(value: object, n: int, location: str) -> Matrix:
    """Return an (n, n) matrix of numbers from 0 to below :data:`MAX_QUANTITY`, null read as NaN.

    :raises InputError: naming the row or the entry that is wrong.
    """
    if not isinstance(value, list) or len(value) != n:
        got = f"{len(value)} rows" if isinstance(value, list) else short_json(value)
        raise InputError(location, f"{n} rows of {n} numbers were expected (one a host), this is {got}")
    for i, row in enumerate(value):
        if not isinstance(row, list) or len(row) != n:
            got = f"{len(row)} entries" if isinstance(row, list) else short_json(row)
            raise InputError(f"{location}[{i}]", f"{n} numbers were expected (one a host), this is {got}")
        if not set(map(type, row)) <= {int, float, type(None)}:
            j = next(j for j, entry in enumerate(row) if type(entry) not in (int, float, type(None)))
            raise InputError(f"{location}[{i}][{j}]", f"{json.dumps(row[j])[:40]} is not a number or null")
    try:
        matrix = np.array(value, dtype=np.float64).reshape(n, n)
    except OverflowError:
        raise InputError(location, "holds a number too large to be a measurement") from None
    with np.errstate(invalid="ignore"):
        wrong = np.argwhere((matrix < 0) | (matrix >= MAX_QUANTITY))
    if len(wrong):
        i, j = (int(k) for k in wrong[0])
        raise InputError(f"{location}[{i}][{j}]", f"{matrix[i, j]:g} cannot be a measurement")
    return matrix


def network_from_json(document: JsonObject, location: str) -> Network:
    """Return a network from its JSON document; ``location`` names the file in errors.

    :raises InputError: when the schema, a matrix' shape or a value is wrong, naming the key.
    """
    if "schema" not in document:
        raise InputError(location, f"not a network: it has no schema; {SMALLEST}")
    file = decode(NetworkFile, document, location)
    hosts = hosts_of(file.hosts, file.lab, location)
    latency = matrix_from_json(file.latency_us, len(hosts), f"{location}: latency_us")
    if np.any(np.nan_to_num(np.diagonal(latency)) != 0):
        i = int(np.flatnonzero(np.nan_to_num(np.diagonal(latency)))[0])
        raise InputError(f"{location}: latency_us[{i}][{i}]", "a host's distance to itself must be 0")
    np.fill_diagonal(latency, 0.0)
    bandwidth = None
    if file.bandwidth_gbps is not None and file.bandwidth_gbps is not UNSET:
        bandwidth = matrix_from_json(file.bandwidth_gbps, len(hosts), f"{location}: bandwidth_gbps")
    details = NetworkDetails(**{key: getattr(file, key) for key in NetworkDetails.__struct_fields__})
    return Network(hosts, latency, bandwidth, details, location, undeclared(NetworkFile, document))


def read_network(path: str | Path) -> Network:
    """Return a network from a file (``-``: standard input, ``.gz``: compressed), or from a table of another's
    measurements (:mod:`plink.model.network_table`), whose unit may follow its name: ``FILE#ms``. Round trips of 0 are
    doubted in the log.

    :raises InputError: as :func:`network_from_json`, and when the file cannot be read.
    """
    file, unit = file_and_fragment(path)
    text, location = read_text(file), name_of(file)
    if text.lstrip()[:1] in ("{", "[") or instead_of_json(text):
        try:
            document = parse_document(text, location)
        except InputError as error:
            hint = "" if instead_of_json(text) else f"; {SMALLEST}"
            raise InputError(error.location, f"{error.reason}{hint}") from None
        network = network_from_json(document, location)
    else:
        names, matrices = parse_table(text, location, unit)
        hosts = Hosts(tuple(Host(name, name) for name in names))
        unmeasured = np.where(np.eye(len(names)), 0.0, np.nan)
        network = Network(hosts, matrices.get("us", unmeasured), matrices.get("gbps"), location=location)
    pairs = np.argwhere(np.triu((network.latency_us == 0) | (network.latency_us.T == 0), 1))
    if len(pairs):
        a, b = (network.hosts.names[int(host)] for host in pairs[0])
        count = f"{len(pairs)} pairs of different hosts have" if len(pairs) > 1 else "a pair of different hosts has"
        _log.warning(f"{network.location}: {count} a round trip of 0, first {a} and {b}; null is one not measured")
    return network

"""Rank order: which host takes which ranks (``plink.order/1``)."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.documents.codec import decode, schema_name
from plink.documents.order import OrderDocument
from plink.errors import InputError
from plink.model.hosts import Hosts, parse_hosts
from plink.model.storage import name_of, parse_document, read_text, write_document

SCHEMA = schema_name(OrderDocument)
_OWN_KEYS = ("schema", "algo", "hosts", "cost", "lower_bound", "baseline", "objective", "seed", "network")


@dataclass(frozen=True)
class RankOrder:
    """Hosts in rank order: the first takes ranks 0 to slots-1, the next those that follow.

    ``cost`` and ``lower_bound`` are in the unit of the objective (microseconds); ``baseline`` holds the cost of the
    orders this one is compared with; ``network`` is the fingerprint of the network it was solved for.
    """

    algo: str
    hosts: tuple[str, ...]
    cost: float | None = None
    lower_bound: float | None = None
    baseline: dict[str, float] = field(default_factory=dict)
    objective: str | None = None
    seed: int | None = None
    network: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "algo": self.algo,
            "hosts": list(self.hosts),
            "cost": self.cost,
            "lower_bound": self.lower_bound,
            "baseline": self.baseline,
            "objective": self.objective,
            "seed": self.seed,
            "network": self.network,
        }
        return document | self.details

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())

    def arrange(self, hosts: Hosts, location: str) -> Hosts:
        """Return the hosts in this order, without hubs, which take no ranks.

        :raises InputError: when the order leaves a host out, or names a hub or one that is not among them.
        """
        hosts_by_name, order_names = hosts.by_name(), set(self.hosts)
        for problem, names in (
            ("names hosts that are not in the hosts list", [n for n in self.hosts if n not in hosts_by_name]),
            (
                "has hosts with role=hub, which take no ranks",
                [host.name for host in hosts.hubs if host.name in order_names],
            ),
            ("leaves out hosts of the hosts list", [h.name for h in hosts if h.slots and h.name not in order_names]),
        ):
            if names:
                raise InputError(
                    location, f"the order {problem}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
                )
        return Hosts(tuple(hosts_by_name[name] for name in self.hosts), hosts.lab)


def order_from_json(document: dict[str, Any], location: str) -> RankOrder:
    """Return an order from its JSON document.

    :raises InputError: when the schema or a key is wrong.
    """
    checked = decode(OrderDocument, document, location)
    names = checked["hosts"]
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise InputError(f"{location}: hosts", f"{repeated[0]!r} is listed twice")
    return RankOrder(
        algo=checked.get("algo", "unknown"),
        hosts=tuple(names),
        cost=checked.get("cost"),
        lower_bound=checked.get("lower_bound"),
        baseline={key: cost for key, cost in (checked.get("baseline") or {}).items() if cost is not None},
        objective=checked.get("objective"),
        seed=checked.get("seed"),
        network=checked.get("network"),
        details={key: value for key, value in document.items() if key not in _OWN_KEYS},
    )


def read_order(path: str | Path) -> RankOrder:
    """Return an order from a file: ``plink.order/1``, or a hosts file or list of names, one a line, in rank order.

    :raises InputError: when the file cannot be read or is neither.
    """
    location, text = name_of(path), read_text(path)
    if location.endswith((".json", ".json.gz")) or text.lstrip().startswith("{"):
        return order_from_json(parse_document(text, location), location)
    return RankOrder(algo="given", hosts=tuple(parse_hosts(text, location).names))

"""Hosts of a job, and the hosts file that lists them.

A line is ``name-or-address [slots=N] [role=rank|hub] [tier=reliable|transient] [address=A] [user=U] [port=P]
[key=FILE] [price=X] [gbps=X]``; ``#`` starts a comment; a price is money per hour, in any one currency. Files of
launchers and schedulers are read as they are (:mod:`plink.model.hostfile`). The comment ``# plink-lab: NAME`` says that
the addresses exist only inside that emulated lab.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, to_builtins

from plink.argument_checks import check_argument
from plink.errors import InputError, UsageError
from plink.model.codec import convert
from plink.model.document import Part, Unset
from plink.model.hostfile import KEYS, HostLine, lines_by_rank, parse_line
from plink.model.hostlist import MAX_HOSTS, check_lab_name, check_name
from plink.model.storage import name_of, read_text
from plink.model.types import HostName, Name, NonNegative, Positive, own_number

TIERS = ("reliable", "transient")
HUB = "hub"
ROLES = ("rank", HUB)

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@\\-]{0,63}")
_PRICE = re.compile(r"\d{1,12}(\.\d{1,30})?", re.ASCII)
_EXAMPLES = {"price": "0.35 (money per hour)", "gbps": "25 (Gbit/s each way)"}
_LAB_LINE = re.compile(r"#\s*plink-lab:\s*(\S+)\s*")
_log = logging.getLogger("plink.hosts")


class HostEntry(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One host."""

    name: HostName
    """Name, unique in the file."""
    address: HostName | None = None
    """Where it is reached: a name or a numeric address; default: its name."""
    slots: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """Ranks it takes; default 1."""
    role: Literal["rank", "hub"] | None = None
    """A hub takes no ranks, and adds up for those of other hosts; default rank."""
    tier: Literal["reliable", "transient"] | None = None
    """Whether the provider may take it back at any time; default reliable."""
    user: str | None = None
    """SSH user, where it is not SSH's default."""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """SSH port, where it is not SSH's default."""
    key: Name | None = None
    """SSH key file, where it is not SSH's default."""
    price: NonNegative | None = None
    """What it costs, money per hour, where that was given."""
    gbps: Positive | None = None
    """What a hub's link carries each way, Gbit/s, where that was given."""


HostEntries = Annotated[tuple[HostEntry, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Host:
    """One machine. ``slots``: ranks it takes, 0 for a hub; ``user``, ``port`` and ``key`` are for SSH (None: its
    defaults); ``price``: money per hour; ``gbps``: what a hub's link carries each way, Gbit/s; None where nobody
    said.

    :raises InputError: for what no hosts file may say.
    """

    name: str
    address: str
    slots: int = 1
    tier: str = "reliable"
    user: str | None = None
    port: int | None = None
    key: str | None = None
    price: float | None = None
    role: str = "rank"
    gbps: float | None = None

    def __post_init__(self) -> None:
        location = check_name(self.name, "host")
        check_name(self.address, location, "an address")
        for field, value, choices in (("tier", self.tier, TIERS), ("role", self.role, ROLES)):
            if value not in choices:
                raise InputError(location, f"{field}={value} is neither {' nor '.join(choices)}")
        if self.role == HUB and self.slots not in (0, 1):  # 1: by default
            raise InputError(location, f"role=hub takes no ranks; omit slots={self.slots}")
        numbers: dict[str, float | None] = {name: _number(getattr(self, name), name, location) for name in _EXAMPLES}
        numbers["slots"] = 0 if self.role == HUB else _whole_number(self.slots, 1, 65536, "slots", location)
        numbers["port"] = None if self.port is None else _whole_number(self.port, 1, 65535, "port", location)
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if self.gbps == 0:
            raise InputError(location, "gbps=0: a link carries more than 0")
        user, key = self.user, self.key
        if user is not None and not (isinstance(user, str) and _USER.fullmatch(user)):
            raise InputError(location, f"{user!r} cannot be a user name")
        # A space or '#' would end it in a hosts file.
        if key is not None and not (isinstance(key, str) and key and key.isprintable() and not set(" #") & set(key)):
            raise InputError(location, f"{key!r} cannot be a key file's name")

    def entry(self) -> HostEntry:
        """Return it as it stands in the ``hosts`` list of a file; SSH settings and the price only where given."""
        keys = ("name", "address", "tier", "user", "port", "key", "price", "gbps")
        fields: dict[str, Any] = {key: getattr(self, key) for key in keys}
        return HostEntry(**fields, **({"role": HUB} if self.role == HUB else {"slots": self.slots}))

    def to_json(self) -> dict[str, Any]:
        """Return its entry as JSON."""
        return to_builtins(self.entry())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Hosts:
    """Hosts in a given order, at least one, names unique. ``lab``: the emulated lab they are in."""

    members: tuple[Host, ...]
    lab: str | None = None

    def __post_init__(self) -> None:
        check_argument("Hosts: members", self.members, tuple[Host, ...])
        object.__setattr__(self, "members", tuple(self.members))
        if not self.members:
            raise InputError("hosts", "at least one is needed")
        names = set[str]()
        for host in self.members:
            if host.name in names:
                raise InputError("hosts", f"host {host.name!r} is listed twice")
            names.add(host.name)

    def __iter__(self) -> Iterator[Host]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> list[str]:
        """Names in the given order."""
        return [host.name for host in self.members]

    def ranked(self) -> "Hosts":
        """Return the hosts that take ranks: those that are no hubs.

        :raises UsageError: when all are hubs.
        """
        if not any(host.slots for host in self):
            raise UsageError("all hosts have role=hub; a job needs hosts that take ranks")
        return Hosts(tuple(host for host in self if host.role != HUB), self.lab)

    @property
    def hubs(self) -> tuple[Host, ...]:
        """Hosts with the role of a hub."""
        return tuple(host for host in self if host.role == HUB)

    def entries(self) -> tuple[HostEntry, ...]:
        """Return the hosts as they stand in a file."""
        return tuple(host.entry() for host in self)

    def by_name(self) -> dict[str, Host]:
        """Return each host under its name."""
        return {host.name: host for host in self.members}


def _whole_number(value: object, low: int, high: int, key: str, location: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    value = own_number(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(location, f"{key}={value} is not a whole number from {low} to {high}")
    return value


def _number(value: object, key: str, location: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and _PRICE.fullmatch(value):
        return float(value)
    value = own_number(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    raise InputError(location, f"{key}={value} is not a plain number from 0 up, like {_EXAMPLES[key]}")


def _make_host(name: str, fields: dict[str, Any], location: str) -> Host:
    role, slots, port = fields.get("role", ROLES[0]), fields.get("slots"), fields.get("port")
    gbps = _number(fields.get("gbps"), "gbps", location)
    if gbps is not None and role == ROLES[0]:
        raise InputError(location, f"gbps={gbps:g} is for hubs; other hosts are measured")
    if role == HUB and slots is not None:
        raise InputError(location, f"role=hub takes no ranks; omit slots={slots}")
    try:
        return Host(
            name=name,
            address=fields.get("address", name),
            slots=0 if role == HUB else _whole_number(fields.get("slots", 1), 1, 65536, "slots", location),
            tier=fields.get("tier", TIERS[0]),
            user=fields.get("user"),
            port=None if port is None else _whole_number(port, 1, 65535, "port", location),
            key=fields.get("key"),
            price=_number(fields.get("price"), "price", location),
            role=role,
            gbps=gbps,
        )
    except InputError as error:
        raise InputError(location, error.reason) from None


def parse_hosts(text: str, source: str) -> Hosts:
    """Parse hosts from the text of a hosts file, or of one that a launcher reads; ``source`` names it in errors.

    A host that is repeated, without ``slots=``, has as many slots as its lines add.

    :raises InputError: for an empty file, a host given twice, an unknown key or a value out of range, with the line.
    """
    members: dict[str, Host] = {}
    first: dict[str, tuple[int, HostLine]] = {}
    notes: dict[str, str] = {}
    lab, last = None, None
    for number, raw in lines_by_rank(text, source):
        location = f"{source}:{number}"
        if marker := _LAB_LINE.fullmatch(raw.strip()):
            lab = check_lab_name(marker.group(1), location)
            continue
        for line in parse_line(raw, location):
            begin, earlier = first.setdefault(line.host, (number, line))
            slots = line.count
            if line is not earlier:
                if slots is None or earlier.count is None or line.fields != earlier.fields:
                    raise InputError(location, f"host {line.host!r} is listed twice (first on line {begin})")
                slots = str(members[line.host].slots + _whole_number(slots, 1, 65536, "slots", location))
                if last != line.host:
                    notes.setdefault("a host comes again after others; in plink its ranks are adjacent", location)
            is_hub = line.fields.get("role") == HUB and line is earlier and slots == "1"
            fields: dict[str, Any] = line.fields if slots is None or is_hub else line.fields | {"slots": slots}
            members[line.host] = _make_host(line.host, fields, location)
            last = line.host
            for note in line.notes:
                notes.setdefault(note, location)
        if len(members) > MAX_HOSTS:
            raise InputError(location, f"more than {MAX_HOSTS} hosts in one file")
    if not members:
        raise InputError(source, "no hosts in it; write one host a line, like: node-1 slots=8")
    for note, location in notes.items():
        _log.warning("%s: %s", location, note)
    return Hosts(tuple(members.values()), lab)


def read_hosts(path: str | Path) -> Hosts:
    """Read hosts from a file (``-``: standard input).

    :raises InputError: as :func:`parse_hosts`, and when the file cannot be read.
    """
    return parse_hosts(read_text(path), name_of(path))


def render_hosts(hosts: Hosts) -> str:
    """Return the text of a hosts file that :func:`parse_hosts` reads back to the same hosts."""
    lines = [f"# plink-lab: {hosts.lab}"] if hosts.lab else []
    for host in hosts:
        parts = [host.name]
        if host.address != host.name:
            parts.append(f"address={host.address}")
        parts.append("role=hub" if host.role == HUB else f"slots={host.slots}")
        if host.tier != "reliable":
            parts.append(f"tier={host.tier}")
        parts += [f"{k}={v}" for k, v in (("user", host.user), ("port", host.port), ("key", host.key)) if v is not None]
        numbers = (("price", host.price), ("gbps", host.gbps))
        parts += [f"{k}={Decimal(repr(number)):f}" for k, number in numbers if number is not None]  # never 1e-05
        lines.append(" ".join(parts))
    return "\n".join(lines) + "\n"


def hosts_from_json(value: object, lab: str | None, location: str) -> Hosts:
    """Parse hosts from the ``hosts`` list (and ``lab`` key) of a JSON document.

    :raises InputError: naming the entry, like ``cloud.json: hosts[3].slots``.
    """
    return hosts_of(convert(HostEntries, value, location, "hosts"), lab, location)


def hosts_of(entries: Sequence[HostEntry], lab: str | Unset | None, location: str) -> Hosts:
    """Return hosts from the entries of a document, which ``location`` names in errors.

    :raises InputError: naming the entry.
    """
    members: dict[str, Host] = {}
    for index, entry in enumerate(entries):
        place = f"{location}: hosts[{index}]"
        host = _make_host(entry.name, {key: value for key in KEYS if (value := getattr(entry, key)) is not None}, place)
        if host.name in members:
            raise InputError(place, f"host {host.name!r} is listed twice")
        members[host.name] = host
    return Hosts(tuple(members.values()), check_lab_name(lab, f"{location}: lab") if lab else None)

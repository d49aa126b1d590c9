"""Blueprint of a lab: its hosts, racks, addresses and namespaces."""

import ipaddress
import os
import random
from dataclasses import asdict, dataclass
from typing import Any

from plink.documents.codec import convert
from plink.errors import InputError, UsageError
from plink.model.hostlist import expand_hostlist
from plink.model.hosts import Host, Hosts, check_lab_name

NETWORK = ipaddress.ip_network("198.18.0.0/15")  # RFC 2544: benchmarking, never routed on the Internet
_HOSTS = ipaddress.ip_network("198.18.0.0/16")
_GATEWAYS = int(ipaddress.ip_address("198.19.0.0"))
_UPLINKS = int(ipaddress.ip_address("198.19.128.0"))
_MAX_RACKS, _MAX_HOSTS = 64, 512
PREFIX = "plink."


@dataclass(frozen=True)
class LabSettings:
    """Settings of ``plink lab up``. Rates in bits per second, ``uplink_delay_us`` one way.

    ``pods``: groups of as many racks each, behind routers of their own with an uplink of ``pod_rate``; 0 for none.
    ``private_folders``: ``PATH`` or ``PATH=HOSTS`` (as ``node-[01-03],node-07``), where all hosts, or these, each have
    a folder of their own; elsewhere all share this machine's files.
    """

    name: str
    racks: int = 4
    hosts_per_rack: int = 4
    host_rate: int = 200_000_000
    uplink_rate: int = 200_000_000
    uplink_delay_us: int = 0
    mtu: int = 9000
    seed: int = 0
    private_folders: tuple[str, ...] = ()
    pods: int = 0
    pod_rate: int = 200_000_000

    def __post_init__(self) -> None:
        check_lab_name(self.name, "--name")
        if not 1 <= self.racks <= _MAX_RACKS:
            raise UsageError(f"--racks {self.racks}: a lab has 1 to {_MAX_RACKS} racks")
        if not self.hosts_per_rack >= 1 or self.racks * self.hosts_per_rack > _MAX_HOSTS:
            raise UsageError(f"--hosts-per-rack {self.hosts_per_rack}: a lab has 1 to {_MAX_HOSTS} hosts in all")
        if self.pods < 0 or (self.pods and self.racks % self.pods):
            raise UsageError(f"--pods {self.pods}: {self.racks} racks cannot be divided evenly between them")
        if not 1280 <= self.mtu <= 65535:
            raise UsageError(f"--mtu {self.mtu}: give 1280 to 65535")
        if not 0 <= self.uplink_delay_us <= 1_000_000:
            raise UsageError("--uplink-delay: give at most 1s")


@dataclass(frozen=True)
class Place:
    """One host of a lab: where it really is. ``port`` is the number of its port on the rack's bridge."""

    name: str
    address: str
    rack: int
    port: int


@dataclass(frozen=True)
class Blueprint:
    """A lab as drawn: settings, and the hosts in the order in which they are handed out."""

    settings: LabSettings
    places: tuple[Place, ...]

    def namespace(self, part: str) -> str:
        """The network namespace of ``core``, ``ctl``, a pod, a rack or a host; the dots keep labs apart."""
        return f"{PREFIX}{self.settings.name}.{part}"

    @property
    def racks(self) -> list[str]:
        """``rack0``, ``rack1``, ..."""
        return [f"rack{rack}" for rack in range(self.settings.racks)]

    @property
    def pods(self) -> list[str]:
        """``pod0``, ``pod1``, ...; none where racks are at the core."""
        return [f"pod{pod}" for pod in range(self.settings.pods)]

    def pod_of(self, rack: int) -> int:
        """Return the pod of a rack, of a lab with pods."""
        return rack // (self.settings.racks // self.settings.pods)

    def above(self, rack: int) -> str:
        """Return the router that a rack's uplink leads to: ``core``, or its pod's."""
        return self.pods[self.pod_of(rack)] if self.pods else "core"

    def in_rack(self, rack: int) -> list[Place]:
        """The hosts of one rack."""
        return [place for place in self.places if place.rack == rack]

    def gateway(self, rack: int) -> str:
        """The rack router's address on its bridge."""
        return str(ipaddress.ip_address(_GATEWAYS + rack))

    def uplink(self, link: int) -> tuple[str, str]:
        """(lower, upper) addresses of a /31 (RFC 3021): one link a rack, then the controller's, then one a pod."""
        return str(ipaddress.ip_address(_UPLINKS + 2 * link)), str(ipaddress.ip_address(_UPLINKS + 2 * link + 1))

    def private_folders(self, host: str) -> list[str]:
        """Where a host has a folder of its own, outer ones first.

        :raises UsageError: for a path that cannot be mounted on, or a host that the lab does not have.
        """
        folders = []
        for text in self.settings.private_folders:
            path, equals, names = text.partition("=")
            if not path.startswith("/") or os.path.normpath(path) != path or path == "/":
                raise UsageError(f"--private-folder {text}: give an absolute path, as /scratch")
            if equals:
                owners = expand_hostlist(names, f"--private-folder {text}")
                if unknown := set(owners) - {place.name for place in self.places}:
                    raise UsageError(f"--private-folder {text}: the lab has no host {min(unknown)}")
            if not equals or host in owners:
                folders.append(path)
        return sorted(set(folders), key=len)

    def hosts(self) -> Hosts:
        """Return what a user gets: names and addresses in shuffled order, without racks."""
        return Hosts(tuple(Host(place.name, place.address, user="root") for place in self.places), self.settings.name)

    def truth(self) -> dict[str, Any]:
        """Return the ground truth: the rack of every host, and its position where racks are in pods."""
        truth: dict[str, Any] = {"schema": "plink.truth/1", "racks": {place.name: place.rack for place in self.places}}
        if self.pods:
            truth["positions"] = {place.name: [self.above(place.rack), place.rack] for place in self.places}
        return truth

    def to_json(self) -> dict[str, Any]:
        """Return the document for the lab's state folder."""
        return {"settings": asdict(self.settings), "places": [asdict(place) for place in self.places]}


def draw(settings: LabSettings) -> Blueprint:
    """Draw a lab: racks of hosts and addresses at random, the same for the same seed.

    >>> [place.name for place in draw(Settings("a", racks=1, hosts_per_rack=2)).places]
    ['node-01', 'node-02']
    """
    rng = random.Random(settings.seed)
    n = settings.racks * settings.hosts_per_rack
    ports = [(rack, port) for rack in range(settings.racks) for port in range(settings.hosts_per_rack)]
    rng.shuffle(ports)
    # .0.0 would be fine for a /32 but confuses people and some tools.
    addresses = [str(_HOSTS[index]) for index in rng.sample(range(257, 257 + 4 * n), n)]
    width = max(2, len(str(n)))
    return Blueprint(
        settings,
        tuple(
            Place(f"node-{i + 1:0{width}d}", address, rack, port)
            for i, ((rack, port), address) in enumerate(zip(ports, addresses, strict=True))
        ),
    )


def from_json(document: dict[str, Any], location: str) -> Blueprint:
    """The blueprint that :meth:`Blueprint.to_json` wrote; ``location`` names its file.

    :raises InputError: when it is damaged.
    """
    try:
        settings = convert(LabSettings, document.get("settings"), location)
        return Blueprint(settings, tuple(convert(list[Place], document.get("places"), location)))
    except (InputError, UsageError):
        raise InputError(location, "it is damaged; run `plink lab down` and `plink lab up`") from None


def is_lab_address(address: str) -> bool:
    """Return whether an address belongs to emulated labs."""
    try:
        return ipaddress.ip_address(address) in NETWORK
    except ValueError:
        return False

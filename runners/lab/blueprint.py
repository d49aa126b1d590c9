"""Blueprint of a lab: its hosts, racks, addresses and namespaces."""

import ipaddress
import os
import random
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, get_args

from plink.errors import InputError, UsageError
from plink.model.codec import convert
from plink.model.document import UNSET
from plink.model.hostlist import check_lab_name, expand_hostlist
from plink.model.hosts import Host, Hosts
from plink.model.request import FeatureRequest, Option, Text
from plink.model.topology.flat import Truth
from plink.model.units import numbered, parse_duration, parse_rate

NETWORK = ipaddress.ip_network("198.18.0.0/15")  # RFC 2544: benchmarking, never routed on the Internet
_HOSTS = ipaddress.ip_network("198.18.0.0/16")
_GATEWAYS = int(ipaddress.ip_address("198.19.0.0"))
_UPLINKS = int(ipaddress.ip_address("198.19.128.0"))
_MAX_RACKS, _MAX_HOSTS, _MAX_INTERFACES = 64, 512, 6
PREFIX = "plink."
Topology = Literal["racks", "bcube", "rails"]


DEFAULT_NAME = "lab"
_INTERFACES_PANEL = "Several interfaces a host"
# A rate in bits per second, typed like 200mbit.
Rate = Annotated[int, Text("RATE", parse_rate, lambda rate: f"{rate / 1e6:g}mbit")]
_Microseconds = Annotated[int, Text("TIME", lambda text: round(parse_duration(text) * 1e6))]
_Folders = Annotated[tuple[str, ...], Text("PATH[=HOSTS]", tuple, repeated=True)]


@dataclass(frozen=True)
class LabSettings(FeatureRequest):
    """Settings of ``plink lab up``. Rates in bits per second, ``uplink_delay_us`` one way.

    ``topology``: racks behind routers; a BCube of ``base`` to the power of ``levels`` hosts with ``levels`` interfaces
    of ``host_rate`` each; or ``hosts_per_rack`` hosts on ``rails`` switches, an interface on each. ``pods``: groups of
    as many racks each, behind routers of their own. ``private_folders``: ``PATH`` or ``PATH=HOSTS`` (as
    ``node-[01-03],node-07``); hosts share all other files of this machine.
    """

    name: str = DEFAULT_NAME
    racks: Annotated[int, Option("Number of racks.")] = 4
    hosts_per_rack: Annotated[int, Option("Hosts in each.")] = 4
    host_rate: Annotated[Rate, Option("What each host can send, and receive.")] = 200_000_000
    uplink_rate: Annotated[Rate, Option("What each rack can send, and receive.")] = 200_000_000
    uplink_delay_us: Annotated[
        _Microseconds, Option("Delay added on uplinks, each way (needs the kernel's netem).", ("--uplink-delay",))
    ] = 0
    mtu: Annotated[int, Option("Largest packet in bytes.")] = 9000
    seed: Annotated[int, Option("Assigns hosts to racks.")] = 0
    private_folders: Annotated[
        _Folders, Option("A private folder of each host (or of each of these); repeatable.", ("--private-folder",))
    ] = ()
    pods: Annotated[int, Option("Divide the racks between so many pods, each with an uplink; 0: none.")] = 0
    pod_rate: Annotated[Rate, Option("What each pod can send, and receive.")] = 200_000_000
    topology: Annotated[
        Topology,
        Option(
            "Racks of hosts, or hosts with several interfaces.", choices=get_args(Topology), panel=_INTERFACES_PANEL
        ),
    ] = "racks"
    base: Annotated[int, Option("Ports of a BCube's switches.", panel=_INTERFACES_PANEL)] = 3
    levels: Annotated[int, Option("Levels of a BCube: the interfaces of a host.", panel=_INTERFACES_PANEL)] = 2
    rails: Annotated[
        int, Option("Rails, each with an interface of all hosts (--hosts-per-rack).", panel=_INTERFACES_PANEL)
    ] = 2
    gpu: Annotated[bool, Option("All hosts share this machine's GPU; NCCL uses the lab's links.")] = False

    @property
    def interfaces(self) -> int:
        """How many interfaces a host has, that for management left out."""
        return {"racks": 1, "bcube": self.levels, "rails": self.rails}[self.topology]

    @property
    def host_count(self) -> int:
        """How many hosts the lab has."""
        if self.topology == "bcube":
            return int(self.base**self.levels)
        return self.hosts_per_rack * (self.racks if self.topology == "racks" else 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lab_name(self.name, "--name")
        if not 1 <= self.interfaces <= _MAX_INTERFACES:
            option = "--levels" if self.topology == "bcube" else "--rails"
            raise UsageError(f"{option} {self.interfaces}: a host has 1 to {_MAX_INTERFACES} interfaces")
        if self.topology == "bcube" and not (self.base >= 2 and self.host_count <= _MAX_HOSTS):
            raise UsageError(f"--base {self.base} --levels {self.levels}: a BCube has 2 to {_MAX_HOSTS} hosts here")
        if self.topology != "racks" and (self.pods or self.uplink_delay_us):
            raise UsageError(f"--topology {self.topology} has no uplinks: omit --pods and --uplink-delay")
        if not 1 <= self.racks <= _MAX_RACKS:
            raise UsageError(f"--racks {self.racks}: a lab has 1 to {_MAX_RACKS} racks")
        if not self.hosts_per_rack >= 1 or self.host_count > _MAX_HOSTS:
            raise UsageError(f"--hosts-per-rack {self.hosts_per_rack}: a lab has 1 to {_MAX_HOSTS} hosts in all")
        if self.pods < 0 or (self.pods and self.racks % self.pods):
            raise UsageError(f"--pods {self.pods}: {self.racks} racks cannot be divided evenly between them")
        if not 1280 <= self.mtu <= 65535:
            raise UsageError(f"--mtu {self.mtu}: give 1280 to 65535")
        if not 0 <= self.uplink_delay_us <= 1_000_000:
            raise UsageError("--uplink-delay: give at most 1s")


@dataclass(frozen=True)
class Place:
    """One host of a lab: where it really is.

    ``port`` is the number of its port on the rack's bridge. In a BCube ``digits[level]`` is its port on the switch of
    that level. On rails ``rail_addresses`` are those of its interfaces after the first.
    """

    name: str
    address: str
    rack: int
    port: int
    digits: tuple[int, ...] = ()
    rail_addresses: tuple[str, ...] = ()

    def on_rail(self, rail: int) -> str:
        """Return its address on a rail."""
        return (self.address, *self.rail_addresses)[rail]


@dataclass(frozen=True)
class Blueprint:
    """A lab as drawn: settings, and the hosts in the order in which they are handed out."""

    settings: LabSettings
    places: tuple[Place, ...]

    def namespace(self, part: str) -> str:
        """Network namespace of ``core``, ``fabric``, ``ctl``, a pod, a rack or a host; the dots keep labs apart."""
        return f"{PREFIX}{self.settings.name}.{part}"

    @property
    def racks(self) -> list[str]:
        """``rack0``, ``rack1``, ...; none where hosts are on switches."""
        return [f"rack{rack}" for rack in range(self.settings.racks)] if self.settings.topology == "racks" else []

    @property
    def pods(self) -> list[str]:
        """``pod0``, ``pod1``, ...; none where racks are at the core."""
        return [f"pod{pod}" for pod in range(self.settings.pods)]

    def pod_of(self, rack: int) -> int:
        """Return the pod of a rack, of a lab with pods."""
        return rack // (self.settings.racks // self.settings.pods)

    @property
    def switches(self) -> list[str]:
        """The switches of a BCube, or rails, sorted; none of racks."""
        if self.settings.topology == "racks":
            return []
        return sorted({switch for place in self.places for switch in self.switches_of(place)})

    def switches_of(self, place: Place) -> list[str]:
        """Return the switches that a host is on, by interface: ``switch-LEVEL-NUMBER`` of a BCube, ``rail0``, ..."""
        if self.settings.topology == "rails":
            return [f"rail{rail}" for rail in range(self.settings.rails)]
        names = []
        for level in range(len(place.digits)):
            number = 0
            for digit in place.digits[:level] + place.digits[level + 1 :]:
                number = number * self.settings.base + digit
            names.append(f"switch-{level}-{number}")
        return names

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

    def truth(self) -> Truth:
        """Return the ground truth: the rack of every host, its position where racks are in pods, or its digits."""
        if self.settings.topology == "bcube":
            return Truth(digits={place.name: list(place.digits) for place in self.places})
        positions: Any = {place.name: [self.above(place.rack), place.rack] for place in self.places}
        return Truth(
            racks={place.name: place.rack for place in self.places}, positions=positions if self.pods else UNSET
        )

    def summary(self) -> str:
        """Return a few words on hosts and topology."""
        settings, hosts = self.settings, numbered(len(self.places), "host")
        if settings.topology == "bcube":
            return f"{hosts} of {settings.levels} interfaces in a BCube({settings.base},{settings.levels})"
        if settings.topology == "rails":
            return f"{hosts} on {numbered(settings.rails, 'rail')}"
        racks = f"{hosts} in {numbered(settings.racks, 'rack')}"
        return f"{racks} in {numbered(settings.pods, 'pod')}" if self.pods else racks


def draw(settings: LabSettings) -> Blueprint:
    """Draw a lab: racks of hosts and addresses at random, the same for the same seed.

    >>> [place.name for place in draw(LabSettings("a", racks=1, hosts_per_rack=2)).places]
    ['node-01', 'node-02']
    """
    rng = random.Random(settings.seed)
    n = settings.host_count
    per_rack = settings.hosts_per_rack if settings.topology == "racks" else n
    ports = [divmod(index, per_rack) for index in range(n)]
    rng.shuffle(ports)
    extra = settings.rails - 1 if settings.topology == "rails" else 0
    # .0.0 would be fine for a /32 but confuses people and some tools.
    indices = rng.sample(range(257, 257 + 4 * n * (1 + extra)), n * (1 + extra))
    addresses = [str(_HOSTS[index]) for index in indices]
    digits: list[tuple[int, ...]] = [()] * n
    if settings.topology == "bcube":
        digits = list(product(range(settings.base), repeat=settings.levels))
        rng.shuffle(digits)
    width = max(2, len(str(n)))
    places = (
        Place(f"node-{i + 1:0{width}d}", addresses[i], *ports[i], digits[i], tuple(addresses[n + extra * i :][:extra]))
        for i in range(n)
    )
    return Blueprint(settings, tuple(places))


def from_json(document: dict[str, Any], location: str) -> Blueprint:
    """Return the blueprint of a lab's state folder; ``location`` names its file.

    :raises InputError: when it is damaged.
    """
    try:
        return convert(Blueprint, document, location)
    except (InputError, UsageError):
        raise InputError(location, "it is damaged; run `plink lab down` and `plink lab up`") from None


def is_lab_address(address: str) -> bool:
    """Return whether an address belongs to emulated labs."""
    try:
        return ipaddress.ip_address(address) in NETWORK
    except ValueError:
        return False

"""How an emulated cloud stands (``plink.lab/1``)."""

from typing import Annotated

from msgspec import Meta

from plink.model.document import Document, Part
from plink.model.types import Count, HostName, LabName, Share


class LinkStatus(Part, frozen=True, kw_only=True):
    """The uplink of a rack or pod, a switch, or an interface of a host that has several."""

    name: Annotated[str, Meta(pattern=r"^((rack|pod|rail)[0-9]+|switch-[0-9]+-[0-9]+|.+/eth[0-9]+)$")]
    """rack0, pod0, rail0, switch-LEVEL-NUMBER, or HOST/ethNUMBER."""
    connected: bool
    """It is plugged in; false after `plink lab cut`. A switch is where one of its ports is."""
    rate: Count
    """What it carries now in either direction, bits per second (of a switch, its slowest port); 0 where nothing limits
    it."""
    loss: Share = 0.0
    """Share of the packets that `plink lab loss` loses, each way."""
    delay_us: Count = 0
    """How much later what it sends arrives, by `plink lab delay`, microseconds."""


class HostStatus(Part, frozen=True, kw_only=True):
    """One host."""

    name: HostName
    """The host's name."""
    address: str
    """Its address, which exists only inside the lab."""
    alive: bool
    """Its sshd runs; false after `plink lab kill`."""
    connected: bool
    """One of its interfaces is plugged in; false after `plink lab cut` or `kill`."""
    rate: Count
    """What each interface of it can send, and receive, now, bits per second; 0 where nothing limits it."""
    loss: Share = 0.0
    """Share of its packets that `plink lab loss` loses, each way."""
    delay_us: Count = 0
    """How much later what it sends arrives, by `plink lab delay`, microseconds."""


class LabStatus(Document, frozen=True, kw_only=True, tag="plink.lab/1"):
    """How an emulated cloud stands.

    Printed by `plink lab status --json`.
    """

    name: LabName
    """The lab's name."""
    links: Annotated[tuple[LinkStatus, ...], Meta(min_length=1)]
    """One entry a rack, then one a pod; or one a switch, then one an interface of a host."""
    hosts: Annotated[tuple[HostStatus, ...], Meta(min_length=1)]
    """One entry a host, in the order of the lab's hosts file."""

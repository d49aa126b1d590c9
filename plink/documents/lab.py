"""``plink.lab/1``: how an emulated cloud stands."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count, HostName, LabName


class LabRack(TypedDict):
    """One rack, or one pod of racks."""

    name: Annotated[str, Meta(pattern=r"^(rack|pod)[0-9]+$")]
    """rack0, rack1, ..., then pod0, pod1, ... where racks are in pods."""
    connected: bool
    """Its uplink is plugged in; false after `plink lab cut`."""
    rate: Count
    """What its uplink carries now in either direction, bits per second; 0 where nothing limits it."""


class LabHost(TypedDict):
    """One host."""

    name: HostName
    """The host's name."""
    address: str
    """Its address, which exists only inside the lab."""
    alive: bool
    """Its sshd runs; false after `plink lab kill`."""
    connected: bool
    """It is plugged into its rack; false after `plink lab cut` or `kill`."""
    rate: Count
    """What it can send, and receive, now, bits per second; 0 where nothing limits it."""


class LabDocument(TypedDict):
    """How an emulated cloud stands.

    Printed by `plink lab status --json`.
    """

    schema: Literal["plink.lab/1"]
    """Kind and version of this document."""
    name: LabName
    """The lab's name."""
    racks: Annotated[list[LabRack], Meta(min_length=1)]
    """One entry a rack, then one a pod."""
    hosts: Annotated[list[LabHost], Meta(min_length=1)]
    """One entry a host, in the order of the lab's hosts file."""

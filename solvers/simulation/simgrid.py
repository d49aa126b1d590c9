"""A network as a platform of SimGrid, another flow-level simulator, so that plink's simulations can be checked by it.

The format is that of SimGrid's platform DTD, version 4.1 (SimGrid manual, "Platform description: XML reference").
"""

from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np

from solvers.costs.fabric import Fabric
from solvers.simulation.job import resources_between

_DOCTYPE = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
_UNLIMITED_BPS = 1e18  # links need a bandwidth
_BYTES_PER_US_IN_BPS = 1e6
# SimGrid's corrections of TCP (bandwidth, latency, window, traffic of acknowledgements) are off: plink has none.
OPTIONS = (
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
)


def platform_xml(fabric: Fabric) -> str:
    """Return the platform file: a host for each host, a link for each resource, and a route for each ordered pair.

    Each route ends with a link of its own, which is not shared: it has the pair's latency and, where it was measured,
    the most that one flow gets.

    :raises NoAnswer: when a round trip is not known.
    """
    n = len(fabric.names)
    source, target = (ends.ravel() for ends in np.indices((n, n)))
    resources, route, latency_us = resources_between(fabric, source, target)
    platform = ElementTree.Element("platform", version="4.1")
    zone = ElementTree.SubElement(platform, "zone", id="plink", routing="Full")
    for name in fabric.names:
        ElementTree.SubElement(zone, "host", id=name, speed="1Gf")
    limited = np.isfinite(resources.capacity)
    for number in np.flatnonzero(limited).tolist():
        bandwidth = _bandwidth(resources.capacity[number])
        ElementTree.SubElement(zone, "link", id=resources.name(number), bandwidth=bandwidth, latency="0us")
    pairs = [f"{fabric.names[a]} to {fabric.names[b]}" for a, b in zip(source.tolist(), target.tolist(), strict=True)]
    limits = resources.limit[route]
    for pair, limit, latency in zip(pairs, limits.tolist(), latency_us.tolist(), strict=True):
        ElementTree.SubElement(
            zone, "link", id=pair, bandwidth=_bandwidth(limit), latency=f"{latency:.6f}us", sharing_policy="FATPIPE"
        )
    for pair, a, b, columns in zip(pairs, source.tolist(), target.tolist(), resources.routes[route], strict=True):
        ends = {"src": fabric.names[a], "dst": fabric.names[b], "symmetrical": "NO"}
        path = ElementTree.SubElement(zone, "route", ends)
        for number in columns[columns >= 0].tolist():
            if limited[number]:
                ElementTree.SubElement(path, "link_ctn", id=resources.name(number))
        ElementTree.SubElement(path, "link_ctn", id=pair)
    return _document(platform)


def deployment_xml(hosts: Sequence[str]) -> str:
    """Return the deployment file: an actor ``rank`` with its number as argument on each host, in rank order."""
    platform = ElementTree.Element("platform", version="4.1")
    for rank, host in enumerate(hosts):
        actor = ElementTree.SubElement(platform, "actor", host=host, function="rank")
        ElementTree.SubElement(actor, "argument", value=str(rank))
    return _document(platform)


def _bandwidth(bytes_per_us: float) -> str:
    bytes_per_s = min(bytes_per_us * _BYTES_PER_US_IN_BPS, _UNLIMITED_BPS)
    return f"{bytes_per_s:.6f}Bps"


def _document(platform: ElementTree.Element) -> str:
    ElementTree.indent(platform)
    return _DOCTYPE + ElementTree.tostring(platform, encoding="unicode") + "\n"

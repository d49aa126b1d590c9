"""Topology files of providers and schedulers: where machines are in the network, for orders without probing.

:func:`read_topology` reads the files of AWS, Google Cloud, Topograph, Slurm and Kubernetes, and lists of hosts and
racks; :func:`paths_for` finds the hosts of a job in them. docs/topology.md shows each format and the command that
writes it.
"""

from plink.model.topology.matching import paths_for
from plink.model.topology.paths import Path, Topology, hosts_of
from plink.model.topology.reading import parse_topology, read_topology

__all__ = ["Path", "Topology", "hosts_of", "parse_topology", "paths_for", "read_topology"]

"""Read topology files of any known format, which their content tells."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plink.errors import InputError
from plink.model.hosts import Hosts
from plink.model.storage import file_and_fragment, json_values, name_of, read_text
from plink.model.topology.clouds import from_aws, from_gcp, from_topograph
from plink.model.topology.fields import Entries, list_of
from plink.model.topology.flat import TRUTH, from_columns, from_map, from_truth, is_columns, is_map
from plink.model.topology.kubernetes import from_kubernetes
from plink.model.topology.paths import Topology, TopologyBuilder
from plink.model.topology.slurm import from_slurm_conf, is_slurm_conf
from plink.model.topology.slurm_yaml import from_slurm_yaml, is_slurm_yaml

_log = logging.getLogger("plink.topology")
_KNOWN_FORMATS = (
    "known are the JSON of `aws ec2 describe-instance-topology`, `gcloud compute instances list --format=json`, "
    "`kubectl get nodes -o json` and Topograph's graph engine, Slurm's topology.conf and topology.yaml, and lists of "
    "hosts and racks"
)
_LISTS = ("Reservations", "Instances", "instances", "items")
_TOKENS = ("NextToken", "nextToken", "nextPageToken")
# The key that entries of one format have and those of the others have not.
_READERS: tuple[tuple[str, Callable[[Entries, str], Topology]], ...] = (
    ("InstanceId", from_aws),
    ("network_layers", from_topograph),
    ("resourceStatus", from_gcp),
    ("networkInterfaces", from_gcp),
)


def read_topology(*paths: str | Path, hosts: Hosts | None = None, labels: Sequence[str] = ()) -> Topology:
    """Return the topology in files (``-``: standard input, ``.gz``: compressed): pages of one listing, or several of
    one format. ``FILE#NAME`` is the topology of that name in a topology.yaml.

    :param hosts: where a file has several topologies, the one that has these is read.
    :param labels: of Kubernetes' nodes, outermost first, instead of those of known providers.
    :raises InputError: as :func:`parse_topology`, and when a file cannot be read.
    """
    documents: list[tuple[str, Any]] = []
    json_files: list[str] = []
    topologies: list[Topology] = []
    for path in paths:
        file, name = file_and_fragment(path)
        location, text = name_of(file), read_text(file)
        if _is_json(text):
            documents += _documents(text, location)
            json_files.append(location)
        else:
            topologies.append(_from_text(text, location, hosts, name))
    if documents:
        topologies.append(_from_json(documents, ", ".join(json_files), labels))
    elif labels:
        raise InputError(topologies[0].location, "--labels goes with Kubernetes' nodes, which are not in it")
    return topologies[0] if len(topologies) == 1 else _merged(topologies)


def parse_topology(text: str, location: str) -> Topology:
    """Return the topology in a text; ``location`` names the file in errors.

    :raises InputError: when its format is not known, or an entry of it is wrong, naming line or key.
    """
    if _is_json(text):
        return _from_json(_documents(text, location), location, ())
    return _from_text(text, location, None, None)


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _documents(text: str, location: str) -> list[tuple[str, Any]]:
    """Return the JSON documents of a file, each with its place for errors."""
    return [
        (location if not number else f"{location} (document {number + 1})", value)
        for number, value in enumerate(json_values(text, location))
    ]


def _from_text(text: str, location: str, hosts: Hosts | None, name: str | None) -> Topology:
    if is_slurm_conf(text):
        return from_slurm_conf(text, location)
    if is_slurm_yaml(text):
        return from_slurm_yaml(text, location, hosts, name)
    if is_columns(text):
        return from_columns(text, location)
    raise InputError(location, f"not a topology that plink reads; {_KNOWN_FORMATS}")


def _from_json(documents: Entries, location: str, labels: Sequence[str]) -> Topology:
    """Return the topology of all documents together; ``location`` names their files."""
    if is_map(lines := [document for _, document in documents]):  # an object a line
        return from_map(lines, location)
    flat = [
        from_map(document, place) if is_map(document) else from_truth(document, place)
        for place, document in documents
        if is_map(document) or (isinstance(document, dict) and document.get("schema") == TRUTH)
    ]
    if len(flat) == len(documents):
        return flat[0] if len(flat) == 1 else _merged(flat)
    entries = [entry for place, document in documents for entry in _entries(document, place)]
    _check_complete(*documents[-1])
    keys = {key for _, entry in entries if isinstance(entry, dict) for key in entry}
    for key, reader in _READERS:
        if key in keys:
            if labels:
                raise InputError(location, "--labels goes with Kubernetes' nodes, which are not in it")
            return reader(entries, location)
    if "metadata" in keys:
        return from_kubernetes(entries, location, labels)
    raise InputError(location, f"not a topology that plink reads; {_KNOWN_FORMATS}")


def _list_key(document: Any) -> str | None:
    """Return the key of a page under which it has its entries; None where it is no page."""
    return next((key for key in _LISTS if key in document), None) if isinstance(document, dict) else None


def _entries(document: Any, place: str) -> Entries:
    """Return the entries of a page, of a list of pages, or of a list; else the document, as `describe` prints one."""
    if key := _list_key(document):
        place = f"{place}: {key}"
        document = list_of(document[key], place)
    if not isinstance(document, list):
        return [(place, document)]
    listed = [(f"{place}[{index}]", entry) for index, entry in enumerate(document)]
    return [pair for at, entry in listed for pair in (_entries(entry, at) if _list_key(entry) else [(at, entry)])]


def _check_complete(place: str, document: Any) -> None:
    """Warn of a listing whose last page says that there are more."""
    page = document[-1] if isinstance(document, list) and document else document
    if _list_key(page) is None:
        return
    metadata = page.get("metadata")
    tokens = {"metadata.continue": metadata.get("continue") if isinstance(metadata, dict) else None}
    tokens |= {key: page.get(key) for key in _TOKENS}
    if left := [key for key, token in tokens.items() if token]:
        _log.warning(f"{place} is cut off: hosts are missing ({left[0]} is left); list all, or add the other pages")


def _merged(topologies: Sequence[Topology]) -> Topology:
    """Return the hosts of all.

    :raises InputError: for two formats, and for a host that is at two places.
    """
    first = topologies[0]
    builder = TopologyBuilder(first.kind, ", ".join(topology.location for topology in topologies), first.hint)
    for topology in topologies:
        if topology.kind != first.kind:
            reason = (
                f"its format is {topology.kind}, that of {first.location} is {first.kind}; give files of one format"
            )
            raise InputError(topology.location, reason)
        for name, path in topology.paths.items():
            builder.add(name, path, topology.location, topology.aliases.get(name, ()))
    return builder.topology()

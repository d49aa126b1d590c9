"""Read a topology file of any known format, which its content tells."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from plink.errors import InputError
from plink.model.storage import name_of, read_text
from plink.model.topology.aws import from_aws
from plink.model.topology.fields import list_of, parse_json
from plink.model.topology.gcp import from_gcp
from plink.model.topology.kubernetes import from_kubernetes
from plink.model.topology.paths import Topology
from plink.model.topology.slurm_conf import from_slurm_conf, is_slurm_conf
from plink.model.topology.slurm_yaml import from_slurm_yaml, is_slurm_yaml
from plink.model.topology.topograph import from_topograph

_KNOWN_FORMATS = (
    "known are the JSON of `aws ec2 describe-instance-topology`, `gcloud compute instances list --format=json`, "
    "`kubectl get nodes -o json` and Topograph's graph engine, and Slurm's topology.conf and topology.yaml"
)
_LISTS = ("Instances", "instances", "items")
# The key that entries of one format have and those of the others have not.
_READERS: tuple[tuple[str, Callable[[list[Any], str, str], Topology]], ...] = (
    ("InstanceId", from_aws),
    ("network_layers", from_topograph),
    ("metadata", from_kubernetes),
    ("resourceStatus", from_gcp),
    ("networkInterfaces", from_gcp),
)


def read_topology(path: str | Path) -> Topology:
    """Return the topology in a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`parse_topology`, and when the file cannot be read.
    """
    return parse_topology(read_text(path), name_of(path))


def parse_topology(text: str, location: str) -> Topology:
    """Return the topology in a text; ``location`` names the file in errors.

    :raises InputError: when its format is not known, or an entry of it is wrong, naming line or key.
    """
    if text.lstrip()[:1] in ("{", "["):
        return _from_json(parse_json(text, location), location)
    if is_slurm_conf(text):
        return from_slurm_conf(text, location)
    if is_slurm_yaml(text):
        return from_slurm_yaml(text, location)
    raise InputError(location, f"not a topology that plink reads; {_KNOWN_FORMATS}")


def _from_json(document: Any, location: str) -> Topology:
    entries, place = document, location
    if isinstance(document, dict):
        key = next((key for key in _LISTS if key in document), None)
        # Without a list it is one node or instance, as `describe` prints it.
        entries = [document] if key is None else list_of(document[key], f"{location}: {key}")
        place = location if key is None else f"{location}: {key}"
    keys = {key for entry in entries if isinstance(entry, dict) for key in entry}
    for key, reader in _READERS:
        if key in keys:
            return reader(entries, place, location)
    raise InputError(location, f"not a topology that plink reads; {_KNOWN_FORMATS}")

"""Details of network files, as they stand in JSON."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from plink.model.codec import convert
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.network_file import NetworkDetails


def details_from(keys: Mapping[str, Any]) -> NetworkDetails:
    """Return the details that have these keys, checked as a file's are."""
    return convert(NetworkDetails, {key: value for key, value in keys.items() if value is not UNSET}, "details")


def keys_of(network: Network | NetworkDetails) -> dict[str, Any]:
    """Return the keys of the details."""
    keys: dict[str, Any] = to_builtins(network.details if isinstance(network, Network) else network)
    return keys

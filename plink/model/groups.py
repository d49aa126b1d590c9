"""Groups of hosts, as a file lists them: one group a line, or ``plink.groups/1``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plink.documents.codec import convert, schema_name
from plink.documents.groups import GroupsDocument, GroupsList
from plink.errors import InputError
from plink.model.host_names import check_name
from plink.model.storage import name_of, parse_document, read_text, write_document

SCHEMA = schema_name(GroupsDocument)
Names = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class NamedTier:
    """One level of the natural hierarchy: ``groups`` of names, the typical round trip ``within_us`` a group (of hosts
    that no inner tier has together) and ``next_us``, that of the next tier; how far the step between them stands out
    (``ratio``), and how surely it is found again (``confidence``, 0 to 1)."""

    groups: Names
    within_us: float | None
    next_us: float | None
    ratio: float
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """As written to disk."""
        return {
            "groups": [list(group) for group in self.groups],
            "within_us": self.within_us,
            "next_us": self.next_us,
            "ratio": self.ratio,
            "confidence": self.confidence,
        }


@dataclass(frozen=True)
class Groups:
    """Groups of hosts for hierarchical aggregation, and how they were found.

    ``cohesion_us``: mean measured round trip within groups, ``across_us`` across them, None without such a pair;
    ``random``: the same of balanced random groups; ``ami``: the mean adjusted mutual information of ``runs``
    clusterings; ``tiers``, innermost first; ``network``: the fingerprint of the network.
    """

    network: str
    groups: Names
    elasticity: float
    method: str
    cohesion_us: float | None
    across_us: float | None
    random: dict[str, float | None]
    ami: float
    runs: int
    tiers: tuple[NamedTier, ...]
    left_out: tuple[str, ...]
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk."""
        return {
            "schema": SCHEMA,
            "network": self.network,
            "groups": [list(group) for group in self.groups],
            "k": len(self.groups),
            "elasticity": self.elasticity,
            "method": self.method,
            "cohesion_us": self.cohesion_us,
            "across_us": self.across_us,
            "random": self.random,
            "agreement": {"ami": self.ami, "runs": self.runs},
            "tiers": [tier.to_json() for tier in self.tiers],
            "left_out": list(self.left_out),
            "seed": self.seed,
        }

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def read_groups(path: str | Path) -> list[list[str]]:
    """Read groups of names from a file: one per line, separated by blanks or commas, ``#`` begins a comment; or JSON
    with a list of lists of names under ``groups``.

    :raises InputError: when the file cannot be read, holds no groups or a name that is none, naming the place.
    """
    return parse_groups(read_text(path), name_of(path))


def parse_groups(text: str, location: str) -> list[list[str]]:
    """Parse groups from a text; ``location`` names the file in errors."""
    if text.lstrip().startswith("{"):
        name_lists = convert(GroupsList, parse_document(text, location), location)["groups"]
        rows = [(f"{location}: groups[{k}]", group) for k, group in enumerate(name_lists)]
    else:
        lines = enumerate(text.splitlines(), 1)
        rows = [(f"{location}:{k}", line.partition("#")[0].replace(",", " ").split()) for k, line in lines]
        rows = [(line_location, names) for line_location, names in rows if names]
    groups = [[check_name(name, line_location) for name in names] for line_location, names in rows]
    if not groups:
        raise InputError(location, "no groups: write one a line, the names of its hosts separated by blanks")
    return groups

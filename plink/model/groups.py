"""Groups of hosts, as a file lists them: one group a line, or ``plink.groups/1``."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import convert
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hostlist import check_name
from plink.model.storage import name_of, parse_document, read_text
from plink.model.types import Count, Fingerprint, HostName, NonNegative, PositiveInt, Share

Names = Annotated[tuple[HostName, ...], Meta(min_length=1)]


class RandomGroups(Part, frozen=True, kw_only=True):
    """What is expected of as many balanced groups drawn without looking: the mean of all pairs."""

    cohesion_us: NonNegative | None
    """Mean round trip within random groups, in microseconds."""
    across_us: NonNegative | None
    """Mean round trip across random groups, in microseconds."""


class WithinGroup(Part, frozen=True, kw_only=True):
    """Round trips between the hosts of one group; null for a host alone."""

    mean_us: NonNegative | None
    """Their mean, in microseconds."""
    longest_us: NonNegative | None
    """The longest, in microseconds."""


class Agreement(Part, frozen=True, kw_only=True):
    """How far repeated clusterings of the same measurements agree."""

    ami: Annotated[float, Meta(le=1)]
    """Mean adjusted mutual information between any two of the clusterings: 1 when all are the same, 0 when they agree
    by chance only."""
    runs: PositiveInt
    """How many clusterings the groups were chosen from."""


class GroupTier(Part, frozen=True, kw_only=True):
    """One level of the hierarchy."""

    groups: Annotated[tuple[Names, ...], Meta(min_length=2)]
    """Names of the hosts of each group of this tier."""
    within_us: NonNegative | None
    """Median round trip between hosts in one group of this tier and not in one of the tier inside it, in microseconds;
    null without such a pair."""
    next_us: NonNegative | None
    """The same of the next tier, or of all other pairs where this is the outermost."""
    ratio: Annotated[float, Meta(ge=1)]
    """How many times farther the next merge of the hierarchy is than the last one inside the tier."""
    confidence: Share
    """How surely the groups are found again in each half of the samples and with a fifth of the hosts left out (mean
    adjusted mutual information, the lesser of both)."""


class Groups(Document, frozen=True, kw_only=True, tag="plink.groups/1"):
    """Which hosts aggregate together.

    Written by `plink cluster`, read by `plink reorder --groups`. A file with groups alone is read too.
    """

    network: Fingerprint | None = None
    """Fingerprint of the network the groups were found for."""
    groups: Annotated[tuple[Names, ...], Meta(min_length=1)]
    """Names of the hosts of each group; every host is in one group or left out."""
    k: PositiveInt | Unset = UNSET
    """How many groups there are."""
    elasticity: Annotated[float, Meta(ge=1, le=2)] = 1.0
    """How uneven groups may be: of n hosts each has n/k/elasticity (rounded down) to n/k*elasticity (rounded up); 1:
    sizes are one apart at most."""
    method: str = ""
    """How the groups were found, in words."""
    cohesion_us: NonNegative | None = None
    """Mean round trip between hosts of one group, in microseconds; null where no group has two hosts."""
    across_us: NonNegative | None = None
    """Mean round trip between hosts of different groups, in microseconds; null without such a pair."""
    within: tuple[WithinGroup, ...] = ()
    """Round trips within each group."""
    predicted_pairs: Count = 0
    """Pairs of grouped hosts that were not measured: of these all round trips here are what the groups were found by,
    which measured ones predict."""
    random: RandomGroups = RandomGroups(cohesion_us=None, across_us=None)
    """What is expected of as many balanced groups drawn without looking: the mean of all pairs."""
    agreement: Agreement = Agreement(ami=1.0, runs=1)
    """How far repeated clusterings of the same measurements agree."""
    tiers: tuple[GroupTier, ...] = ()
    """The natural hierarchy (machines, racks, zones), innermost first; empty when no tier stands out from the noise."""
    left_out: tuple[str, ...] = ()
    """Hosts of which nothing was measured; they are in no group and no tier."""
    seed: int | None = None
    """What makes the search reproducible."""


class _GroupsList(Part, frozen=True):
    groups: list[list[HostName]]


def read_groups(path: str | Path) -> list[list[str]]:
    """Read groups of names from a file: one per line, separated by blanks or commas, ``#`` begins a comment; or JSON
    with a list of lists of names under ``groups``.

    :raises InputError: when the file cannot be read, holds no groups or a name that is none, naming the place.
    """
    return parse_groups(read_text(path), name_of(path))


def parse_groups(text: str, location: str) -> list[list[str]]:
    """Parse groups from a text; ``location`` names the file in errors."""
    if text.lstrip().startswith("{"):
        name_lists = convert(_GroupsList, parse_document(text, location), location).groups
        rows = [(f"{location}: groups[{k}]", group) for k, group in enumerate(name_lists)]
    else:
        lines = enumerate(text.splitlines(), 1)
        rows = [(f"{location}:{k}", line.partition("#")[0].replace(",", " ").split()) for k, line in lines]
        rows = [(line_location, names) for line_location, names in rows if names]
    groups = [[check_name(name, line_location) for name in names] for line_location, names in rows]
    if not groups:
        raise InputError(location, "no groups: write one a line, the names of its hosts separated by blanks")
    return groups

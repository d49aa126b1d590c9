"""``plink.groups/1``: which hosts aggregate together."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Fingerprint, HostName, NonNegative, PositiveInt, Share


class RandomGroupsEntry(TypedDict):
    """The same of as many balanced groups that were drawn without looking, mean of 100 drawings."""

    cohesion_us: NonNegative | None
    """Mean round trip within random groups, in microseconds."""
    across_us: NonNegative | None
    """Mean round trip across random groups, in microseconds."""


class AgreementEntry(TypedDict):
    """How far repeated clusterings of the same measurements agree."""

    ami: Annotated[float, Meta(le=1)]
    """Mean adjusted mutual information between any two of the clusterings: 1 when all are the same, 0 when they agree
    by chance only."""
    runs: PositiveInt
    """How many clusterings the groups were chosen from."""


class TierEntry(TypedDict):
    """One level of the hierarchy."""

    groups: Annotated[list[Annotated[list[HostName], Meta(min_length=1)]], Meta(min_length=2)]
    """Names of the hosts of each group of this tier."""
    within_us: NonNegative | None
    """Median round trip between hosts in one group of this tier and not in one of the tier inside it, in microseconds;
    null without such a pair."""
    next_us: NonNegative | None
    """The same of the next tier, or of all other pairs where this is the outermost."""
    ratio: NotRequired[Annotated[float, Meta(ge=1)]]
    """How many times farther the next merge of the hierarchy is than the last one inside the tier."""
    confidence: Share
    """How surely the groups are found again in each half of the samples and with a fifth of the hosts left out (mean
    adjusted mutual information, the lesser of both)."""


class GroupsList(TypedDict):
    """What is read of a document with groups."""

    groups: list[list[HostName]]
    """Names of the hosts of each group."""


class GroupsDocument(TypedDict):
    """Which hosts aggregate together.

    Written by `plink cluster`, read by `plink reorder --groups`. A file with groups alone is read too.
    """

    schema: Literal["plink.groups/1"]
    """Kind and version of this file."""
    network: NotRequired[Fingerprint | None]
    """Fingerprint of the network the groups were found for."""
    groups: Annotated[list[Annotated[list[HostName], Meta(min_length=1)]], Meta(min_length=1)]
    """Names of the hosts of each group; every host is in one group or left out."""
    k: NotRequired[PositiveInt]
    """How many groups there are."""
    elasticity: NotRequired[Annotated[float, Meta(ge=1, le=2)]]
    """How uneven groups may be: of n hosts each has n/k/elasticity (rounded down) to n/k*elasticity (rounded up); 1:
    sizes are one apart at most."""
    method: NotRequired[str]
    """How the groups were found, in words."""
    cohesion_us: NotRequired[NonNegative | None]
    """Mean measured round trip between hosts of one group, in microseconds; null where no group has two hosts with a
    measured pair."""
    across_us: NotRequired[NonNegative | None]
    """Mean measured round trip between hosts of different groups, in microseconds; null without such a pair."""
    random: NotRequired[RandomGroupsEntry]
    """The same of as many balanced groups that were drawn without looking, mean of 100 drawings."""
    agreement: NotRequired[AgreementEntry]
    """How far repeated clusterings of the same measurements agree."""
    tiers: NotRequired[list[TierEntry]]
    """The natural hierarchy (machines, racks, zones), innermost first; empty when no tier stands out from the noise."""
    left_out: NotRequired[list[str]]
    """Hosts of which nothing was measured; they are in no group and no tier."""
    seed: NotRequired[int | None]
    """What makes the search reproducible."""

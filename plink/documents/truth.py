"""``plink.truth/1``: where hosts really are."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta


class TruthDocument(TypedDict):
    """Where hosts really are.

    Read by `plink check --truth`; `plink lab up` leaves one in the lab's folder. One of positions and racks; where
    both are there, racks is passed over.
    """

    schema: Literal["plink.truth/1"]
    """Kind and version of this file."""
    positions: NotRequired[dict[str, str | int | Annotated[list[str | int], Meta(min_length=1)]]]
    """Of each host what it hangs under, from the top: [region, ..., rack], names or numbers; one alone may stand
    without brackets. Hosts that are missing are not judged by."""
    racks: NotRequired[dict[str, str | int | Annotated[list[str | int], Meta(min_length=1)]]]
    """The rack of each host, by name or number."""
    digits: NotRequired[dict[str, list[Annotated[int, Meta(ge=0)]]]]
    """Of each host in a BCube its port on the switch of each level, level 0 first; `plink check` needs racks."""

"""``plink.schedule/1``: who sends what to whom, and when."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, PositiveInt

Transfer = TypedDict(
    "Transfer",
    {
        "id": NotRequired[
            Annotated[int | str, Meta(description="How others name it; its place in this list when missing.")]
        ],
        "round": NotRequired[
            Annotated[
                Annotated[int, Meta(ge=0, le=2147483646)],
                Meta(description="When; missing in all transfers: the longest chain of `after` that leads to it."),
            ]
        ],
        "from": Annotated[Annotated[int, Meta(ge=0, le=1048575)], Meta(description="The rank that sends.")],
        "to": Annotated[
            Annotated[int, Meta(ge=0, le=1048575)], Meta(description="The rank that receives, another one.")
        ],
        "chunk": Annotated[Count, Meta(description="The first chunk that is sent.")],
        "chunks": NotRequired[Annotated[PositiveInt, Meta(description="How many, from there on; one when missing.")]],
        "op": Annotated[
            Literal["reduce", "copy"],
            Meta(description="reduce: added to what stands at the target; copy: replaces it."),
        ],
        "after": NotRequired[
            Annotated[
                list[int | str] | None,
                Meta(
                    description="The transfers that it waits for: those that wrote what it carries, and where it adds "
                    "to a copy, that copy. Missing or null where there are rounds: what follows from these."
                ),
            ]
        ],
    },
)


class ScheduleDocument(TypedDict):
    """Who sends what to whom, and when.

    Written by `plink schedule`, read by `plink schedule verify` and `count`; anybody's are welcome. A transfer of
    round t carries what stood at its source when all rounds before t were done, and is applied after everything
    that its target itself sends in round t has been read. Ranks and chunks count from 0.
    """

    schema: Literal["plink.schedule/1"]
    """Kind and version of this file."""
    algo: NotRequired[str]
    """Name of the algorithm; unnamed when missing."""
    collective: NotRequired[Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce"]]
    """What it does; all-reduce when missing."""
    ranks: Annotated[int, Meta(ge=2, le=1048576)]
    """How many take part."""
    chunks: Annotated[int, Meta(ge=1, le=1048576)]
    """Into how many chunks of equal size the vector is cut."""
    owners: NotRequired[Annotated[list[Annotated[int, Meta(ge=0, le=1048575)]], Meta(min_length=1)] | None]
    """For every chunk the rank that has it at the beginning (all-gather, broadcast) or ends with it (reduce-scatter,
    reduce); not needed for an all-reduce."""
    contributors: NotRequired[
        Annotated[
            list[Annotated[int, Meta(ge=0, le=1048575)]], Meta(min_length=1, extra_json_schema={"uniqueItems": True})
        ]
        | None
    ]
    """The ranks that have something to add and want the result; all of them when missing or null. What stands at the
    others in the beginning is zero."""
    groups: NotRequired[list[list[Annotated[int, Meta(ge=0, le=1048575)]]] | None]
    """For two-level aggregation: the ranks of each group."""
    fan_out: NotRequired[PositiveInt]
    """For a tree: children of a node."""
    timing: NotRequired[Literal["rounds", "chain", "pipeline"]]
    """How its rounds add up under the cost model latency; rounds when missing."""
    transfers: list[Transfer]
    """The transfers, in any order."""

"""Check whether hosts can do a job together, by their first messages."""

from collections.abc import Sequence

from plink import __version__
from plink.model.consistency import check_optimisers, parse_rule
from plink.model.divergence import check_divergence
from plink.model.elastic.reports import OtherVersion
from solvers.elastic.member import Member
from solvers.elastic.placement.hosts import Tier

_LAYOUT = {
    "tables": "tables", "shards": "shards", "batches": "mini-batches", "grains": "grains of a mini-batch",
    "optimisers": "tables with an optimiser",
}  # fmt: skip


def refuse(members: Sequence[Member], rule: str = "bsp", divergence: str = "") -> str | None:
    """Return why these hosts cannot do the job; None if they can.

    :raises UsageError: the program has optimisers, which the rule does not go with, or no floats to bound.
    """
    for member in members:
        if isinstance(member.hello, OtherVersion):
            return (
                f"{member.name} has plink {member.hello.plink}, here it is {__version__}, and these do not understand "
                f"each other: install the same on all hosts"
            )
    first = members[0].program
    for other in members[1:]:
        for key, what in _LAYOUT.items():
            if getattr(other.program, key) != getattr(first, key):
                return (
                    f"{other.name} has other {what} than {members[0].name}: the program must be the same on all hosts "
                    f"(--sync copies it), and must not depend on the host"
                )
    check_optimisers(parse_rule(rule), first.optimisers)
    check_divergence(divergence, first.float_tables)
    reliable = [member for member in members if member.tier == Tier.RELIABLE]
    if not reliable:
        return (
            "no reliable host: parameters would be lost with the hosts that may be taken away; mark one in the hosts "
            "file with tier=reliable"
        )
    return None

"""How an elastic job stands, for a person or a program of theirs (`plink elastic status`)."""

from collections.abc import Iterable
from typing import Any

from runners.agile.member import Member
from runners.agile.turns import Turns
from solvers.elastic.placement.state import Cluster


def hosts_of(state: Cluster, members: Iterable[Member], turns: Turns) -> list[dict[str, Any]]:
    """What each host is and does, in the order of their coming."""
    found = []
    for member in sorted(members, key=lambda member: member.number):
        number = member.number
        found.append(
            {
                "name": member.name,
                "number": number,
                "tier": member.tier,
                "state": "leaving" if number in state.leaving else "joining" if number in state.joining else "there",
                "serves": [index for index, one in enumerate(state.partitions) if one.owner == number],
                "backs": [index for index, one in enumerate(state.partitions) if one.backup == number != one.owner],
                "pieces": sum(len(share.pieces) for share in turns.shares.values() if share.host == number),
                "sent": member.carried.sent,
                "received": member.carried.received,
                "price": member.price,
            }
        )
    return found

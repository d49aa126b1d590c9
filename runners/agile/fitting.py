"""Whether hosts can do a job together at all, by what they said first."""

from collections.abc import Sequence

from plink import __version__
from plink.remote.words import ill
from plink.runtime.agileml.control_line import VERSION
from runners.agile.node_words import HELLO
from solvers.elastic.member import Member
from solvers.elastic.placement.hosts import Tier


def refuse(members: Sequence[Member]) -> str | None:
    """Why these hosts cannot do the job; None if they can."""
    for member in members:
        if member.hello.get("version") != VERSION:
            theirs = str(member.hello.get("plink", "an older version"))[:40]
            return (
                f"{member.name} has plink {theirs}, here it is {__version__}, and these do not understand each other: "
                f"install the same on all hosts"
            )
        if why := ill("hello", HELLO, member.hello):
            return f"{member.name}: what its node says of itself makes no sense: {why}"
    first = members[0]
    for other in members[1:]:
        for key, what in (("tables", "tables"), ("pieces", "pieces of data"), ("batches", "mini-batches")):
            if other.hello[key] != first.hello[key]:
                return (
                    f"{other.name} has other {what} than {first.name}: the program must be the same on all hosts "
                    f"(--sync copies it), and must not depend on the host"
                )
    reliable = [member for member in members if member.tier == Tier.RELIABLE]
    if not reliable:
        return (
            "no reliable host: parameters would be lost with the hosts that may be taken away; mark one in the hosts "
            "file with tier=reliable"
        )
    return None

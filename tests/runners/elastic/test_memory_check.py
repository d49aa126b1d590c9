"""Tables and hosts' memory: what cannot do is refused with host, need and what it has, what may not do is warned of."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from plink.errors import PlinkError
from plink.runtime.elastic.arrays.array_pool import MAX_POOLED_BYTES
from runners.elastic.compatibility import memory_needs, warning
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from tests.runners.elastic.test_small_parts import member

GB = 10**9
TABLES = ((8, GB),)
BYTES = 8 * GB


def job(tiers: str, gigabytes: float | None, slots: int = 1, **hello: Any) -> list[Member]:
    """Hosts h0, h1 ...: a letter a host, r or t, all with so much memory."""
    memory = None if gigabytes is None else round(gigabytes * GB)
    members = [
        member(k, "reliable" if tier == "r" else "transient", memory=memory, **hello) for k, tier in enumerate(tiers)
    ]
    return [replace(host, slots=slots) for host in members]


def having(item: Member, **hello: Any) -> Member:
    """The same, but for what its node said first."""
    return replace(item, hello=structs.replace(item.program, **hello))


def settings(partitions: int = 4, **more: Any) -> Settings:
    return Settings(
        keys="", partitions=partitions, shards=24, **{"shapes": TABLES, "started": 0.0, "began": 0.0, **more}
    )


def refusal(hosts: list[Member], **more: Any) -> str | None:
    """What the job is refused with."""
    try:
        warning(hosts, hosts, settings(**more))
    except PlinkError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("tiers", "least"),
    [
        ("r", 8),  # serves all of it
        ("rr", 4),
        ("rtttt", 8),  # two serve
    ],
)  # fmt: skip
def test_servers_and_replicas_must_have_room_for_their_share(
    tiers: str, least: float
) -> None:  # fmt: skip
    assert refusal(job(tiers, least)) is None
    message = str(refusal(job(tiers, least - 0.1)))
    assert message.startswith(f"h0 would keep {least:g} GB of parameters, and has {least - 0.1:.3g} GB of memory")
    assert refusal(job(tiers, None)) is None  # where nobody says how much there is


def test_transient_host_needs_memory_for_served_partitions_only() -> None:
    """In stage 2 the one that was there first serves; in stage 1 none does."""
    small = job("rtt", 100)
    small[1:] = [having(item, memory=7 * GB) for item in small[1:]]
    assert str(refusal(small)).startswith("h1 would keep 8 GB of parameters, and has 7 GB of memory")
    small[1] = replace(small[1], hello=small[0].hello)
    assert refusal(small) is None
    assert refusal(small[::2]) is None


def test_what_staleness_has_in_sight_is_kept_too() -> None:
    """Servers have the newest state beside the consistent one."""
    assert refusal(job("r", 15.9)) is None
    assert "would keep 16 GB" in str(refusal(job("r", 15.9), rule="ssp:0"))


def test_hosts_that_share_their_memory_need_it_together() -> None:
    """Two names of one machine, or all of `--runner local`; of other machines each has its own."""
    assert refusal(job("rr", 7)) is None
    assert refusal(job("rr", 7, pool="")) is None
    assert "h0 and h1 would keep 8 GB of parameters" in str(refusal(job("rr", 7, pool="a-machine")))
    apart = job("rr", 7, pool="a-machine")
    apart[1] = having(apart[1], pool="another")
    assert refusal(apart) is None
    assert "h0, h1, h2 and 1 more would keep 8 GB" in str(refusal(job("rrrr", 7, pool="a-machine")))
    idle = job("rt", 7, pool="a-machine")  # of which one keeps nothing
    assert "h0 would keep 8 GB of parameters, and h0 and h1 have 7 GB" in str(refusal(idle))


def test_servers_need_room_for_the_steps_of_optimisers() -> None:
    """The sum of a clock, and what they add to tables and moments; replicas and workers do not."""
    hosts = job("rtt", None)
    plain, stepped = memory_needs(hosts, settings()), memory_needs(hosts, settings(optimisers=True))
    assert [stepped[host].most - plain[host].most for host in range(3)] == [0, 2 * BYTES, 0]
    assert [stepped[host].state for host in range(3)] == [plain[host].state for host in range(3)]


def test_a_replica_without_workers_needs_none_for_any() -> None:
    """Stage 3."""
    hosts = job("rt", None)
    assert memory_needs(hosts, settings(active=0.0, backup_only=0.0))[0].most == 3 * BYTES + MAX_POOLED_BYTES


def test_a_table_with_few_rows_lies_where_these_are() -> None:
    """Two wide rows in four partitions: the first two hosts have one each, the others nothing."""
    wide = settings(shapes=((2, 4 * GB), (64, 1)))
    need = memory_needs(job("rrrr", None), wide)
    assert sorted(round(item.state / GB) for item in need.values()) == [0, 0, 4, 4]


def test_a_host_that_is_there_and_will_have_too_little_is_warned_of() -> None:
    """One more transient host makes it stage 2, in which the first serves all of it."""
    hosts = job("rtt", 1000)
    hosts[1] = having(hosts[1], memory=7 * GB)
    certain = "memory will run short once they have come: h1 would keep 8 GB of parameters, and has 7 GB"
    assert str(warning(hosts[2:], hosts, settings())).startswith(certain)
    hosts[2] = having(hosts[2], memory=GB)
    assert "; memory may run short: h2 may need up to " in str(warning(hosts[2:], hosts, settings()))
    assert not str(warning(hosts[2:], [hosts[0], hosts[2]], settings())).startswith(certain)


def test_what_may_not_do_is_warned_of_in_one_line_with_the_worst() -> None:
    hosts = job("rt", 90, 2)
    assert warning(hosts[1:], hosts, settings()) is None
    hosts[1] = having(hosts[1], memory=80 * GB)
    message = str(warning(hosts, hosts, settings()))
    assert message.startswith("memory may run short: h0 may need up to 128 GB (and so 1 more host)")
    assert "(parameters 48 GB, workers 80 GB), and has 90 GB of memory" in message
    assert "h1 may need up to 80.3 GB" in str(warning(hosts[1:], hosts, settings()))

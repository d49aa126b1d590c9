"""Workers that ask before they send: grants wait as reads do, and whatever happens to the arbiter nobody is stuck."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from plink.elastic import Table
from plink.model.elastic.fields import UpdateCounts
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.replica.arbitration import Arbitration
from plink.runtime.elastic.transport.messages import Announce, Grant, Message, ServerAnswer, Status, Update
from plink.runtime.elastic.worker.announcer import Announcer, Group, LocalGroups, Updates
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import Unanswered
from tests.runtime.elastic.arbiter_log import replayed
from tests.runtime.elastic.stores import HANGS_S, Store, hand_over, store, together, wait_for

WORKERS, PARTITIONS = 4, 3
LAYOUT = Layout((Table("m", 3000, 2), Table("plink.n", 6, 1)), PARTITIONS)
HUGE = 10**13  # bytes, which take an hour: no machine is so slow that the next is granted meanwhile
BYTES_S = 1e9


@pytest.fixture
def made() -> Iterator[Store]:
    """Partitions on two servers, for workers that have done clock 0; what is noted is kept."""
    with store(LAYOUT, Ordered(max_delay=2), servers=2) as result:
        result.open(WORKERS, history=True)
        for worker in range(WORKERS):
            result.client(worker).push()
        yield result


def announce(made: Store, worker: int, size: int = HUGE, step: int = 0, **more: Any) -> Message:
    """Ask the primary of partition 0, or who was it."""
    message = Announce(0, worker=worker, clock=1, step=step, size=size, text=f"10.0.0.{worker}:1 {BYTES_S}")
    connection = made.servers[0].connection(made.primaries[0].address)
    try:
        return connection.ask(structs.replace(message, **more))
    finally:
        connection.close()


def send(made: Store, worker: int, step: int = 0, version: int = 0, term: int = 0) -> Message:
    """An update of partition 0."""
    blocks = (RowBlock(0, range(1), np.ones((1, 2), np.float32)),)
    connection = made.servers[0].connection(made.primaries[0].address)
    try:
        return connection.ask(Update(0, worker=worker, clock=1, step=step, blocks=blocks, version=version, others=term))
    finally:
        connection.close()


def test_next_is_granted_when_the_one_before_has_arrived(made: Store) -> None:
    assert (announce(made, 0).status, announce(made, 0).dropped) == (Status.OK, False)
    assert announce(made, 1).status is Status.WAITING
    waited, _ = together(lambda: announce(made, 1), lambda: send(made, 0))
    assert Status.OK in (waited.status, announce(made, 1).status)  # type: ignore[attr-defined]


def test_what_would_be_too_old_is_not_sent(made: Store) -> None:
    for step in range(3):
        assert not send(made, 0, step, version=step).dropped
    answer = announce(made, 1)
    assert answer.status is Status.OK
    assert answer.dropped
    assert not announce(made, 1, step=1, version=3).dropped


def test_short_transfers_are_not_planned(made: Store) -> None:
    for worker in range(WORKERS):
        assert announce(made, worker, size=1000).unplanned


def test_waiting_worker_is_sent_on_where_partition_0_moves(made: Store) -> None:
    """The new primary knows of nobody's grant."""
    announce(made, 0)
    assert announce(made, 1).status is Status.WAITING
    there = made.servers[1].address
    waiting, _ = together(lambda: announce(made, 1), lambda: hand_over(made.servers[0], 0, there, 1))
    assert waiting.status in (Status.ELSEWHERE, Status.WAITING)  # type: ignore[attr-defined]
    moved = announce(made, 1)
    assert (moved.status, moved.text) == (Status.ELSEWHERE, there)
    made.primaries[0] = replace(made.primaries[0], address=there)
    assert announce(made, 1).status is Status.OK


def test_waiting_worker_learns_of_a_roll_back(made: Store) -> None:
    announce(made, 0)
    assert announce(made, 1).status is Status.WAITING
    for server in made.servers:
        server.roll_back(0, 1)
    answer = announce(made, 1)
    assert (answer.status, answer.clock, answer.generation) == (Status.ROLLED_BACK, 0, 1)
    assert announce(made, 1, generation=1).status is Status.OK


@pytest.mark.parametrize("wrong", [{"text": "10.0.0.1:1"}, {"text": "10.0.0.1:1 fast"}, {"partition": 1}])
def test_announcements_that_cannot_be_read_are_refused(made: Store, wrong: dict[str, Any]) -> None:
    made.primaries[0] = made.primaries[wrong.get("partition", 0)]
    assert announce(made, 0, **wrong).status is Status.REFUSED


def test_sums_of_more_updates_than_workers_are_refused(made: Store) -> None:
    answer = send(made, 0, term=WORKERS)
    assert answer.status is Status.REFUSED
    assert send(made, 0, term=WORKERS - 2).status is Status.OK


def test_delays_of_a_sum_count_one_for_each_update(made: Store) -> None:
    """The first of them is committed when one other update is."""
    send(made, 0)
    send(made, 1, term=1)
    counts = made.servers[0].updates()
    assert (counts.applied, counts.total, counts.largest) == (3, 0 + 1 + 2, 2)


def test_direct_rule_has_no_arbiter() -> None:
    with store(LAYOUT, Ordered(max_delay=2, direct=True)) as made:
        made.open(WORKERS)
        assert announce(made, 0).status is Status.REFUSED


@pytest.mark.parametrize("rate", [1e6, 1e9, 1e12, 0.0])
def test_clients_go_on_at_any_rate_and_the_bound_holds(made: Store, rate: float) -> None:
    """Whatever the arbiter takes links for: each step is applied or dropped everywhere, and plink's own part counts."""
    steps, groups = 8, [LocalGroups() for _ in range(2)]

    def work(worker: int) -> None:
        client = made.client(worker, clock=1)
        client.announcer = Announcer(LAYOUT, f"10.0.0.{worker // 2}:1", rate, groups[worker // 2])
        for _ in range(steps):
            client.read("m", range(3000))
            client.update("m", range(3000), np.ones((3000, 2)))
            client.update("plink.n", range(6), np.ones((6, 1)))
            client.push(last=False)

    for server in made.servers:
        server.link_bytes_s = rate
    together(*(lambda worker=worker: work(worker) for worker in range(WORKERS)))  # type: ignore[misc]
    counts = sum((server.updates() for server in made.servers), UpdateCounts())
    assert counts.applied + counts.dropped + counts.unsent == WORKERS * steps * PARTITIONS
    assert counts.largest <= 2
    assert counts.applied
    assert (made.client(0, clock=1).read("plink.n", range(6)) == WORKERS * steps).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_workers_of_a_host_travel_as_one(made: Store, sparse: bool) -> None:
    """They wait for a grant at the same time. The sum counts as two, and each has done its step."""
    lines: list[str] = []
    for server in made.servers:
        server.note = lines.append
    announce(made, 3, text="10.0.0.3:1 1e12")  # as wide as the server's way in, which it fills
    groups, rows = LocalGroups(), [range(0, 3000, 1 + sparse), range(3000)]

    def work(worker: int) -> None:
        client = made.client(worker, clock=1)
        client.announcer = Announcer(LAYOUT, "10.0.0.9:1", 1e6, groups)
        client.read("m", rows[worker])
        client.update("m", rows[worker], np.full((len(rows[worker]), 2), 1 + worker))
        client.update("plink.n", range(6), np.ones((6, 1)))
        client.push(last=False)
        assert client.step == 1
        assert (client.read("m", [0]) == 4).all()  # with the other's update, and that of worker 3

    def release() -> None:
        wait_for(lambda: sum('"Announced"' in line for line in lines) == 3)
        send(made, 3)

    together(lambda: work(0), lambda: work(1), release)
    counts = sum((server.updates() for server in made.servers), UpdateCounts())
    assert (counts.applied, counts.dropped, counts.unsent, counts.grouped) == (2 * PARTITIONS + 1, 0, 0, 1)
    expected = np.zeros((3000, 2))
    for worker in range(2):
        expected[list(rows[worker])] += 1 + worker
    expected[0] += 1
    reader = made.client(2, clock=1)
    assert (reader.read("m", range(3000)) == expected).all()
    assert (reader.read("plink.n", range(6)) == 2).all()
    assert made.holding(0).actor(0).partition.version == 3


def test_group_that_is_too_old_for_its_last_member_is_dropped() -> None:
    """Two updates of version 0 after one other: the second has a delay of two."""
    for bound, applied in ((1, 0), (2, 2)):
        with store(LAYOUT, Ordered(max_delay=bound)) as made:
            made.open(WORKERS)
            for worker in range(WORKERS):
                made.client(worker).push()
            send(made, 0)
            send(made, 1, term=1)
            counts = made.servers[0].updates()
            assert (counts.applied, counts.dropped) == (1 + applied, 2 - applied)


def test_reads_of_a_host_are_shared_where_they_have_the_update_of_both() -> None:
    groups, began, end = LocalGroups(), threading.Event(), threading.Event()
    first, second = {0: ServerAnswer(0)}, {0: ServerAnswer(0)}

    def slow() -> dict[int, Message]:
        began.set()
        assert end.wait(HANGS_S)
        return first

    def others() -> None:
        assert began.wait(HANGS_S)
        assert groups.read("model", inf, lambda: second) is second  # its update came after that read began
        assert groups.read("other rows", 0.0, lambda: second) is second
        end.set()

    (mine, _) = together(lambda: groups.read("model", 0.0, slow), others)
    assert mine is first
    began.clear()
    end.clear()

    def shared() -> object:
        assert began.wait(HANGS_S)
        threading.Timer(0.05, end.set).start()
        return groups.read("model", 0.0, lambda: second)

    mine, shared_one = together(lambda: groups.read("model", 0.0, slow), shared)
    assert mine is shared_one is first


def test_failed_shared_read_is_repeated_by_the_other_worker() -> None:
    groups, began, end = LocalGroups(), threading.Event(), threading.Event()

    def fails() -> dict[int, Message]:
        began.set()
        assert end.wait(HANGS_S)
        raise Unanswered("as if")

    def other() -> object:
        assert began.wait(HANGS_S)
        threading.Timer(0.05, end.set).start()
        return groups.read("model", 0.0, lambda: {1: ServerAnswer(1)})

    def first() -> None:
        with pytest.raises(Unanswered):
            groups.read("model", 0.0, fails)

    assert list(together(first, other)[1]) == [1]  # type: ignore[call-overload]


def test_update_left_too_late_is_not_sent() -> None:
    """Nobody waits for a sender that has gone on."""
    groups, group = LocalGroups(), (0, 0, 1)
    groups.close(group, sent=True)
    groups.leave(group, {}, lambda: False)
    assert groups.join(group, 0) == []


class Impatient(LocalGroups):
    """The sender does not wait for who leaves an update."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def leave(self, *arguments: Any) -> float:
        assert self.over.wait(HANGS_S)
        return super().leave(*arguments)

    def join(self, group: Group, others: int) -> list[Updates]:
        return super().join(group, 0)

    def close(self, *arguments: Any) -> None:
        super().close(*arguments)
        self.over.set()


class GivenUp(LocalGroups):
    """The sender is given up when it has all updates."""

    def __init__(self) -> None:
        super().__init__()
        self.senders: list[Client] = []

    def join(self, group: Group, others: int) -> list[Updates]:
        left = super().join(group, others)
        self.senders[0].give_up()
        return left


@pytest.mark.parametrize(("kind", "sent"), [(Impatient, 1), (GivenUp, 0)])
def test_what_is_not_sent_for_others_is_counted_and_nobody_waits(
    made: Store, kind: type[LocalGroups], sent: int
) -> None:
    """Worker 0 was to send the update of worker 1, too."""
    groups, lines = kind(), list[str]()
    for server in made.servers:
        server.note = lines.append
    announce(made, 3, text="10.0.0.3:1 1e12")
    pair = [made.client(worker, clock=1) for worker in range(2)]
    if isinstance(groups, GivenUp):
        groups.senders.append(pair[0])
    for client in pair:
        client.announcer = Announcer(LAYOUT, "10.0.0.9:1", 1e6, groups)
        client.update("m", range(3000), np.ones((3000, 2)))

    def are_announced(number: int) -> bool:
        return sum('"Announced"' in line for line in lines) == number

    def first() -> None:
        try:
            pair[0].push(last=False)
        except Unanswered:
            pair[0].close()  # as whoever runs it does

    def second() -> None:
        wait_for(lambda: are_announced(2))
        begun = time.monotonic()
        pair[1].push(last=False)
        assert time.monotonic() - begun < 30.0
        assert pair[1].step == 1

    def release() -> None:
        wait_for(lambda: are_announced(3))
        send(made, 3)

    together(first, second, release)
    counts = sum((server.updates() for server in made.servers), UpdateCounts(unsent=groups.unsent))
    assert (counts.applied, counts.dropped, counts.unsent) == (sent * PARTITIONS + 1, 0, PARTITIONS)
    assert made.client(2, clock=1).read("m", [1])[0, 0] == sent


def test_partition_0_is_sent_after_all_others_whoever_serves_them() -> None:
    """Or the arbiter would take links for faster than they are, and grant the next while bytes travel."""
    with store(Layout((Table("m", 8000, 2),), 8), Ordered(max_delay=2), servers=2) as made:
        made.open(1)
        for partition in range(1, 8, 1):
            if made.primaries[partition] == made.primaries[0]:
                hand_over(made.servers[0], partition, made.servers[1].address, 1)
                made.primaries[partition] = replace(made.primaries[partition], address=made.servers[1].address, term=1)
        made.client(0).push()
        client, seen = made.client(0, clock=1), list[list[int]]()

        def note(line: str) -> None:
            if '"Arrived"' in line:
                seen.append([made.servers[1].actor(number).partition.version for number in range(1, 8)])

        made.servers[0].note = note
        client.announcer = Announcer(made.layout, "10.0.0.9:1", 1e6, LocalGroups())
        client.update("m", range(8000), np.ones((8000, 2)))
        client.push(last=False)
        assert seen == [[1] * 7]


def test_worker_that_is_given_up_waits_for_no_sender() -> None:
    groups = LocalGroups()
    groups.leave((0, 0, 1), {0: Update(0)}, lambda: True)
    assert groups.unsent == 1
    assert groups.join((0, 0, 1), 0) == []


def arbitration(lines: list[str], bound: int = 2) -> Arbitration:
    """At second 0, of a server that receives a gigabyte a second."""
    return Arbitration(bound, BYTES_S, lines.append, 0.0)


def announced(worker: int, step: int = 0, size: float = BYTES_S, version: int = 0) -> Message:
    """An announcement that takes a second."""
    return Announce(
        0, worker=worker, clock=1, step=step, size=int(size), version=version, text=f"10.0.0.{worker}:1 {BYTES_S}"
    )


def is_granted(grant: Grant | None) -> bool:
    """As a transfer that is planned."""
    return grant is not None and not (grant.unplanned or grant.dropped or grant.grouped)


def test_grant_of_a_stalled_worker_lapses_and_its_host_is_named() -> None:
    lines: list[str] = []
    made = arbitration(lines)
    assert is_granted(made.decision(announced(0), 0, 0.0))
    assert made.decision(announced(1), 0, 0.0) is None
    now = 0.0
    while (grant := made.decision(announced(1), 0, now)) is None:
        now += 0.05
        made.tick(0, now)
    assert is_granted(grant)
    assert now < 10.0
    made.tick(0, 60.0)
    assert [line for line in lines if "10.0.0.0:1" in line and not line.startswith("arbiter: ")]
    assert is_granted(made.decision(announced(0, step=1), 0, 61.0))


def test_worker_that_asks_no_more_is_not_granted() -> None:
    """It died while it waited: the link is the next one's."""
    made = arbitration([])
    made.decision(announced(0, size=10 * BYTES_S), 0, 0.0)
    made.decision(announced(1, size=100 * BYTES_S), 0, 0.0)
    for second in range(1, 10):
        made.decision(announced(2), 0, float(second))
        made.tick(0, float(second))
    assert made.arrived(announced(0), 1, 0, 10.0) == UpdateCounts(planned=1, planned_s=10.0, took_s=10.0)
    assert is_granted(made.decision(announced(2), 1, 10.0))


def test_repeated_question_has_the_same_answer() -> None:
    made = arbitration([])
    assert is_granted(made.decision(announced(0), 0, 0.0))
    assert is_granted(made.decision(announced(0), 0, 0.5))
    assert made.arrived(announced(0), 1, 0, 1.0) == UpdateCounts(planned=1, planned_s=1.0, took_s=1.0)
    assert made.arrived(announced(0), 1, 1, 1.0) is None


def test_what_was_not_waited_for_is_not_granted_later() -> None:
    made = arbitration([])
    made.decision(announced(0), 0, 0.0)
    assert made.decision(announced(1), 0, 0.0) is None
    assert made.arrived(announced(1), 1, 0, 0.1) == UpdateCounts()
    assert made.decision(announced(2), 1, 0.1) is None
    made.arrived(announced(0), 1, 1, 1.0)
    assert is_granted(made.decision(announced(2), 2, 1.0))


def test_log_is_replayed() -> None:
    lines: list[str] = []
    made, version, now, waiting = arbitration(lines), 0, 0.0, dict[int, Message]()
    for turn in range(200):
        worker, now = turn * 7 % 5, now + 0.03 * (1 + turn % 3)
        message = waiting.setdefault(worker, announced(worker, turn, (0.05 + 0.2 * (turn % 4)) * BYTES_S, version))
        grant = made.decision(message, version, now)
        if grant is not None and (grant.dropped or turn % 3):
            made.arrived(waiting.pop(worker), int(not grant.dropped), version, now)
            version += not grant.dropped
        made.tick(version, now)
    entries = list(replayed(lines))
    assert all(logged == again for logged, again in entries)
    assert any(logged["granted"] for logged, _ in entries)
    assert any(logged["dropped"] for logged, _ in entries)

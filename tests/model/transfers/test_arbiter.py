"""The arbiter: the bound holds whatever happens, nobody waits for who is gone, and a log of events can be replayed."""

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.transfer_aggregation import through
from plink.model.transfers.arbiter import (
    Announced,
    Answer,
    ArbiterState,
    Arrived,
    DropUpdate,
    Event,
    HostJoined,
    Lost,
    TickDue,
    Transfer,
    start,
    step,
)

HOSTS = 4
RATE_BYTES_S = 1e9
SIZE_BYTES = 1e8
AGGREGATORS = through(7)


@dataclass
class Server:
    """An arbiter under test, and what its server decides: versions, which updates were committed, and of each arrival
    of some whether it was. ``members``: of the latest arrival."""

    state: ArbiterState
    version: int = 0
    committed: list[Announced] = field(default_factory=list)
    verdicts: list[bool] = field(default_factory=list)
    members: tuple[Announced, ...] = ()
    log: list[tuple[Event, float]] = field(default_factory=list)
    answers: list[tuple[Answer, ...]] = field(default_factory=list)

    def send(self, event: Event, now: float) -> tuple[Answer, ...]:
        """Have the arbiter decide; of what arrives the server first."""
        if isinstance(event, Arrived):
            event = replace(event, applied=self._commit(event.transfer))
        self.log.append((event, now))
        self.state, answers = step(self.state, event, now)
        self.answers.append(answers)
        assert self.state.version == self.version
        return answers

    def _commit(self, number: int) -> int:
        """Return how many updates are applied: all of a transfer that was not given up, or none."""
        granted = (each for each in self.state.transfers if each.number == number and each.granted_s < inf)
        transfer = next(granted, None)
        self.members = transfer.members if transfer is not None and transfer.target is None else ()
        delays = [self.version + k - member.version for k, member in enumerate(self.members)]
        if self.members:
            self.verdicts.append(max(delays) <= self.state.bound)
        if not self.members or not self.verdicts[-1]:
            return 0
        assert not set(self.members) & set(self.committed)
        self.committed += self.members
        self.version += len(self.members)
        return len(self.members)


def server(bound: int = 8, rates: Iterable[float] = (RATE_BYTES_S,) * (2 * HOSTS + 1)) -> Server:
    return Server(replace(start(bound, rates), group=AGGREGATORS))


class World:
    """Two workers a host, who compute for 0.1 s and obey; links that are not shared. ``silent``: workers whose
    transfers never arrive; ``rates``: what the arbiter believes."""

    def __init__(self, bound: int = 8, silent: tuple[int, ...] = (), rates: float = RATE_BYTES_S) -> None:
        self.server = server(bound, (rates,) * (2 * HOSTS + 1))
        self.dropped, self.now, self._silent, self._count = 0, 0.0, silent, itertools.count()
        self._events: list[tuple[float, int, Event]] = []
        for worker in range(2 * HOSTS):
            self._read(worker)

    def _read(self, worker: int) -> None:
        size_bytes = SIZE_BYTES + next(self._count)  # no two announcements are equal
        announced = Announced(worker, worker // 2, size_bytes, self.server.version)
        heapq.heappush(self._events, (self.now + 0.1 * (1 + worker % 3), next(self._count), announced))

    def run(self, until_s: float) -> "World":
        """Go on until a time."""
        while self.now < until_s:
            next_s, tick_s = self._events[0][0] if self._events else inf, self.server.state.tick_s
            self.now = max(self.now, min(next_s, tick_s))
            event = TickDue() if tick_s < next_s else heapq.heappop(self._events)[2]
            for answer in self.server.send(event, self.now):
                self._obey(answer)
            for member in self.server.members if isinstance(event, Arrived) else ():
                self._read(member.worker)
        return self

    def _obey(self, answer: Answer) -> None:
        if isinstance(answer, Transfer):
            if self._silent and not answer.parts and answer.members[0].worker in self._silent:
                return
            at_s = self.now + answer.size_bytes / RATE_BYTES_S
            heapq.heappush(self._events, (at_s, next(self._count), Arrived(answer.number)))
        elif isinstance(answer, DropUpdate):
            self.dropped += 1
            if answer.worker not in self._silent:
                self._read(answer.worker)

    def commits(self, worker: int) -> int:
        """Return how many updates of a worker were committed."""
        return sum(member.worker == worker for member in self.server.committed)


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["announce", "announce", "arrive", "arrive", "lose", "tick", "stale"]),
              st.integers(0, 2 * HOSTS - 1), st.sampled_from([0.0, 0.0, 0.01, 0.1, 3.0])),
    max_size=60,
)  # fmt: skip


@given(st.sampled_from([1, 2, 5, 30]), _ACTIONS, st.sampled_from([1e5, 1e8, 3e8]))
def test_bound_holds_in_any_course(bound: int, actions: list[tuple[str, int, float]], size_bytes: float) -> None:
    """Arrivals in any order or never, twice, of transfers that lapsed; workers that die, announce anew, or have read
    long ago. The log gives the same answers again."""
    arbiter, now, seen, count = server(bound), 0.0, list[Transfer](), itertools.count()
    read = dict.fromkeys(range(2 * HOSTS), 0)
    for name, which, wait_s in actions:
        now += wait_s
        event: Event = TickDue()
        if name == "announce":
            event = Announced(which, which // 2, size_bytes + next(count), read[which])
        elif name == "arrive" and seen:
            event = Arrived(seen[which % len(seen)].number)
        elif name == "lose":
            event = Lost(which)
        elif name == "stale":
            read[which] = arbiter.version
        answers = arbiter.send(event, now)
        seen = ([*(answer for answer in answers if isinstance(answer, Transfer)), *seen])[: 2 * HOSTS]
        if name == "arrive":
            read.update({member.worker: arbiter.version for member in arbiter.members})
    again = server(bound)
    for event, at_s in arbiter.log:
        again.send(event, at_s)
    assert again.answers == arbiter.answers
    assert again.state == arbiter.state


@pytest.mark.parametrize("bound", [1, 2, 8, 30])
def test_updates_are_committed_with_any_bound(bound: int) -> None:
    """The link is used, and with a bound of as many as there are workers, nobody is left out."""
    world = World(bound).run(10.0)
    assert len(world.server.committed) >= 50
    assert bound < 2 * HOSTS or all(world.commits(worker) > 0 for worker in range(2 * HOSTS))


def test_groups_commit_more_than_the_link_carries() -> None:
    """The server's link carries ten updates a second; added up on the way, more are committed."""
    assert len(World(30).run(10.0).server.committed) > 120


@pytest.mark.parametrize("bound", [2, 5, 8])
def test_what_will_be_too_old_is_dropped_before_it_travels(bound: int) -> None:
    """Groups that are not ready are overtaken; where links do as planned, the server need not refuse anything."""
    world = World(bound).run(20.0)
    assert world.dropped > 0
    assert all(world.server.verdicts)


@pytest.mark.parametrize("silent", [(0,), (0, 1), (3, 6)])
def test_nobody_waits_for_workers_that_die_while_they_send(silent: tuple[int, ...]) -> None:
    """Their grants lapse; the others go on, all of them."""
    world = World(8, silent).run(15.0)
    assert all(world.commits(worker) == 0 for worker in silent)
    others = [worker for worker in range(2 * HOSTS) if worker not in silent]
    assert all(world.commits(worker) >= 5 for worker in others)


def test_grant_lapses() -> None:
    """After three times its estimate, two seconds at least; what arrives later is refused."""
    arbiter = server()
    (grant,) = arbiter.send(Announced(0, 0, SIZE_BYTES, 0), 0.0)
    assert isinstance(grant, Transfer)
    assert arbiter.state.tick_s == pytest.approx(2.0)
    assert arbiter.send(TickDue(), 1.9) == ()
    assert arbiter.send(TickDue(), 2.0) == (DropUpdate(0),)
    assert arbiter.send(Arrived(grant.number), 2.5) == ()
    (long_grant,) = arbiter.send(Announced(0, 0, 20 * SIZE_BYTES, 0), 3.0)
    assert isinstance(long_grant, Transfer)
    assert arbiter.state.tick_s == pytest.approx(9.0)


@pytest.mark.parametrize("rates", [10 * RATE_BYTES_S, RATE_BYTES_S / 10, 0.0, nan])
def test_wrong_rates_are_corrected_by_transfers(rates: float) -> None:
    """Committed updates come to at least half of what right rates give."""
    right, wrong = World(8).run(10.0), World(8, rates=rates).run(10.0)
    assert len(wrong.server.committed) >= 0.5 * len(right.server.committed)


def test_bound_of_one_version() -> None:
    """Of updates of one version, one may follow the first; the others are dropped before they travel."""
    arbiter = server(1)
    for worker in (0, 2, 4, 6):
        arbiter.send(Announced(worker, worker // 2, SIZE_BYTES, 0), 0.0)
    flat = list(itertools.chain.from_iterable(arbiter.answers))
    assert sum(isinstance(answer, DropUpdate) for answer in flat) == 2


@pytest.mark.parametrize("clock", [0, 1])
def test_workers_of_a_host_travel_as_one(clock: int) -> None:
    """If they are at the same clock: else one might be undone without the other."""
    arbiter = server()
    arbiter.state = replace(arbiter.state, group=None)
    (first,) = arbiter.send(Announced(7, 3, 3 * SIZE_BYTES, 0), 0.0)
    assert isinstance(first, Transfer)
    for worker in (0, 1):
        arbiter.send(Announced(worker, 0, SIZE_BYTES, 0, worker * clock), 0.01)
    (grant,) = arbiter.send(Arrived(first.number), 0.3)
    assert isinstance(grant, Transfer)
    assert {member.worker for member in grant.members} == ({0} if clock else {0, 1})
    assert grant.size_bytes == SIZE_BYTES


def test_next_is_granted_before_the_last_byte_of_the_one_before() -> None:
    arbiter = server()
    arbiter.send(Announced(0, 0, SIZE_BYTES, 0), 0.0)
    assert arbiter.send(Announced(2, 1, SIZE_BYTES, 0), 0.0) == ()
    assert 0.09 < arbiter.state.tick_s < 0.1
    assert [type(answer) for answer in arbiter.send(TickDue(), arbiter.state.tick_s)] == [Transfer]


def test_short_transfers_are_granted_at_once() -> None:
    """Below 5 ms nothing is planned, and the bound holds all the same."""
    arbiter, grants = server(2), []
    for worker in range(2 * HOSTS):
        (grant,) = arbiter.send(Announced(worker, worker // 2, 1e6, 0), 0.0)
        assert isinstance(grant, Transfer)
        grants.append(grant)
    for grant in grants:
        arbiter.send(Arrived(grant.number), 1.0)
    assert arbiter.verdicts == [True] * 3 + [False] * 5


@pytest.mark.parametrize("lost", [0, 1])
def test_partner_of_a_lost_worker_is_still_sent(lost: int) -> None:
    """Both were to travel as one, and were not granted yet."""
    arbiter = server()
    arbiter.send(Announced(7, 3, 2 * SIZE_BYTES, 0), 0.0)
    for worker in range(2):
        assert arbiter.send(Announced(worker, 0, SIZE_BYTES, 0), 0.0) == ()
    arbiter.send(TickDue(), arbiter.state.tick_s)
    assert [transfer.members for transfer in arbiter.state.transfers if len(transfer.members) == 2]
    answers, now = list(arbiter.send(Lost(lost), 0.15)), 0.15
    while now < 1.0:
        now += 0.01
        answers += arbiter.send(TickDue(), now)
    assert DropUpdate(1 - lost) not in answers
    granted = [member.worker for answer in answers if isinstance(answer, Transfer) for member in answer.members]
    assert 1 - lost in granted
    assert lost not in granted


def committed_of(bound: int, versions: dict[int, list[int]], local_groups: bool) -> int:
    """How many updates are committed of those that wait behind another transfer when the server is at version 5, by
    host and version."""
    state = replace(start(bound, (RATE_BYTES_S,) * (2 * HOSTS + 1)), local_groups=local_groups, version=5)
    arbiter, workers, under_way = Server(state, version=5), itertools.count(), list[Transfer]()

    def send(event: Event, now: float) -> None:
        under_way.extend(answer for answer in arbiter.send(event, now) if isinstance(answer, Transfer))
        under_way.sort(key=lambda each: each.end_s)

    send(Announced(99, HOSTS - 1, 4 * SIZE_BYTES, 5), 0.0)
    for host, each in versions.items():
        for version in each:
            send(Announced(next(workers), host, SIZE_BYTES, version), 0.001)
    while under_way:
        if arbiter.state.tick_s < under_way[0].end_s:
            send(TickDue(), arbiter.state.tick_s)
        else:
            arrives = under_way.pop(0)
            send(Arrived(arrives.number), arrives.end_s)
            oldest = min(member.version for member in arbiter.members)
            assert arbiter.version - 1 - oldest <= bound  # as real servers judge a sum
    assert not arbiter.state.waiting
    assert all(arbiter.verdicts)
    return len(arbiter.committed)


@pytest.mark.parametrize(
    ("bound", "versions"),
    [
        (7, {0: [5] * 8}),
        (6, {0: [5] * 8}),
        (2, {0: [5] * 4}),
        (6, {0: [5] * 4, 1: [5] * 4}),  # one of them has to leave out some
        (5, {0: [1, 5, 5]}),  # the old one has to come first, and would make the others too old
        (5, {0: [2, 5], 1: [2, 5]}),
    ],
)  # fmt: skip
def test_groups_lose_no_update_that_would_be_in_time_alone(bound: int, versions: dict[int, list[int]]) -> None:
    alone = committed_of(bound, versions, local_groups=False)
    assert committed_of(bound, versions, local_groups=True) >= alone > 1


def test_what_is_announced_anew_replaces_what_was_announced_before() -> None:
    """As after a failure of the server: the grant before is void, the answer is to the announcement after."""
    arbiter = server()
    (grant,) = arbiter.send(Announced(0, 0, SIZE_BYTES, 0), 0.0)
    (again,) = arbiter.send(Announced(0, 0, 2 * SIZE_BYTES, 0), 0.1)
    assert isinstance(grant, Transfer)
    assert isinstance(again, Transfer)
    assert again.size_bytes == 2 * SIZE_BYTES
    assert arbiter.send(Arrived(grant.number), 0.2) == ()


def test_update_of_a_course_that_was_rolled_back_is_dropped() -> None:
    """Its version is unknown to an arbiter that was started anew."""
    assert server().send(Announced(0, 0, SIZE_BYTES, 17), 0.0) == (DropUpdate(0),)


def test_hosts_join_one_after_the_other() -> None:
    """What is known of hosts that are there stays theirs."""
    arbiter = server(rates=(RATE_BYTES_S,))
    for host, share in enumerate((1.0, 0.5)):
        arbiter.send(HostJoined(share * RATE_BYTES_S), 0.0)
        (grant,) = arbiter.send(Announced(host, host, SIZE_BYTES, 0), 10.0 * host)
        assert isinstance(grant, Transfer)
        assert grant.end_s - grant.granted_s == pytest.approx(SIZE_BYTES / RATE_BYTES_S / share)
        arbiter.send(Arrived(grant.number), grant.end_s)


def test_planning_begins_where_many_short_transfers_take_long() -> None:
    """The server's way in was taken for a hundred times as wide as it is."""
    arbiter = server(rates=(RATE_BYTES_S,) * (2 * HOSTS + 1))
    size_bytes, now = 1e6, 0.0
    for turn in range(4):
        now = 3.0 * turn
        answers = [arbiter.send(Announced(w, w // 2, size_bytes, arbiter.version), now) for w in range(2 * HOSTS)]
        grants = [answer for some in answers for answer in some if isinstance(answer, Transfer)]
        for grant in grants:
            arbiter.send(Arrived(grant.number), now + len(grants) * size_bytes / (RATE_BYTES_S / 100))
    assert len(grants) < 2 * HOSTS

"""Errands side by side over a fleet that is not there: who may run with whom, and what becomes of them in trouble."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.conductor import Command, Errand, ErrandFailed, Steps
from tests.probes.fake_fleet import FakeFleet, conductor_of

PAIRS = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True).map(tuple), max_size=12),
    )
)


class Log:
    """Errands that do ``steps`` steps on all of their hosts, and when each was at it."""

    def __init__(self, fleet: FakeFleet, steps: int = 2) -> None:
        self.fleet, self.steps = fleet, steps
        self.spans: list[tuple[tuple[int, ...], float, float]] = []
        self.said: list[str] = []

    def errand(self, hosts: tuple[int, ...]) -> Errand:
        """One of them."""
        return Errand(hosts, self._steps(hosts), lambda why: self.said.append(f"unstarted {hosts}: {why}"))

    def _steps(self, hosts: tuple[int, ...]) -> Steps:
        began = self.fleet.now
        try:
            for step in range(self.steps):
                answers = yield [Command(host, {"method": "work", "step": step, "of": host}, 5.0) for host in hosts]
                assert [answer["of"] for answer in answers] == list(hosts)
            self.said.append(f"done {hosts}")
        except ErrandFailed as error:
            self.said.append(f"failed {hosts}: {error}")
        self.spans.append((hosts, began, self.fleet.now))

    def most_at_once(self, members: set[int]) -> int:
        """The largest number of errands that touched these hosts at one time."""
        mine = [(began, ended) for hosts, began, ended in self.spans if members & set(hosts)]
        return max((sum(b <= began < e for b, e in mine) for began, _ in mine), default=0)


def working(speeds: list[float] | None = None) -> FakeFleet:
    """Agents that take their time, each its own."""
    return FakeFleet(
        lambda host, body: (speeds[int(host[1:]) % len(speeds)] if speeds else 1.0, {"of": body["of"]}),
    )


@given(PAIRS, st.lists(st.floats(0.1, 4.0), min_size=1, max_size=5))
def test_no_host_is_in_two_errands_at_once(drawn: tuple[int, list[tuple[int, ...]]], speeds: list[float]) -> None:
    n, hosts = drawn
    fleet = working(speeds)
    log, counted = Log(fleet), list[int]()
    conductor_of(fleet, n).run([log.errand(each) for each in hosts], lambda: counted.append(1))
    assert sorted(log.said) == sorted(f"done {each}" for each in hosts)
    assert len(counted) == len(hosts)
    for host in range(n):
        assert log.most_at_once({host}) <= 1


@given(PAIRS, st.integers(1, 9), st.integers(1, 3))
def test_hosts_of_one_kernel_share_its_cores(
    drawn: tuple[int, list[tuple[int, ...]]], cores: int, kernels: int
) -> None:
    """Two processes are busy in a pair, so half as many pairs as cores; and each gets its turn."""
    n, hosts = drawn
    fleet = working([1.0, 0.5])
    conductor, log = conductor_of(fleet, n), Log(fleet)
    for host in range(n):
        conductor.settle(host, f"kernel-{host % kernels}", cores)
    conductor.run([log.errand(each) for each in hosts])
    assert len(log.said) == len(hosts)
    for kernel in range(kernels):
        members = {host for host in range(n) if host % kernels == kernel}
        assert log.most_at_once(members) <= (max(1, cores // 2) if len(members) > 1 else 1)


def test_pairs_of_different_machines_run_side_by_side() -> None:
    fleet = working()
    log = Log(fleet, steps=1)
    conductor_of(fleet, 8).run([log.errand((i, i + 1)) for i in range(0, 8, 2)])
    assert fleet.now == 1.0


def test_an_agent_that_never_answers_fails_its_errand_alone() -> None:
    fleet = FakeFleet(lambda host, body: None if host == "h0" else (1.0, {"of": body["of"]}))
    log = Log(fleet)
    conductor_of(fleet, 4).run([log.errand((0, 1)), log.errand((2, 3))])
    assert log.said == ["done (2, 3)", "failed (0, 1): no answer in time from the agents of h0 and h1"]
    assert fleet.now == 5.0


def test_an_answer_that_comes_too_late_belongs_to_nothing() -> None:
    """It comes while another errand of the same hosts waits for its own."""
    delays = iter([7.0, 1.0, 4.0, 4.0])
    fleet = FakeFleet(lambda host, body: (next(delays), {"of": body["of"]}))
    log = Log(fleet, steps=1)
    conductor_of(fleet, 2).run([log.errand((0, 1)), log.errand((1, 0))])
    assert log.said == ["failed (0, 1): no answer in time from the agents of h0 and h1", "done (1, 0)"]


def test_a_lost_agent_fails_its_errand_and_those_to_come() -> None:
    fleet = working()
    fleet.lose("h0", 0.5, "signal 9")
    log, counted = Log(fleet), list[int]()
    conductor = conductor_of(fleet, 4)
    conductor.run([log.errand(hosts) for hosts in ((0, 1), (2, 3), (0, 2), (1, 3))], lambda: counted.append(1))
    assert sorted(log.said) == [
        "done (1, 3)",
        "done (2, 3)",
        "failed (0, 1): h0: its agent is gone: signal 9",
        "unstarted (0, 2): h0: its agent is gone: signal 9",
    ]
    assert len(counted) == 4
    assert conductor.gone == {0: "its agent is gone: signal 9"}


def test_errands_on_hosts_that_are_gone_are_told_so_and_never_begin() -> None:
    fleet = working()
    conductor, log = conductor_of(fleet, 3), Log(fleet)
    conductor.lose(2, "SSH connection refused")
    conductor.lose(2, "what came later does not count")
    conductor.run([log.errand((0, 2)), log.errand((0, 1))])
    assert log.said == ["unstarted (0, 2): h2: SSH connection refused", "done (0, 1)"]
    assert "h2" not in {host for _, host, _ in fleet.sent}


@pytest.mark.parametrize("gone", [0, 1])
def test_an_errand_that_goes_on_without_one_of_its_hosts_fails_at_once(gone: int) -> None:
    """Each direction of a bandwidth test is a step: the second need not wait for a host that is known to be gone."""
    fleet = working()
    conductor = conductor_of(fleet, 2)
    said: list[str] = []

    def both_ways() -> Steps:
        for host in (0, 1, 0):
            try:
                yield [Command(host, {"method": "work", "of": host}, 60.0)]
                said.append(f"h{host} answered")
            except ErrandFailed as error:
                said.append(str(error))

    fleet.lose(f"h{gone}", 0.0)
    conductor.run([Errand((0, 1), both_ways())])
    assert fleet.now <= 2.0
    assert set(said) >= {f"h{gone}: its agent is gone: killed", f"h{1 - gone} answered"}

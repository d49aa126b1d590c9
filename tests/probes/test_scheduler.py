"""Scheduling of probe tasks on a fake fleet: which run side by side, and what happens when agents fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.network_file import PairError
from probes.host_flows import FlowSettings, exchange_flows
from probes.scheduler import AgentRequest, ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession
from tests.probes.fake_fleet import FakeFleet, scheduler_of, session_of

PAIRS = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True).map(tuple), max_size=12),
    )
)


class EventLog:
    """Tasks with ``batches`` request batches on all of their hosts, and when each ran."""

    def __init__(self, fleet: FakeFleet, batches: int = 2) -> None:
        self.fleet, self.batches = fleet, batches
        self.spans: list[tuple[tuple[int, ...], float, float]] = []
        self.events: list[str] = []

    def task(self, hosts: tuple[int, ...]) -> ProbeTask:
        """One of them."""
        return ProbeTask(hosts, self._batches(hosts), lambda reason: self.events.append(f"skipped {hosts}: {reason}"))

    def _batches(self, hosts: tuple[int, ...]) -> RequestBatches:
        began = self.fleet.now
        try:
            for batch in range(self.batches):
                answers = yield [
                    AgentRequest(host, {"method": "work", "step": batch, "of": host}, 5.0) for host in hosts
                ]
                assert [answer["of"] for answer in answers] == list(hosts)
            self.events.append(f"done {hosts}")
        except TaskFailed as error:
            self.events.append(f"failed {hosts}: {error}")
        self.spans.append((hosts, began, self.fleet.now))

    def most_at_once(self, members: set[int]) -> int:
        """The largest number of tasks that touched these hosts at one time."""
        spans = [(began, ended) for hosts, began, ended in self.spans if members & set(hosts)]
        return max((sum(b <= began < e for b, e in spans) for began, _ in spans), default=0)


def working(speeds: list[float] | None = None) -> FakeFleet:
    """Agents that take their time, each its own."""
    return FakeFleet(
        lambda host, body: (speeds[int(host[1:]) % len(speeds)] if speeds else 1.0, {"of": body["of"]}),
    )


@given(PAIRS, st.lists(st.floats(0.1, 4.0), min_size=1, max_size=5))
def test_no_host_is_in_two_tasks_at_once(drawn: tuple[int, list[tuple[int, ...]]], speeds: list[float]) -> None:
    n, hosts = drawn
    fleet = working(speeds)
    log, counted = EventLog(fleet), list[int]()
    scheduler_of(fleet, n).run([log.task(each) for each in hosts], lambda: counted.append(1))
    assert sorted(log.events) == sorted(f"done {each}" for each in hosts)
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
    scheduler, log = scheduler_of(fleet, n), EventLog(fleet)
    for host in range(n):
        scheduler.set_machine(host, f"kernel-{host % kernels}", cores)
    scheduler.run([log.task(each) for each in hosts])
    assert len(log.events) == len(hosts)
    for kernel in range(kernels):
        members = {host for host in range(n) if host % kernels == kernel}
        assert log.most_at_once(members) <= (max(1, cores // 2) if len(members) > 1 else 1)


def test_pairs_of_different_machines_run_side_by_side() -> None:
    fleet = working()
    log = EventLog(fleet, batches=1)
    scheduler_of(fleet, 8).run([log.task((i, i + 1)) for i in range(0, 8, 2)])
    assert fleet.now == 1.0


def test_silent_agent_fails_its_task_alone() -> None:
    fleet = FakeFleet(lambda host, body: None if host == "h0" else (1.0, {"of": body["of"]}))
    log = EventLog(fleet)
    scheduler_of(fleet, 4).run([log.task((0, 1)), log.task((2, 3))])
    assert log.events == ["done (2, 3)", "failed (0, 1): no answer in time from the agents of h0 and h1"]
    assert fleet.now == 5.0


@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_no_task_outlasts_a_limit(limit: float) -> None:
    """Whatever does not answer: what runs then fails, what waits is not tried."""
    fleet = FakeFleet(lambda host, body: None if host == "h0" else (1.0, {"of": body["of"]}))
    log, scheduler = EventLog(fleet), scheduler_of(fleet, 3)
    scheduler.stop_at = lambda: limit
    scheduler.run([log.task((0, 1)), log.task((1, 2))])
    assert [event.partition(" (")[0] for event in log.events] == (["failed", "skipped"] if limit else ["skipped"] * 2)
    assert all("the time was over" in event for event in log.events)
    assert fleet.now == limit


def test_late_answer_is_ignored() -> None:
    """It comes while another task of the same hosts waits for its own."""
    delays = iter([7.0, 1.0, 4.0, 4.0])
    fleet = FakeFleet(lambda host, body: (next(delays), {"of": body["of"]}))
    log = EventLog(fleet, batches=1)
    scheduler_of(fleet, 2).run([log.task((0, 1)), log.task((1, 0))])
    assert log.events == ["failed (0, 1): no answer in time from the agents of h0 and h1", "done (1, 0)"]


def test_lost_agent_fails_its_task_and_later_ones() -> None:
    fleet = working()
    fleet.lose("h0", 0.5, "signal 9")
    log, counted = EventLog(fleet), list[int]()
    scheduler = scheduler_of(fleet, 4)
    scheduler.run([log.task(hosts) for hosts in ((0, 1), (2, 3), (0, 2), (1, 3))], lambda: counted.append(1))
    assert sorted(log.events) == [
        "done (1, 3)",
        "done (2, 3)",
        "failed (0, 1): h0: its agent is gone: signal 9",
        "skipped (0, 2): h0: its agent is gone: signal 9",
    ]
    assert len(counted) == 4
    assert scheduler.lost_hosts == {0: "its agent is gone: signal 9"}


def test_tasks_on_lost_hosts_are_skipped() -> None:
    fleet = working()
    scheduler, log = scheduler_of(fleet, 3), EventLog(fleet)
    scheduler.mark_lost(2, "SSH connection refused")
    scheduler.mark_lost(2, "what came later does not count")
    scheduler.run([log.task((0, 2)), log.task((0, 1))])
    assert log.events == ["skipped (0, 2): h2: SSH connection refused", "done (0, 1)"]
    assert "h2" not in {host for _, host, _ in fleet.sent}


@pytest.mark.parametrize("gone", [0, 1])
def test_task_that_uses_a_lost_host_fails_at_once(gone: int) -> None:
    """Each direction of a bandwidth test is a step: the second need not wait for a host that is known to be gone."""
    fleet = working()
    scheduler = scheduler_of(fleet, 2)
    events: list[str] = []

    def both_ways() -> RequestBatches:
        for host in (0, 1, 0):
            try:
                yield [AgentRequest(host, {"method": "work", "of": host}, 60.0)]
                events.append(f"h{host} answered")
            except TaskFailed as error:
                events.append(str(error))

    fleet.lose(f"h{gone}", 0.0)
    scheduler.run([ProbeTask((0, 1), both_ways())])
    assert fleet.now <= 2.0
    assert set(events) >= {f"h{gone}: its agent is gone: killed", f"h{1 - gone} answered"}


def test_agents_that_are_lost_or_silent_at_the_end_are_recorded() -> None:
    fleet = FakeFleet(lambda host, body: (0.01, {}) if host != "h1" else None)
    session = session_of(fleet, 4)
    ProbeSession.check_agents(session)
    assert list(session.measurements.details.lost_hosts or ()) == ["h1"]
    fleet.lose("h3", 0.0)
    ProbeSession.check_agents(session)
    assert list(session.measurements.details.lost_hosts or ()) == ["h1", "h3"]


def test_agents_that_answer_to_the_end_are_not_lost() -> None:
    session = session_of(FakeFleet(lambda host, body: (0.01, {})), 4)
    ProbeSession.check_agents(session)
    assert session.measurements.details.lost_hosts == {}


def test_an_agent_s_words_about_another_host_lose_nobody() -> None:
    """For round trips, and for flows."""
    text = {"error": "h2: its agent is gone"}
    answers = {"flow_listen": {"port": 5000}}
    session = session_of(FakeFleet(lambda host, body: (0.01, answers.get(body["method"], text))), 3)
    ProbeSession.measure(session, [(0, 2)], "tcp", lambda: None)
    errors = dict[tuple[int, int], str]()
    exchange_flows(session, [(1, 2)], FlowSettings(), errors)
    names = session.measurements.hosts.names
    rows = [PairError(source=names[a], target=names[b], reason=reason) for (a, b), reason in errors.items()]
    session.measurements.add(host_flow_errors=rows)
    network = session.measurements.network()
    assert (len(network.errors), len(rows)) == (2, 2)
    assert network.lost_hosts == {}

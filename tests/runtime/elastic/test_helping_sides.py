"""The two sides of helping, message by message."""

import pytest

from plink.elastic import Rebalance
from plink.errors import ProtocolError
from plink.runtime.elastic.helping import messages as m
from plink.runtime.elastic.helping.host_rebalancing import helpees, helper_groups
from plink.runtime.elastic.helping.sides import Helpee, Helper
from plink.runtime.elastic.worker.clock_work import Grain
from tests.runtime.elastic.simulated_helping import Queue

ME, OTHER, THIRD = 0, 1, 2
REPORT = m.ProgressReport(OTHER, 0, 5, 0.75)


def begun(grains: int = 40, clock: int = 5) -> tuple[Helpee, Queue]:
    """A worker at a clock whose grains took a hundredth of a second each."""
    helpee, queue = Helpee(ME, Rebalance()), Queue([Grain(0, number) for number in range(grains)])
    helpee.begin(queue, clock, 0, clock - 1)
    helpee.worked(0.01)
    return helpee, queue


def requested(helpee: Helpee, now_s: float = 0.0, report: m.ProgressReport = REPORT) -> m.HelpRequest:
    """The first request, to one who is ahead."""
    helpee.received(report, now_s)
    ((receiver, message),) = helpee.check(now_s)
    assert receiver == report.sender
    assert isinstance(message, m.HelpRequest)
    return message


def completed(message: m.HelpRequest, count: int | None = None) -> m.HelpCompleted:
    return m.HelpCompleted(OTHER, message.id, message.generation, message.clock, message.grains[:count])


def test_first_request_is_small_and_from_the_back() -> None:
    """A fortieth of 40 grains, then a twentieth each time that the helper begins."""
    helpee, queue = begun()
    message = requested(helpee)
    assert message == m.HelpRequest(ME, message.id, 0, 5, 4, ((0, 39),))
    ((_, more),) = helpee.received(m.HelpBegun(OTHER, message.id), 0.1)
    assert isinstance(more, m.HelpRequest)
    assert more.grains == ((0, 37), (0, 38))
    assert len(queue) == 37
    assert helpee.check(0.1) == []  # it helps already


@pytest.mark.parametrize(
    ("done", "clock", "generation", "helps"),
    [(0.75, 5, 0, True), (0.5, 5, 0, False), (0.75, 4, 0, False), (0.75, 5, 1, False), (0.1, 6, 0, True)],
)
def test_helper_is_a_fifth_of_a_clock_ahead(done: float, clock: int, generation: int, helps: bool) -> None:
    helpee, queue = begun()
    del queue.grains[:14]  # 35 % are done
    helpee.received(m.ProgressReport(OTHER, generation, clock, done), 0.0)
    assert bool(helpee.check(0.0)) == helps


def uneven(expensive: range) -> tuple[Helpee, Queue]:
    """A worker with 40 grains, of which some cost 10 and the others 1."""
    helpee = Helpee(ME, Rebalance())
    queue = Queue([Grain(0, number) for number in range(40)], lambda grain: 10.0 if grain.number in expensive else 1.0)
    helpee.begin(queue, 5, 0, 4)
    return helpee, queue


@pytest.mark.parametrize(
    ("expensive", "initial", "follow_up"), [(range(10), (37, 38, 39), 7), (range(30, 40), (39,), 1)]
)
def test_requests_go_by_the_cost_of_grains(expensive: range, initial: tuple[int, ...], follow_up: int) -> None:
    """Of 130 in all: a fortieth, then a twentieth, but one grain at least."""
    helpee, _ = uneven(expensive)
    message = requested(helpee)
    assert message.grains == tuple((0, number) for number in initial)
    ((_, more),) = helpee.received(m.HelpBegun(OTHER, message.id), 0.1)
    assert isinstance(more, m.HelpRequest)
    assert len(more.grains) == follow_up


def test_time_allowed_for_a_result_goes_by_the_cost_of_grains() -> None:
    """A grain of cost 1 took 0.1 s, one of cost 10 is expected to take 1 s, and may take twice as long."""
    helpee, queue = uneven(range(30, 40))
    helpee.worked(0.1, 1.0)
    message = requested(helpee)
    queue.grains.clear()
    helpee.received(m.HelpBegun(OTHER, message.id), 0.0)
    assert helpee.wait(1.9)[1] == pytest.approx(0.1)
    assert helpee.waits
    helpee.wait(2.1)
    assert not helpee.waits
    assert queue.grains == [Grain(0, 39)]


def test_result_counts_once_and_late_ones_do_not() -> None:
    helpee, queue = begun()
    message = requested(helpee)
    counts, ((_, message_2),) = helpee.accept(completed(message), 0.1)
    assert counts
    assert not helpee.accept(completed(message), 0.2)[0]
    assert isinstance(message_2, m.HelpRequest)
    message = message_2
    helpee.lost(OTHER)
    assert not helpee.accept(completed(message), 0.3)[0]
    assert Grain(*message.grains[0]) in queue.grains


def test_results_for_an_earlier_worker_of_the_number_do_not_count() -> None:
    """It ended at clock 5 and started again at clock 7; its helper does not know, and does the earlier request."""
    earlier, later = begun()[0], begun(clock=7)[0]
    report = m.ProgressReport(OTHER, 0, 8, 0.75)
    stale, current = requested(earlier, report=report), requested(later, report=report)
    assert not later.accept(completed(stale), 0.1)[0]
    assert later.accept(completed(current), 0.2)[0]


@pytest.mark.parametrize(("generation", "clock"), [(0, 4), (1, 5)])
def test_results_of_another_clock_or_generation_do_not_count(generation: int, clock: int) -> None:
    helpee, _ = begun()
    message = requested(helpee)
    assert not helpee.accept(m.HelpCompleted(OTHER, message.id, generation, clock, message.grains), 0.1)[0]
    assert not helpee.counts(OTHER, message.id, (clock, generation))
    assert helpee.accept(completed(message), 0.2)[0]


def test_another_worker_cannot_answer_a_request() -> None:
    helpee, queue = begun()
    message = requested(helpee)
    assert not helpee.accept(m.HelpCompleted(THIRD, message.id, 0, 5, message.grains), 0.1)[0]
    helpee.received(m.HelpRefused(THIRD, message.id), 0.1)
    assert helpee.expects(OTHER, message.id)
    assert len(queue) == 39


def test_result_with_other_grains_does_not_count() -> None:
    helpee, queue = begun()
    message = requested(helpee)
    assert not helpee.accept(m.HelpCompleted(OTHER, message.id, 0, 5, ((0, 3),)), 0.1)[0]
    assert len(queue) == 40


def test_unstarted_work_is_taken_back_and_started_work_divided() -> None:
    helpee, queue = begun()
    first = requested(helpee)
    ((_, second),) = helpee.received(m.HelpBegun(OTHER, first.id), 0.0)
    assert isinstance(second, m.HelpRequest)
    helpee.accept(completed(first), 0.1)
    ((_, third),) = helpee.received(m.HelpBegun(OTHER, second.id), 0.1)
    queue.grains.clear()
    messages, _ = helpee.wait(0.1)
    assert (OTHER, m.HelpCancelled(ME, third.id)) in messages
    assert len(queue) == 2
    queue.grains.clear()
    messages, wait_s = helpee.wait(0.1)
    assert messages == [(OTHER, m.ReturnRequest(ME, second.id))]
    assert wait_s > 0
    helpee.received(m.HelpReturned(OTHER, second.id, second.grains[1:]), 0.2)
    assert queue.grains == [Grain(*second.grains[1])]
    assert helpee.accept(completed(second, 1), 0.3)[0]
    assert not helpee.waits


def test_silent_helper_is_dropped_after_half_a_second() -> None:
    helpee, queue = begun()
    message = requested(helpee)
    helpee.received(m.HelpBegun(OTHER, message.id), 0.0)
    queue.grains.clear()
    helpee.lost(THIRD)
    assert helpee.wait(0.4)[1] == pytest.approx(0.1)
    assert (OTHER, m.HelpCancelled(ME, message.id)) in helpee.wait(0.51)[0]
    assert Grain(*message.grains[0]) in queue.grains
    assert not helpee.accept(completed(message), 0.6)[0]


def test_helper_helps_earlier_clocks_at_once_and_its_own_clock_later() -> None:
    helper = Helper(OTHER, lambda shards: True)
    helper.at(6, 0, finished=False)
    assert helper.received(m.HelpRequest(ME, 1, 0, 6, 5, ((0, 1),))) == []
    assert not helper.can_begin
    helper.received(m.HelpRequest(THIRD, 1, 0, 5, 4, ((2, 1),)))
    session, messages = helper.begin_next()
    assert session is not None
    assert messages == [(THIRD, m.HelpBegun(OTHER, 1))]
    assert session.next() == Grain(2, 1)
    assert session.next() is None
    assert helper.end(session, ((1.5, 2.0),)) == [(THIRD, m.HelpCompleted(OTHER, 1, 0, 5, ((2, 1),), ((1.5, 2.0),)))]
    assert not helper.can_begin
    helper.at(6, 0, finished=True)
    assert helper.can_begin


@pytest.mark.parametrize(("clock", "generation"), [(7, 0), (6, 1)])
def test_later_clocks_and_other_generations_are_refused(clock: int, generation: int) -> None:
    helper = Helper(OTHER, lambda shards: True)
    helper.at(6, 0, finished=True)
    message = m.HelpRequest(ME, 1, generation, clock, 5, ((0, 1),))
    assert helper.received(message) == [(ME, m.HelpRefused(OTHER, 1))]


def test_help_is_refused_without_data_or_after_a_roll_back() -> None:
    helper = Helper(OTHER, lambda shards: 0 not in shards)
    helper.at(6, 0, finished=True)
    helper.received(m.HelpRequest(ME, 1, 0, 6, 5, ((0, 1),)))
    helper.received(m.HelpRequest(THIRD, 1, 0, 6, 5, ((2, 1),)))
    session, messages = helper.begin_next()
    assert session is not None
    assert session.request.sender == THIRD
    assert messages[0] == (ME, m.HelpRefused(OTHER, 1))
    helper.received(m.HelpRequest(ME, 2, 0, 6, 5, ((2, 1),)))
    helper.at(3, 1, finished=False)
    assert helper.begin_next() == (None, [(ME, m.HelpRefused(OTHER, 2))])


def test_cancelled_request_ends_without_a_result() -> None:
    helper = Helper(OTHER, lambda shards: True)
    helper.at(6, 0, finished=True)
    for number in (1, 2):
        helper.received(m.HelpRequest(ME, number, 0, 6, 5, ((0, 1), (0, 2), (0, 3))))
    session, _ = helper.begin_next()
    assert session is not None
    session.next()
    assert helper.received(m.ReturnRequest(ME, 1)) == [(ME, m.HelpReturned(OTHER, 1, ((0, 3),)))]
    for number in (2, 1):
        helper.received(m.HelpCancelled(ME, number))
    assert session.next() is None
    assert helper.end(session, ()) == []
    assert not helper.can_begin


@pytest.mark.parametrize("size", [1, 4, 20])
def test_groups_mix_hosts_and_agree_on_all_workers(size: int) -> None:
    """Sixteen workers on eight hosts."""
    hosts = {worker: worker % 8 for worker in range(16)}
    groups = helper_groups(hosts, size)
    assert groups == helper_groups(dict(reversed(hosts.items())), size)
    for worker, helpers in groups.items():
        assert len(helpers) == len(set(helpers)) == min(size, 15)
        assert worker not in helpers
        if size == 4:
            assert sorted(hosts[each] == hosts[worker] for each in helpers) == [False, False, False, True]
            assert len({hosts[each] for each in helpers}) == 4
        assert all(worker in helpees(groups, helper) for helper in helpers)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"type": "begun"}', '{"type": "begun", "sender": -1, "id": 0}', '{"type": "x\x01", "sender": 1}',
     '{"type": "report", "sender": 1, "generation": 0, "clock": 1, "done": 7}',
     '{"type": "report", "sender": 1, "generation": 0, "clock": 1, "done": NaN}',
     '{"type": "completed", "sender": 1, "id": 0, "generation": 0, "clock": 1, "grains": [[1, 2]], '
     '"scores": [[1e999, 1]]}',
     '{"type": "begun", "sender": 1, "id": 0, "more": 1}', "[" * 100_000],
)  # fmt: skip
def test_invalid_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"^a message of a helper: [ -~]+$"):
        m.decode(text)

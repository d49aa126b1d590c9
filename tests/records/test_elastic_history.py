"""What the log of an elastic run amounts to."""

from msgspec.structs import replace

from plink.model.elastic.fields import UpdateCounts
from plink.records.elastic_history import history_of
from plink.records.elastic_log import (
    ControllerEvent,
    EndLogEntry,
    HostEvent,
    Iteration,
    ObjectiveLogEntry,
    RollBackLogEntry,
    StageChange,
    TrafficLogEntry,
)


def done(number: int, at: float, clock: int | None = None) -> Iteration:
    return Iteration(at, number, 1.0, 1, 2, number if clock is None else clock)


def host(at: float, name: str, number: int, event: str) -> HostEvent:
    return HostEvent(at, name, number, "transient", 1, event, 0.5)  # type: ignore[arg-type]


def test_iterations_after_a_roll_back_are_redone() -> None:
    entries = [done(1, 1), done(2, 2), done(3, 3), RollBackLogEntry(3.5, 1, 1, 2), done(2, 5), done(3, 6), done(4, 7)]
    history = history_of(entries)
    assert [(s.iteration.iteration, s.rolled_back, s.repeated) for s in history.steps] == [
        (1, False, False), (2, True, False), (3, True, False), (2, False, True), (3, False, True), (4, False, False),
    ]  # fmt: skip
    assert [each.iteration for each in history.completed] == [1, 2, 3, 4]
    assert [each.at for each in history.completed] == [1, 5, 6, 7]


def test_late_objective_belongs_to_the_last_iteration_of_its_number() -> None:
    """One of an iteration whose line was lost with its controller belongs to none."""
    late = ObjectiveLogEntry(3.2, 2, 0.5)
    entries = [done(1, 1), done(2, 2), ObjectiveLogEntry(3, 1, 0.25), ObjectiveLogEntry(3, 7, 1.0), done(2, 3.1), late]
    steps = history_of(entries).steps
    assert [(s.iteration.iteration, s.iteration.objective) for s in steps] == [(1, 0.25), (2, None), (2, 0.5)]


def test_redone_iterations_can_be_lost() -> None:
    entries = [
        done(1, 1),
        done(2, 2),
        RollBackLogEntry(3, 1, 1, 1),
        done(2, 4),
        RollBackLogEntry(5, 0, 2, 2),
        done(1, 6),
    ]
    history = history_of(entries)
    assert [(s.rolled_back, s.repeated) for s in history.steps] == [
        (True, False),
        (True, False),
        (True, True),
        (False, True),
    ]
    assert [each.at for each in history.completed] == [6]


def test_lost_iterations_may_be_logged_after_the_roll_back() -> None:
    history = history_of([done(1, 1), RollBackLogEntry(3, 1, 1, 1), done(2, 3), done(2, 5), done(3, 6)])
    assert [(s.rolled_back, s.repeated) for s in history.steps] == [
        (False, False),
        (True, False),
        (False, True),
        (False, False),
    ]


def test_stages_are_stretches_of_time() -> None:
    stages = [StageChange(0.5, 1), StageChange(3, 2), StageChange(4, 2), StageChange(6, 1)]
    assert history_of([*stages, done(1, 9)]).stages == ((0.5, 3, 1), (3, 6, 2), (6, 9, 1))
    assert history_of([done(1, 9)]).stages == ()


def test_hosts_are_held_from_joining_to_going() -> None:
    events = [
        host(0, "a", 0, "joined"), host(1, "b", 1, "joined"), host(4, "b", 1, "warned"), host(5, "b", 1, "left"),
        host(5, "b", 1, "failed"), host(7, "b", 2, "joined"), host(8, "b", 2, "joined"), host(9, "c", 9, "left"),
    ]  # fmt: skip
    history = history_of([*events, EndLogEntry(12, 12, 0)])
    held = [(member.joined.host, member.joined.at, member.until) for member in history.members]
    assert held == [("a", 0, 12), ("b", 1, 5), ("b", 7, 12)]
    assert history.end == EndLogEntry(12, 12, 0)
    assert history.seconds == 12
    assert len(history.events) == 8


def test_bytes_of_a_host_that_came_back_are_added() -> None:
    lines = [
        TrafficLogEntry(1, "a", 10, 1),
        TrafficLogEntry(2, "a", 30, 2),
        TrafficLogEntry(3, "a", 5, 7),
        TrafficLogEntry(4, "b", 1, 1),
    ]
    assert history_of([*lines, TrafficLogEntry(5, "a", 6, 8)]).traffic == {"a": (36, 10), "b": (1, 1)}


def test_updates_of_all_hosts_are_added() -> None:
    """Of one that came back, too; its counts began at zero again."""
    first, second, other = UpdateCounts((1, 2), 2, 1, 3), UpdateCounts((0, 1), 1, 1, 4), UpdateCounts((0, 0, 5), 12, 3)
    lines = [
        TrafficLogEntry(1, "a", 1, 1, UpdateCounts((1,))), TrafficLogEntry(2, "a", 2, 2, first),
        TrafficLogEntry(3, "a", 0, 0), TrafficLogEntry(4, "a", 1, 1, second), TrafficLogEntry(5, "b", 1, 1, other),
    ]  # fmt: skip
    assert history_of(lines).updates == UpdateCounts((1, 3, 5), 15, 3, 7)


def test_a_run_under_way_has_no_end() -> None:
    history = history_of([ControllerEvent(0, "started"), replace(done(1, 3), objective=2.0)])
    assert (history.end, history.seconds, history.members) == (None, 3, ())

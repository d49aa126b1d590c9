"""The state machine of elastic jobs: pure, and unmoved by messages that are doubled, swapped, stale or of nobody."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solvers.elastic
from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import Alive, Answer, ClockDone, NodeMessage, PartitionsChanged, WorkerFinished
from solvers.elastic.commands import EndJob, Send
from solvers.elastic.events import HostMessage, HostsLost, Tick
from solvers.elastic.state import initial
from solvers.elastic.step import step
from tests.runners.elastic.simulated_course import job_of
from tests.runners.elastic.simulated_job import SimulatedJob
from tests.solvers.elastic.histories import history, play

_IMPURE = {
    "asyncio", "datetime", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select",
    "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time",
}  # fmt: skip
_MODULES = sorted(Path(solvers.elastic.__file__).parent.rglob("*.py"))
SEEDS = (3, 8, 13)


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.stem)
def test_no_module_has_a_clock_a_thread_or_a_file(path: Path) -> None:
    """Names of paths (PurePosixPath) are not files."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            pure = node.module == "pathlib" and {alias.name for alias in node.names} <= {"PurePosixPath"}
            names = [] if pure else [node.module]
        assert not {name.partition(".")[0] for name in names} & _IMPURE
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        assert called not in ("open", "print", "input")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_events_give_the_same_commands(seed: int) -> None:
    job, events = history(seed)
    assert [(outcome.commands, outcome.entries, outcome.wait_s) for outcome in play(job, events)[1]] == [
        (outcome.commands, outcome.entries, outcome.wait_s) for outcome in play(job, events)[1]
    ]


def test_returned_state_does_not_change() -> None:
    job, events = history(SEEDS[0])
    state = initial(job, 1, events[0][0])
    for now, event in events[:400]:
        before = repr(state)
        after = step(state, event, now).state
        assert repr(state) == before
        state = after


@given(seed=st.sampled_from(SEEDS), data=st.data())
@settings(max_examples=30)
def test_any_two_messages_may_be_swapped_and_any_doubled(seed: int, data: st.DataObject) -> None:
    """Nothing raises, and whoever is a member still is one."""
    job, cached = history(seed)
    events = list(cached)
    messages = [index for index, (_, event) in enumerate(events) if isinstance(event, HostMessage)]
    for _ in range(data.draw(st.integers(1, 5))):
        first, second = (data.draw(st.sampled_from(messages)) for _ in range(2))
        if data.draw(st.booleans()):
            times = events[first][0], events[second][0]
            events[first], events[second] = (times[0], events[second][1]), (times[1], events[first][1])
        else:
            events.insert(second, (events[second][0], events[first][1]))
    play(job, tuple(events))


class Doubled(SimulatedJob):
    """Every message of a host arrives twice."""

    def _receive(self, number: int, message: dict[str, Any]) -> None:
        super()._receive(number, message)
        super()._receive(number, message)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_whose_messages_all_come_twice(seed: int) -> None:
    """Its result is what it is without."""
    job = job_of(seed)
    job.__class__ = Doubled
    job.run()
    assert job.ended == (0, "")


STRANGE: tuple[NodeMessage, ...] = (
    Answer(123456789), Answer(1 << 40, result={"begun": "x"}), Answer(0, "no", "RejectedRequest"),
    Alive(TrafficCounters()),
    PartitionsChanged({77: ("serving", 0, 0, 5, 5)}), PartitionsChanged({0: ("serving", 99, 99, 1 << 40, 5)}),
    ClockDone(5, 4, 1, 0.1, True, None, None, 99, 0), WorkerFinished(999, 3, True, True),
)  # fmt: skip


@pytest.mark.parametrize("message", STRANGE, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("host", [0, 1, 999])
def test_strange_messages_change_nothing(host: int, message: NodeMessage) -> None:
    """An answer to nothing, of another generation, of a partition or a worker that there is not, of a host that is
    none."""
    job, events = history(SEEDS[0])
    middle = len(events) // 2
    state, _ = play(job, events[:middle])
    outcome = step(state, HostMessage(host, message), events[middle][0])
    assert not [command for command in outcome.commands if isinstance(command, EndJob)]
    assert not [command for command in outcome.commands if isinstance(command, Send) and command.id is not None]
    assert outcome.state.members == state.members


def test_messages_of_an_evicted_host_are_ignored() -> None:
    job, events = history(SEEDS[0])
    middle = len(events) // 2
    state, _ = play(job, events[:middle])
    now = events[middle][0]
    host = max(state.members)
    state = step(state, HostsLost((host,), "no power"), now).state
    assert host not in state.members
    for _, event in events[:middle]:
        if isinstance(event, HostMessage) and event.host == host:
            after = step(state, event, now)
            assert replace(after.state, detector=state.detector) == replace(state, detector=state.detector)
            assert not after.commands


def test_an_unknown_event_is_an_error() -> None:
    with pytest.raises(TypeError, match="no module handles int"):
        step(play(*history(SEEDS[0]))[0], 3, 1e6)
    assert step(play(*history(SEEDS[0]))[0], Tick(), 1e6).wait_s >= 0

"""What a job has cost while it runs: the same as its log comes to afterwards."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from plink.model.elastic.summary import TotalCost
from plink.records.elastic_history import history_of
from plink.records.elastic_log import Entry, HostEvent, Iteration, RollBackLogEntry
from runners.elastic.log_followers import CostTracker, spent
from solvers.elastic import commands
from solvers.elastic.member import Member
from tests.runners.elastic.paper_supervisor import Paper, paper

__all__ = ["paper"]

PRICES = {"a": 0.5, "b": None, "c": 3.0}


def host(at: float, name: str, number: int, event: str) -> HostEvent:
    return HostEvent(at, name, number, "transient", 1, event, PRICES[name])  # type: ignore[arg-type]


def live(entries: list[Entry], at: float) -> TotalCost | None:
    """By the lines as a controller says them."""
    spending = CostTracker()
    for entry in entries:
        spending.logged(to_builtins(entry))
    return spending.so_far(at)


def test_host_and_iteration_costs() -> None:
    entries: list[Entry] = [host(0, "c", 0, "joined"), host(0, "a", 1, "joined"), host(1800, "a", 1, "left")]
    assert live(entries, 3600) == TotalCost(total=3.25, per_iteration=None, without_price=())
    entries += [Iteration(at, number, 1.0, 1, 2, number) for at, number in ((10, 0), (20, 1))]
    entries += [RollBackLogEntry(30, 0, 1, 1), host(3600, "b", 2, "joined")]
    assert live(entries, 7200) == TotalCost(total=6.25, per_iteration=6.25, without_price=("b",))


def test_without_a_price_there_is_none() -> None:
    assert live([host(0, "b", 0, "joined"), Iteration(1, 0, 1.0, 1, 1, 0)], 9) is None
    assert live([], 9) is None
    assert live([host(0, "b", 0, "joined"), host(1, "a", 1, "failed")], 9) is None  # one that never came


def test_a_time_of_the_log_that_was_rounded_up_is_over() -> None:
    assert live([host(1.001, "a", 0, "joined")], 1.0008) == TotalCost(total=0.0, per_iteration=None, without_price=())


moments = st.lists(
    st.one_of(
        st.builds(
            lambda name, number, event: lambda at: host(at, name, number, event),
            st.sampled_from("abc"), st.integers(0, 3),
            st.sampled_from(["joined", "warned", "left", "released", "failed"]),
        ),
        st.builds(lambda number: lambda at: Iteration(at, number, 1.0, 1, 2, number), st.integers(0, 6)),
        st.builds(lambda clock: lambda at: RollBackLogEntry(at, clock, 1, 1), st.integers(0, 6)),
    ),
    min_size=1,
)  # fmt: skip


@given(moments)
def test_it_is_what_the_log_comes_to(calls: list[Any]) -> None:
    """`plink elastic summary` of the same lines, at any moment."""
    entries = [tell(float(at)) for at, tell in enumerate(calls)]
    history = history_of(entries)
    afterwards = spent(history.members, len(history.completed))
    result = live(entries, history.seconds)
    assert result == (None if afterwards.total is None else afterwards)


def test_status_survives_a_change_of_controller(paper: Paper) -> None:
    supervisor = paper.supervisor("rt")
    assert answered(paper)["cost"] is None
    gone = Member(2, "h2", "transient", 1, 3600.0)
    paper.says(commands.LogLine(gone.line("joined", "")))
    paper.says(commands.LogLine({"what": "iteration", "iteration": 0, "clock": 0}))
    supervisor._began -= 10.0
    paper.says(commands.LogLine(gone.line("left", "")))
    paper.dies()
    paper.says(commands.LogLine({"what": "iteration", "iteration": 1, "clock": 1}))
    supervisor._began -= 1000.0
    cost = answered(paper)["cost"]
    assert 10 <= cost["total"] < 15
    assert abs(cost["per_iteration"] - cost["total"] / 2) < 1e-4
    assert cost["without_price"] == ("h0", "h1")
    assert "cost" not in answered(paper, stage=None)


def answered(paper: Paper, stage: int | None = 1) -> dict[str, Any]:
    """The status, as who asks for it gets it."""
    answers: list[dict[str, Any]] = []
    paper.of._handle_request({"method": "status"}, answers.append)
    paper.says(commands.StatusAnswer(paper.events_of("get_status")[-1]["request_id"], {"stage": stage, "hosts": []}))
    return answers[0]

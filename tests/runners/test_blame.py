"""The rank that a job's failure is blamed on, of several that end at nearly the same time."""

import signal

import pytest

from runners.job.monitor import SAME_FAILURE_S, JobMonitor, RankOutput
from runners.job.placement import RankAssignment

SHORTLY, LATER = SAME_FAILURE_S / 2, SAME_FAILURE_S * 2
KILLED, ABORTED = 128 + signal.SIGKILL, 128 + signal.SIGABRT


@pytest.mark.parametrize(
    ("exits", "blamed"),
    [
        ([(0, 1, 0.0), (1, KILLED, SHORTLY)], 1),
        ([(0, 1, 0.0), (2, 1, SHORTLY), (1, KILLED, SHORTLY)], 1),
        ([(0, 1, 0.0), (1, 128 + signal.SIGSEGV, SHORTLY)], 0),  # native code whose peer is gone
        ([(0, 1, 0.0), (1, 3, SHORTLY)], 0),
        ([(0, 1, 0.0), (1, ABORTED, SHORTLY)], 0),  # as PyTorch does when it loses a peer
        ([(0, 1, 0.0), (1, KILLED, LATER)], 0),
        ([(0, KILLED, 0.0), (1, KILLED, SHORTLY)], 0),
        ([(2, 0, 0.0), (0, 1, LATER), (1, KILLED, LATER + SHORTLY)], 1),
        ([(0, 1, 0.0), (1, KILLED, 0.0), (2, KILLED, 0.0)], 1),
    ],
)
def test_a_killed_rank_is_blamed_before_its_peers(exits: list[tuple[int, int, float]], blamed: int) -> None:
    now = [0.0]
    ranks = [RankAssignment(rank, 0, f"host-{rank}", None, None) for rank in range(3)]
    monitor = JobMonitor(ranks, RankOutput(lambda rank, stream, line: None), lambda: now[0])
    firsts = []
    for rank, code, now[0] in exits:
        monitor.output.add(rank, "err", f"{rank} ends")
        firsts.append(monitor.record_exit(rank, code, by_itself=True))
    assert monitor.failure is not None
    code = next(code for rank, code, _ in exits if rank == blamed)
    assert (monitor.failure.rank, monitor.failure.host, monitor.failure.code) == (blamed, f"host-{blamed}", code)
    assert monitor.failure.last_lines == (f"{blamed} ends",)
    assert firsts.count(True) == 1


def test_a_stopped_rank_is_not_blamed() -> None:
    ranks = [RankAssignment(rank, 0, "here", None, None) for rank in range(2)]
    monitor = JobMonitor(ranks, RankOutput(lambda rank, stream, line: None), lambda: 0.0)
    monitor.record_exit(0, 1, by_itself=True)
    monitor.record_exit(1, KILLED, by_itself=False)
    assert monitor.failure is not None
    assert monitor.failure.rank == 0

"""Jobs of real processes whose hosts come and go, are warned, and die: no update is lost, none counts twice."""

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from plink.errors import PlinkError
from plink.transport.fleet import Fleet
from tests.runners.elastic.live.elastic import Elastic


@pytest.mark.parametrize("tiers", ["r", "rt", "rrttt"])
def test_a_job_from_beginning_to_end(tmp_path: Path, tiers: str) -> None:
    """In every stage the same comes out."""
    with Elastic(tmp_path, tiers) as job:
        job.finish()
    stage = 1 if tiers.count("t") <= tiers.count("r") else 2
    assert [line["stage"] for line in job.events("stage")] == [stage]
    iterations = [line["iteration"] for line in job.events("iteration")]
    assert iterations == list(range(40))


def test_hosts_are_added_and_evicted(tmp_path: Path) -> None:
    """Up a stage and down again, with no roll-back."""
    more = ("--megabytes", "4", "--work-s", "0.008", "--until", str(tmp_path / "over"))
    with Elastic(tmp_path, "rt", clocks=1_000_000, more=more) as job:
        job.clock(10)
        job.add("n0", "n1", "n2")
        job.until(lambda status: status["workers"] == 5)
        job.evict("n0", "n1", "n2", "h1", seconds=20)
        job.until(lambda status: {host["name"] for host in status["hosts"]} == {"h0"})
        job.finish()
    assert not job.events("rolled back")
    assert [line["stage"] for line in job.events("stage")] == [1, 2, 1]


def test_an_optimiser_while_hosts_come_and_go(tmp_path: Path) -> None:
    """Added, warned and killed; all roll back."""
    more = ("--work-s", "0.004", "--adam")
    with Elastic(tmp_path, "rtt", clocks=400, more=more, timeout_s=200.0) as job:
        job.clock(4)
        job.add("n0", "n1")
        job.until(lambda status: status["workers"] == 5)
        job.evict("n0", seconds=20)
        job.until(lambda status: status["workers"] == 4)
        job.clock(job.clock_now() + 2)
        job.kill("h2")
        job.finish()
    assert job.events("rolled back")


def test_a_rule_while_hosts_come_and_go(tmp_path: Path) -> None:
    """Added, warned and killed: every step counts once, and shards go on where they were."""
    settings = {"rule": "elastic-bsp:15"}
    more = ("--work-s", "0.004")
    with Elastic(tmp_path, "rtt", clocks=1000, settings=settings, more=more, timeout_s=200.0) as job:
        job.clock(4)
        job.add("n0", "n1")
        job.until(lambda status: status["workers"] == 5)
        job.clock(job.clock_now() + 2)
        job.evict("n0", "h1", seconds=20)
        job.until(lambda status: status["workers"] == 3)
        job.clock(job.clock_now() + 2)
        job.kill("h2")
        job.finish(exactly=False)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_a_newcomer_leaves_the_cores_to_the_others_until_it_has_loaded(tmp_path: Path) -> None:
    """And the first ones never do that."""

    def nice(name: str) -> str:
        return Path(f"/proc/{job.pid(name)}/autogroup").read_text().split()[-1]

    with Elastic(tmp_path, "rt", clocks=400, more=("--load-s", "0.5")) as job:
        job.clock(5)
        assert [nice("h0"), nice("h1")] == ["0", "0"]
        job.add("n0")
        job.until(lambda status: any(host["name"] == "n0" for host in status["hosts"]))
        later = job.clock(job.clock_now() + 10)  # what is said to all meanwhile is said to it, too
        assert [host["state"] for host in later["hosts"] if host["name"] == "n0"] == ["joining"]
        assert int(nice("n0")) > 0
        job.until(lambda status: status["workers"] == 3)
        assert nice("n0") == "0"
        job.finish()


@pytest.mark.parametrize("who", ["server", "worker", "all"])
def test_transient_hosts_are_killed(tmp_path: Path, who: str) -> None:
    """One that serves, one that only works, all of them."""
    with Elastic(tmp_path, "rtttt", clocks=120) as job:
        status = job.clock(20)
        transient = [host for host in status["hosts"] if host["tier"] == "transient"]
        names = [host["name"] for host in transient if who == "all" or bool(host["serves"]) == (who == "server")]
        job.kill(*(names if who == "all" else names[:1]))
        job.finish()
    assert bool(job.events("rolled back")) == (who != "worker")
    assert len([line for line in job.events("host") if line["event"] == "failed"]) == (4 if who == "all" else 1)


def test_frozen_host_is_evicted(tmp_path: Path) -> None:
    """Within two seconds; and when it comes to again it changes nothing."""
    with Elastic(tmp_path, "rttt", clocks=400) as job:
        status = job.clock(20)
        name = next(host["name"] for host in status["hosts"] if host["serves"] and host["tier"] == "transient")
        pid = job.pid(name)
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        job.until(lambda status: name not in {host["name"] for host in status["hosts"]})
        assert time.monotonic() - begun < 4  # two seconds, and what this machine takes to tell
        job.clock(100)
        job.finish()
    assert job.events("rolled back")


def test_sigterm_to_everything_on_a_host_is_a_notice(tmp_path: Path) -> None:
    """As from a system that shuts down, or from Slurm: the agent, whose end is its node's end, stays that long too."""
    with Elastic(tmp_path, "rttt", clocks=120, more=("--work-s", "0.02")) as job:
        job.clock(20)
        pid = job.pid("h2")
        agent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"plink" in Path(f"/proc/{agent}/cmdline").read_bytes()
        for item in (agent, pid):
            os.kill(item, signal.SIGTERM)
        job.until(lambda status: "h2" not in {host["name"] for host in status["hosts"]})
        job.finish()
    assert not job.events("rolled back")
    events = [line["event"] for line in job.events("host") if line["host"] == "h2"]
    assert (events[:2], events[-2:]) == (["joined", "warned"], ["released", "left"])


def test_sigterm_for_the_second_time_ends_a_host(tmp_path: Path) -> None:
    """It has failed, at once, and the others go on."""
    with Elastic(tmp_path, "rttt", clocks=60, settings={"notice_s": 300.0}, more=("--work-s", "0.05")) as job:
        job.clock(5)
        pid = job.pid("h2")
        os.kill(pid, signal.SIGSTOP)  # so that it has no time to leave
        agent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent, signal.SIGTERM)
        time.sleep(0.3)
        assert Path(f"/proc/{pid}").exists()
        os.kill(agent, signal.SIGTERM)
        job.until(lambda status: "h2" not in {host["name"] for host in status["hosts"]})
        job.finish()
    assert not Path(f"/proc/{agent}").exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("junk", "error"),
    [((), "clock: Expected `int`, got `str` - at `$.clock`"), (("--junk",), "more than 1 MiB is no message")],
)
def test_a_node_that_says_what_no_node_says_is_ended(tmp_path: Path, junk: tuple[str, ...], error: str) -> None:
    """It has failed; the controller has not, and the others go on."""
    stage_3 = {"active": 1.0, "backup_only": 2.0}
    with Elastic(tmp_path, "rttt", clocks=120, settings=stage_3, more=("--invalid-message", "5", *junk)) as job:
        job.until(lambda status: len(status["hosts"]) == 3)
        job.finish()
    (failed,) = (line for line in job.events("host") if line["event"] == "failed")
    assert failed["why"] == f"its node was ended: what it sent makes no sense: {error}"
    assert [line["event"] for line in job.events("controller")] == ["started"]


def test_a_reliable_host_is_killed_in_stage_2(tmp_path: Path) -> None:
    """Its replicas are made anew from those who serve; nothing is redone."""
    with Elastic(tmp_path, "rrtttt", clocks=150) as job:
        job.clock(20)
        job.kill("h1")
        job.finish()
    assert not job.events("rolled back")


def test_a_host_comes_back_under_its_name(tmp_path: Path) -> None:
    """As another member; one that is there already is refused."""
    with Elastic(tmp_path, "rtt", clocks=200, more=("--work-s", "0.02")) as job:
        job.clock(10)
        with pytest.raises(PlinkError, match="in the job already"):
            job.add("h1")
        job.kill("h1")
        job.until(lambda status: "h1" not in {host["name"] for host in status["hosts"]})
        job.add("h1")
        job.until(lambda status: {host["number"] for host in status["hosts"] if host["name"] == "h1"} == {3})
        job.finish()


def resources() -> tuple[int, int, int]:
    """Threads, descriptors and child processes of this process."""
    pid = str(os.getpid())
    children = [path for path in Path("/proc").glob("[0-9]*/stat") if parent_of(path) == pid]
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(children)


def parent_of(stat: Path) -> str:
    """The parent of a process, which may just have ended."""
    try:
        return stat.read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


def test_hosts_that_come_and_go_leave_nothing_in_the_launcher(tmp_path: Path) -> None:
    """Ten times one is killed or evicted after another has come: their agents end."""
    with Elastic(tmp_path, "r", clocks=10_000, more=("--work-s", "0.02")) as job:

        def hosts(status: dict[str, Any]) -> set[str]:
            return {host["name"] for host in status["hosts"]}

        job.clock(3)
        job.add("n0")
        job.until(lambda status: "n0" in hosts(status))
        before = resources()
        for cycle in range(10):
            leaves, comes = f"n{cycle}", f"n{cycle + 1}"
            if cycle % 2:
                job.evict(leaves, seconds=5.0)
            else:
                job.kill(leaves)
            job.until(lambda status, name=leaves: name not in hosts(status))  # type: ignore[misc]
            job.add(comes)
            job.until(lambda status, name=comes: name in hosts(status))  # type: ignore[misc]
        job.until(lambda status: resources() == before)
        fleets = sum(type(item) is Fleet for item in gc.get_objects())  # isinstance would wake lazy modules
        assert fleets <= 3  # of the two groups, and of the one that closed last
        job.supervisor._queue.put(lambda: job.supervisor._end(9, "that is enough"))

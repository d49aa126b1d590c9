"""Jobs whose hosts come and go, are warned, and die: no update is lost, none counts twice, and all end."""

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from plink.errors import PlinkError
from tests.runners.agile.elastic import Elastic

pytestmark = pytest.mark.crowd


@pytest.mark.parametrize("tiers", ["r", "rr", "rt", "rtttt", "rrttt"])
def test_a_job_from_beginning_to_end(tmp_path: Path, tiers: str) -> None:
    """In every stage the same comes out."""
    with Elastic(tmp_path, tiers) as job:
        job.finish()
    stage = 1 if tiers.count("t") <= tiers.count("r") else 2
    assert [line["stage"] for line in job.events("stage")] == [stage]
    iterations = [line["iteration"] for line in job.events("iteration")]
    assert iterations == list(range(40))


def test_stage_3(tmp_path: Path) -> None:
    """Reliable hosts only keep backups."""
    with Elastic(tmp_path, "rttt", settings={"active": 1.0, "backup_only": 2.0}) as job:
        status = job.clock(5)
        assert status["stage"] == 3
        assert [host["pieces"] for host in status["hosts"] if host["tier"] == "reliable"] == [0]
        job.finish()


def test_hosts_are_added_and_evicted(tmp_path: Path) -> None:
    """Up a stage and down again, with no roll-back."""
    with Elastic(tmp_path, "rt", clocks=150, more=("--megabytes", "4", "--work-s", "0.008")) as job:
        job.clock(10)
        job.add("n0", "n1", "n2")
        job.until(lambda status: status["workers"] == 5)
        job.evict("n0", "n1", "n2", "h1", seconds=20)
        job.until(lambda status: {host["name"] for host in status["hosts"]} == {"h0"})
        job.finish()
    assert not job.events("rolled back")
    assert [line["stage"] for line in job.events("stage")] == [1, 2, 1]


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


def test_the_controller_is_killed(tmp_path: Path) -> None:
    """Twice; hosts go on meanwhile, and nothing is redone where nothing was under way."""
    with Elastic(tmp_path, "rttt", clocks=200, more=("--work-s", "0.02")) as job:
        for controller in (1, 2):
            job.until(lambda status, by=controller: status.get("controller") == by and status["begun"] > 20 * by)  # type: ignore[misc]
            assert job.hub._controller is not None
            job.hub._controller.kill()
        job.finish()
    assert [line["event"] for line in job.events("controller")] == ["started", "restarted", "restarted"]
    assert not job.events("rolled back")


def test_a_host_that_is_frozen_is_given_up(tmp_path: Path) -> None:
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


def test_sigterm_is_a_notice(tmp_path: Path) -> None:
    """The host leaves in order."""
    with Elastic(tmp_path, "rttt", clocks=120) as job:
        job.clock(20)
        job.kill("h2", number=signal.SIGTERM)
        job.until(lambda status: "h2" not in {host["name"] for host in status["hosts"]})
        job.finish()
    assert not job.events("rolled back")
    assert [line["event"] for line in job.events("host") if line["host"] == "h2"] == [
        "joined", "warned", "let go", "left",
    ]  # fmt: skip


def test_sigterm_to_everything_on_a_host_is_a_notice(tmp_path: Path) -> None:
    """As from a system that shuts down, or from Slurm: the agent, whose end is its node's end, stays that long too."""
    with Elastic(tmp_path, "rttt", clocks=120, more=("--work-s", "0.02")) as job:
        job.clock(20)
        pid = job.pid("h2")
        agent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"plink" in Path(f"/proc/{agent}/cmdline").read_bytes()
        for one in (agent, pid):
            os.kill(one, signal.SIGTERM)
        job.until(lambda status: "h2" not in {host["name"] for host in status["hosts"]})
        job.finish()
    assert not job.events("rolled back")
    events = [line["event"] for line in job.events("host") if line["host"] == "h2"]
    assert (events[:2], events[-2:]) == (["joined", "warned"], ["let go", "left"])


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


def test_a_node_that_says_what_no_node_says_is_ended(tmp_path: Path) -> None:
    """It has failed; the controller has not, and the others go on."""
    stage_3 = {"active": 1.0, "backup_only": 2.0}
    with Elastic(tmp_path, "rttt", clocks=120, settings=stage_3, more=("--nonsense", "5")) as job:
        job.until(lambda status: len(status["hosts"]) == 3)
        job.finish()
    (failed,) = (line for line in job.events("host") if line["event"] == "failed")
    assert failed["why"] == "its node was ended: what it said makes no sense: 'clock' with clock 'ten'"
    assert [line["event"] for line in job.events("controller")] == ["started"]


def test_a_reliable_host_is_killed_in_stage_2(tmp_path: Path) -> None:
    """Its backups are made anew from those who serve; nothing is redone."""
    with Elastic(tmp_path, "rrtttt", clocks=150) as job:
        job.clock(20)
        job.kill("h1")
        job.finish()
    assert not job.events("rolled back")


def test_a_program_that_raises_ends_the_job_with_its_name(tmp_path: Path) -> None:
    """One line, which says where."""
    with Elastic(tmp_path, "rt", more=("--fail", "7")) as job:
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert "ValueError" in job.ended.why
    assert "clock 7" in job.ended.why


@pytest.mark.parametrize("table", ["sum", "fill"])
@pytest.mark.parametrize(
    ("tiers", "times", "said"),
    [
        ("rt", "1.5", r"^h\d: app Tally: process\(\) of piece \d+ .* with what worker \d adds at clock 7 "),
        ("rt", "9", r"^h\d: partition \d at \S+: .* with what the workers add at clock 7 "),
        ("rttt", "20", r"^h\d: partition \d at \S+: .* with what the workers add at clock 8 "),
    ],
)  # fmt: skip
def test_sums_that_are_too_large_end_the_job(tmp_path: Path, table: str, tiers: str, times: str, said: str) -> None:
    """Of one worker, of all at a clock, and of clocks; no result is written."""
    with Elastic(tmp_path, tiers, more=("--megabytes", "1", "--large", table, "7", times)) as job:
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert re.match(said, job.ended.why)
    assert f"table '{table}'" in job.ended.why
    assert "row 5: " in job.ended.why
    assert " has room for (smaller " in job.ended.why
    assert not (tmp_path / "result.json").exists()


def listening(pid: int) -> int:
    """The port of a process's server."""
    theirs = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            theirs.add(os.readlink(file))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    (port,) = (row[1].split(":")[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in theirs)
    return int(port, 16)


def test_who_talks_nonsense_to_a_server_is_in_the_notes_and_not_each_time(tmp_path: Path) -> None:
    """With where it came from; the job goes on."""

    def said() -> int:
        return sum(" was closed: 127.0.0.1:" in note for note in job.notes)

    with Elastic(tmp_path, "rt", clocks=120, more=("--work-s", "0.02")) as job:
        job.clock(3)
        port = listening(job.pid("h0"))
        for knock in range(30):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                sock.settimeout(10)
                with contextlib.suppress(ConnectionResetError):
                    while sock.recv(100):
                        pass
            job.until(lambda status, knock=knock: said() == min(knock + 1, 20))  # type: ignore[misc]
        job.finish()
    assert said() == 20


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


def test_a_table_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    """Nobody has worked by then."""
    with Elastic(tmp_path, "rt", more=("--megabytes", "1000000")) as job:
        job._thread.join(60)
    assert isinstance(job.error, PlinkError)
    assert str(job.error).startswith("h0 would keep 1.05 TB of parameters, and h0 and h1 ")


def test_without_a_reliable_host(tmp_path: Path) -> None:
    """It is said what to do."""
    with Elastic(tmp_path, "tt") as job:
        job._thread.join(60)
    assert "tier=reliable" in str(job.error)


def test_a_controller_that_was_replaced_is_not_obeyed(tmp_path: Path) -> None:
    """Two of them never both rule: what the older one says is refused by every host."""
    with Elastic(tmp_path, "rt", clocks=300, more=("--work-s", "0.02")) as job:
        job.clock(5)
        assert job.hub._controller is not None
        job.hub._controller.kill()
        job.until(lambda status: status.get("controller") == 2)
        group = job.hub._groups[0]
        for number in (0, 1):
            group.tell(number, {"do": "roll_back", "clock": -1, "era": 1000, "by": 1, "id": 7})
        job.clock(job.clock_now() + 5)
        job.finish()
    assert not any(line["era"] == 1000 for line in job.events("rolled back"))

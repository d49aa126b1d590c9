"""Jobs that lose what only reliable hosts had, and go on from a checkpoint."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plink.errors import PlinkError
from tests.runners.elastic.live.elastic import Elastic, PrivateFolder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root (mount namespaces)")


def saving(folder: Path) -> dict[str, object]:
    """Checkpoints as often as can be."""
    return {"checkpoints": str(folder / "checkpoints"), "checkpoint_every_s": 0.3}


@pytest.mark.parametrize("controller", [False, True], ids=["alone", "with the controller"])
def test_the_only_reliable_host_is_killed(tmp_path: Path, controller: bool) -> None:
    """It is started anew, and all go on from the last checkpoint; nothing counts twice. The next controller has nobody
    to ask for the state, and waits for the host as the first would have."""
    with Elastic(tmp_path, "rtt", clocks=90, settings=saving(tmp_path), more=("--work-s", "0.02")) as job:
        job.until(lambda status: (status.get("checkpoint") or -1) > 5)
        if controller:
            assert job.supervisor._controller is not None
            os.kill(job.supervisor._controller.pid, signal.SIGSTOP)  # so that it does not hear of it
        job.kill("h0")
        job.until(lambda status: status.get("controller") == 2 or not controller)
        job.finish()
    assert job.events("checkpoint")
    assert job.events("rolled back")
    assert [line["event"] for line in job.events("host") if line["host"] == "h0"][:2] == ["joined", "failed"]


def test_another_job_goes_on_exactly_where_one_ended(tmp_path: Path) -> None:
    """From the checkpoint of the last clock, however seldom they are written."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Elastic(first, "rt", clocks=30, settings={"checkpoints": str(tmp_path / "checkpoints")}) as job:
        job.finish()
    assert [line["clock"] for line in job.events("checkpoint")] == [30]
    with Elastic(second, "rtt", clocks=50, settings={"restore": str(tmp_path / "checkpoints")}) as again:
        again.finish()
    assert [line["iteration"] for line in again.events("iteration")] == list(range(30, 50))


def test_one_is_asked_for_and_another_job_goes_on_from_it(tmp_path: Path) -> None:
    """It is whole when that is answered, though the next was due in an hour; also where a controller is lost before it
    has answered."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    folder = tmp_path / "checkpoints"
    settings = {"checkpoints": str(folder), "checkpoint_every_s": 3600.0}
    with Elastic(first, "rtt", clocks=4000, settings=settings, more=("--work-s", "0.02")) as job:
        safe = job.until(lambda status: status.get("consistent", -1) >= 5)["consistent"]
        saved = job.checkpoint()
        assert saved["clock"] >= safe
        assert job.status()["checkpoint"] == saved["clock"]
        latest = json.loads((folder / "latest.json").read_text())
        assert (latest["clock"], str(folder / latest["folder"])) == (saved["clock"], saved["folder"])
        assert len(list(Path(saved["folder"]).iterdir())) == latest["partitions"]
        assert job.supervisor._controller is not None
        os.kill(job.supervisor._controller.pid, signal.SIGSTOP)
        later = job.checkpoint()
        assert later["clock"] > saved["clock"]
        assert job.status()["controller"] == 2
        job.supervisor._queue.put(lambda: job.supervisor._end(9, "that is enough"))
    clocks = later["clock"] + 20
    with Elastic(second, "rtt", clocks=clocks, settings={"restore": str(folder)}) as again:
        again.finish()
    iterations = [line["iteration"] for line in again.events("iteration")]
    assert iterations == list(range(later["clock"], clocks))


def test_none_is_asked_for_where_there_is_no_folder(tmp_path: Path) -> None:
    with Elastic(tmp_path, "rt", more=("--work-s", "0.02")) as job:
        job.clock(5)
        with pytest.raises(PlinkError, match="started without --checkpoint DIR"):
            job.checkpoint()
        job.finish()


@needs_root
@pytest.mark.parametrize("tiers", ["rtt", "rrtttt", "rttttttt"])
def test_restore_where_transient_hosts_do_not_see_the_folder(tmp_path: Path, tiers: str) -> None:
    """In all three stages reliable hosts read the checkpoint and hand partitions on."""
    first, second, folder = tmp_path / "first", tmp_path / "second", tmp_path / "checkpoints"
    for path in (first, second, folder):
        path.mkdir()
    settings = {"checkpoints": str(folder), "active": 1.0, "backup_only": 4.0}
    with Elastic(first, tiers, clocks=20, settings=settings, private=PrivateFolder(folder)) as job:
        job.finish()
    settings = {"restore": str(folder), "active": 1.0, "backup_only": 4.0}
    with Elastic(second, tiers, clocks=40, settings=settings, private=PrivateFolder(folder)) as again:
        again.finish()
    assert [line["iteration"] for line in again.events("iteration")] == list(range(20, 40))


@needs_root
def test_reliable_hosts_return_where_transient_hosts_do_not_see_the_folder(tmp_path: Path) -> None:
    """Both are killed at once: the job goes on from the checkpoint, exactly."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    settings, more = {**saving(tmp_path), "backup_only": 1.0}, ("--work-s", "0.02")
    with Elastic(tmp_path, "rrttt", clocks=90, settings=settings, more=more, private=PrivateFolder(folder)) as job:
        job.until(lambda status: (status.get("checkpoint") or -1) > 5)
        job.kill("h0", "h1")
        job.finish()
    assert job.events("rolled back")


@needs_root
def test_reliable_hosts_must_share_the_folder(tmp_path: Path) -> None:
    """Else each would write its part to a disk of its own: refused before any work, and by name."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    private = PrivateFolder(folder, frozenset({"h1"}))
    with Elastic(tmp_path, "rrt", settings=saving(tmp_path), private=private) as job:
        job._thread.join(60)
    assert job.ended is not None
    assert job.ended.code == 1
    assert f"--checkpoint {folder}: h1: " in job.ended.reason
    assert not job.events("iteration")
    assert list(folder.iterdir()) == []


@needs_root
def test_reliable_newcomer_without_the_folder_is_refused(tmp_path: Path) -> None:
    """The job goes on without it, and writes checkpoints."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    private = PrivateFolder(folder, frozenset({"n0"}))
    with Elastic(
        tmp_path, "rt", clocks=400, settings=saving(tmp_path), private=private, more=("--work-s", "0.02")
    ) as job:
        job.until(lambda status: (status.get("checkpoint") or -1) > 2)
        job.add("n0", tier="r")
        job.until(lambda status: any(line["event"] == "failed" for line in job.events("host")))
        assert {host["name"] for host in job.status()["hosts"]} == {"h0", "h1"}
        job.add("n1", tier="r")
        job.until(lambda status: "n1" in {host["name"] for host in status["hosts"]})
        job.checkpoint()
        job.supervisor._queue.put(lambda: job.supervisor._end(9, "that is enough"))
    assert any(f"--checkpoint {folder}: n0: " in note for note in job.notes)


@needs_root
def test_checkpoints_that_fail_leave_nothing_on_a_full_disk(tmp_path: Path) -> None:
    """The job goes on, and when there is room again they are written."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "plink", str(folder)], check=True)
    try:
        filler = folder / "filler"
        more = ("--work-s", "0.02", "--megabytes", "2")
        with Elastic(tmp_path, "rrtt", clocks=10_000, settings=saving(tmp_path), more=more) as job:
            job.clock(3)
            with contextlib.suppress(OSError):
                filler.write_bytes(bytes(8_000_000))
            job.until(lambda status: sum("no checkpoint could be written" in note for note in job.notes) > 2)
            before = job.status()["checkpoint"] or -1
            filler.unlink()
            job.until(lambda status: (status["checkpoint"] or -1) > before)
            latest = json.loads((folder / "latest.json").read_text())
            whole = [path for path in folder.glob("clock-*") if len(list(path.iterdir())) == latest["partitions"]]
            assert len(list(folder.glob("clock-*"))) - len(whole) <= 1  # the one that is being written
            assert len(whole) <= 3
            job.supervisor._queue.put(lambda: job.supervisor._end(9, "that is enough"))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_reliable_host_joins_after_the_first_one_has_left(tmp_path: Path) -> None:
    """Also where no reliable host was left in between: it is still the same folder."""
    more = ("--work-s", "0.02")
    with Elastic(tmp_path, "rrt", clocks=10_000, settings=saving(tmp_path), more=more) as job:

        def there(status: dict[str, Any]) -> set[str]:
            return {host["name"] for host in status["hosts"]}

        job.until(lambda status: (status.get("checkpoint") or -1) > 2)
        job.evict("h0", seconds=5.0)
        job.until(lambda status: "h0" not in there(status))
        job.add("n0", tier="r")
        job.until(lambda status: "n0" in there(status))
        job.kill("h1", "n0")
        job.until(lambda status: not there(status) & {"h1", "n0"})
        job.add("n1", tier="r")
        job.until(lambda status: "n1" in there(status), 60)
        job.supervisor._queue.put(lambda: job.supervisor._end(0, "that is enough"))
    assert not any("must share one" in note for note in job.notes)
    assert not list((tmp_path / "checkpoints").glob(".shared-*"))

"""Which checkpoint is the latest, whose it is, and which are kept."""

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from plink.errors import InputError
from plink.model.elastic.fields import SavedCheckpoint
from plink.runtime.elastic.host.checkpoint_folder import (
    JobCheckpoints,
    discard,
    keep,
    latest,
    name_of,
    with_room,
)


def written(folder: Path, *clocks: int, job: str = "a1") -> None:
    """Checkpoints of some clocks."""
    for clock in clocks:
        (folder / name_of(clock, job)).mkdir()
        (folder / name_of(clock, job) / "partition-0").write_bytes(b"x")


def saved(clock: int, job: str = "a1", partitions: int = 1) -> SavedCheckpoint:
    """What is known of one."""
    return SavedCheckpoint(clock, partitions, name_of(clock, job))


def names(folder: Path) -> list[str]:
    """The checkpoints that are there."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_the_latest_and_the_one_before_are_kept(tmp_path: Path) -> None:
    written(tmp_path, 9, 10, 100)
    keep(tmp_path, saved(100), "a1")
    assert latest(tmp_path) == latest(tmp_path, "a1") == saved(100)
    assert names(tmp_path) == ["clock-10-a1", "clock-100-a1"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["latest-a1.json", "latest.json"]


def test_older_ones_are_removed_where_only_the_job_can_name_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That which the file for other jobs names is left."""
    written(tmp_path, 1, 2, 3, 4)
    keep(tmp_path, saved(1), "a1")
    rename = os.rename

    def refuse(source: Any, target: Any, **options: Any) -> None:
        if Path(target).name == "latest.json":
            raise PermissionError(errno.EPERM, "not permitted", str(target))
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(PermissionError):
        keep(tmp_path, saved(4), "a1")
    assert (latest(tmp_path), latest(tmp_path, "a1")) == (saved(1), saved(4))
    assert names(tmp_path) == ["clock-1-a1", "clock-3-a1", "clock-4-a1"]


def test_one_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    written(tmp_path, 1, 2, 3, 8)
    (tmp_path / "clock-x-a1").mkdir()
    keep(tmp_path, saved(3), "a1")
    assert names(tmp_path) == ["clock-2-a1", "clock-3-a1", "clock-8-a1", "clock-x-a1"]


def test_those_of_other_jobs_are_left_alone(tmp_path: Path) -> None:
    """Also of one whose name ends alike."""
    written(tmp_path, 1, 2, 3)
    written(tmp_path, 1, 2, job="b2")
    written(tmp_path, 1, job="b2-a1")
    keep(tmp_path, saved(3), "a1")
    assert names(tmp_path) == ["clock-1-b2", "clock-1-b2-a1", "clock-2-a1", "clock-2-b2", "clock-3-a1"]


def test_two_jobs_in_one_folder(tmp_path: Path) -> None:
    """Each finds its own; whoever goes on from the folder, the one that was written last."""
    written(tmp_path, 7)
    written(tmp_path, 3, job="b2")
    keep(tmp_path, saved(7, "a1"), "a1")
    keep(tmp_path, saved(3, "b2"), "b2")
    assert latest(tmp_path, "a1") == saved(7, "a1")
    assert latest(tmp_path, "b2") == latest(tmp_path) == saved(3, "b2")


def test_after_a_roll_back_an_earlier_one_may_be_the_latest(tmp_path: Path) -> None:
    written(tmp_path, 5, 7)
    keep(tmp_path, saved(7), "a1")
    keep(tmp_path, saved(5), "a1")
    assert latest(tmp_path) == saved(5)


def test_whose_it_is(tmp_path: Path) -> None:
    """One that another job left in the folder is none of this one's; whoever goes on from it is asked for it."""
    written(tmp_path, 7)
    keep(tmp_path, saved(7), "a1")
    assert latest(tmp_path, "b2") is None
    (tmp_path / "latest-b2.json").write_bytes((tmp_path / "latest-a1.json").read_bytes())
    assert latest(tmp_path, "b2") is None


def test_missing_file(tmp_path: Path) -> None:
    """A checkpoint of which this host does not see all files does not count."""
    written(tmp_path, 7)
    with pytest.raises(InputError, match=r"clock-7-a1/partition-1: not there \(1 of 2 files\)"):
        keep(tmp_path, saved(7, partitions=2), "a1")
    assert latest(tmp_path) is None


def test_discard_removes_what_failed_and_not_what_counts(tmp_path: Path) -> None:
    written(tmp_path, 7, 8)
    written(tmp_path, 8, job="b2")
    keep(tmp_path, saved(7), "a1")
    for name in ("clock-7-a1", "clock-8-a1", "clock-8-b2"):
        discard(tmp_path / name, "a1")
    assert names(tmp_path) == ["clock-7-a1", "clock-8-b2"]


class Disk:
    """A folder with room for so many checkpoints."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self.room = folder, room

    def take(self, checkpoints: int) -> None:
        """Room for so many more, if there is any."""
        if len(names(self.folder)) + checkpoints > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, clock: int) -> None:
        """One more, which counts."""

        def write() -> None:
            self.take(1)
            written(self.folder, clock)

        with_room(self.folder / name_of(clock, "a1"), "a1", write)
        keep(self.folder, saved(clock), "a1")


def test_on_a_full_disk_the_latest_makes_room_for_the_next(tmp_path: Path) -> None:
    """Of what this job wrote; what is there already is left if there is no room for two."""
    written(tmp_path, 1, job="b2")
    disk = Disk(tmp_path, room=3)
    for clock in (5, 6, 7, 8):
        disk.write(clock)
    assert latest(tmp_path) == saved(8)
    assert names(tmp_path) == ["clock-1-b2", "clock-7-a1", "clock-8-a1"]
    disk.room = 2
    with pytest.raises(OSError, match="No space left"):
        disk.write(9)
    assert latest(tmp_path) == saved(8)
    assert names(tmp_path) == ["clock-1-b2", "clock-8-a1"]


def test_what_killed_controllers_left_makes_room_too(tmp_path: Path) -> None:
    """Also of clocks above the latest; not the part that another host writes of the same checkpoint."""
    written(tmp_path, 5, 6, 9)
    keep(tmp_path, saved(6), "a1")
    written(tmp_path, 8)
    disk = Disk(tmp_path, room=2)
    with pytest.raises(OSError, match="No space left"):  # both hosts have a part, and there is no room for both
        with_room(tmp_path / name_of(8, "a1"), "a1", lambda: disk.take(1))
    assert names(tmp_path) == ["clock-6-a1", "clock-8-a1"]
    discard(tmp_path / name_of(8, "a1"), "a1")
    written(tmp_path, 7, 30)
    disk.write(10)
    assert names(tmp_path) == ["clock-10-a1", "clock-6-a1"]


def test_nothing_is_removed_where_a_name_cannot_be_read(tmp_path: Path) -> None:
    written(tmp_path, 5, 6)
    (tmp_path / "latest-a1.json").mkdir()
    with pytest.raises(OSError, match="No space left"):
        Disk(tmp_path, room=3).write(7)
    discard(tmp_path / name_of(6, "a1"), "a1")
    assert names(tmp_path) == ["clock-5-a1", "clock-6-a1", "latest-a1.json"]


class Killed(BaseException):
    """The end of a process."""


@contextmanager
def failing(at: int, error: BaseException, lasting: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The writing call of that number fails, with ``lasting`` all from then on; gives the names of those made."""
    calls: list[str] = []

    def counted(name: str, call: Any) -> Any:
        def does(*arguments: Any, **options: Any) -> Any:
            if name != "open" or arguments[1] & os.O_CREAT:
                calls.append(name)
                if len(calls) == at + 1 or (lasting and len(calls) > at):
                    raise error
            return call(*arguments, **options)

        return does

    with monkeypatch.context() as patch:
        for name in ("open", "fsync", "rename"):
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield calls


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"), Killed()], ids=str)
def test_what_a_job_goes_on_from_is_there_wherever_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, lasting: bool, shared: bool
) -> None:
    """With room for two checkpoints, and once the disk is whole again there is a later one."""
    for at in range(100):
        folder = tmp_path / str(at)
        folder.mkdir()
        disk, last = Disk(folder, room=2), 0

        def attempt(clock: int, disk: Disk = disk, folder: Path = folder) -> int:
            """As a controller does it; what it goes on from then."""
            try:
                disk.write(clock)
                return clock
            except (OSError, Killed):
                with suppress(Killed):
                    discard(folder / name_of(clock, "a1"), "a1")
                own = latest(folder, "a1")
                return own.clock if own else 0

        def missing(clock: int, folder: Path = folder) -> set[str]:
            named = {file.folder for file in (latest(folder), latest(folder, "a1")) if file}
            return {name_of(clock, "a1"), *named} - {*names(folder)}

        for clock in (5, 6):
            last = attempt(clock)
        if shared:
            disk.room += 1
            written(folder, 1, job="b2")
            keep(folder, saved(1, "b2"), "b2")
        with failing(at, error, lasting, monkeypatch) as calls:
            for clock in (7, 8):
                last = attempt(clock)
                assert not missing(last)
        for clock in (9, 10, 11):
            last = attempt(clock)
            assert not missing(last)
        assert latest(folder) == latest(folder, "a1") == saved(11)
        assert last == 11
        if len(calls) <= at:
            break
    assert at > 10


def test_the_first_name_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    written(tmp_path, 5)
    keep(tmp_path, saved(5), "a1")
    (tmp_path / "latest.json").unlink()
    discard(tmp_path / name_of(6, "a1"), "a1")
    assert latest(tmp_path) == saved(5)


def test_a_report_waits_for_a_checkpoint_that_is_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a controller that was killed has requested it: the next one is to know of it."""
    written(tmp_path, 5)
    begun, go_on, rename = threading.Event(), threading.Event(), os.rename

    def slow(*arguments: Any, **options: Any) -> None:
        begun.set()
        go_on.wait(10)
        rename(*arguments, **options)

    monkeypatch.setattr(os, "rename", slow)
    naming = threading.Thread(target=keep, args=(tmp_path, saved(5), "a1"))
    naming.start()
    assert begun.wait(10)
    threading.Timer(0.2, go_on.set).start()
    assert JobCheckpoints(str(tmp_path), job="a1").on_disk() == (None, saved(5))
    naming.join()


def test_the_checkpoint_that_is_restored_stays_the_same(tmp_path: Path) -> None:
    """Another job may write a later one there before the next controller asks."""
    written(tmp_path, 5, 9)
    keep(tmp_path, saved(5), "a1")
    job = JobCheckpoints(restore=str(tmp_path), job="b2")
    assert job.on_disk() == (saved(5), None)
    keep(tmp_path, saved(9), "a1")
    assert job.on_disk() == (saved(5), None)


def test_the_folder_of_a_job_whose_mark_another_removed(tmp_path: Path) -> None:
    job = JobCheckpoints(str(tmp_path), job="a1")
    written(tmp_path, 5)
    keep(tmp_path, saved(5), "a1")
    job.check_mark()


def test_a_folder_that_is_mounted_while_it_is_checked(tmp_path: Path) -> None:
    """The host began without its checkpoints, and is to begin again."""
    job = JobCheckpoints(str(tmp_path / "c"), job="a1")
    (tmp_path / "real").mkdir()
    written(tmp_path / "real", 5)
    keep(tmp_path / "real", saved(5), "a1")
    (tmp_path / "real" / ".shared-a1").touch()
    threading.Timer(0.2, lambda: (tmp_path / "real").rename(tmp_path / "c")).start()
    with pytest.raises(InputError, match="must share one"):
        job.check_mark()
    job.check_mark()


def test_old_marks_of_killed_jobs_are_removed(tmp_path: Path) -> None:
    JobCheckpoints(str(tmp_path), job="killed").mark()
    JobCheckpoints(str(tmp_path), job="other").mark()
    two_days_ago = time.time() - 2 * 86400
    os.utime(tmp_path / ".shared-killed", (two_days_ago, two_days_ago))
    JobCheckpoints(str(tmp_path), job="a1").mark()
    assert {path.name for path in tmp_path.iterdir()} == {".shared-other", ".shared-a1"}


def test_mark_of_a_shared_folder(tmp_path: Path) -> None:
    JobCheckpoints(str(tmp_path), job="a1").mark()
    JobCheckpoints(str(tmp_path), job="a1").check_mark()
    JobCheckpoints(str(tmp_path), job="a1").unmark()
    JobCheckpoints(str(tmp_path), job="a1").unmark()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="must share one"):
        JobCheckpoints(str(tmp_path), job="a1").check_mark()


@pytest.mark.parametrize("name", ["clock-70-a1", "../clock-7", "clock-7-/x", "", 7, None])
def test_a_folder_that_is_none_of_that_clock(tmp_path: Path, name: object) -> None:
    (tmp_path / "latest.json").write_text(json.dumps({"clock": 7, "partitions": 1, "folder": name}))
    assert latest(tmp_path) is None


def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    assert JobCheckpoints(str(tmp_path / "a" / "b")).unwritable() is None
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_one_that_cannot_be_written(tmp_path: Path) -> None:
    """Nobody can, root neither."""
    (tmp_path / "file").touch()
    assert JobCheckpoints(str(tmp_path / "file" / "folder")).unwritable() == "Not a directory"
    assert JobCheckpoints(str(Path("/proc/nope"))).unwritable() == "No such file or directory"


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"clock": "7"}', '{"clock": 7}', '{"clock": 7, "partitions": true}', "\udcff"]
)
def test_there_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "latest.json").write_bytes(text.encode(errors="surrogateescape"))
    assert latest(tmp_path) is None

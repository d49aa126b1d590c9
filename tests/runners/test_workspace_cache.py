"""Folders copied to hosts: by content, whole or not at all, and nothing of the user's overwritten."""

import base64
import errno
import fcntl
import hashlib
import io
import os
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plink.errors import HostError, PlinkError, UsageError
from plink.model.hosts import Host, Hosts
from runners.job import setup as archive_module
from runners.job import workspace_cache
from runners.job.fleet_runner import FleetRunner
from runners.job.runner import RunContext, RunObserver
from runners.job.setup import archive_folder
from runners.job.workspace_cache import WorkspaceCache
from tests.child_hosts import ChildHosts
from tests.runners.child_jobs import ChildJobs

PROGRAM = """
import os, sys
import helper
print(os.getcwd(), helper.SAYS, open("data/x.txt").read(), os.access("run.sh", os.X_OK), os.listdir("."), sep="|")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program of several files, and what is no part of it."""
    top = tmp_path / "mine"
    (top / "data").mkdir(parents=True)
    (top / "train.py").write_text(PROGRAM)
    (top / "helper.py").write_text("SAYS = 'hello'\n")
    (top / "data" / "x.txt").write_text("x")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / ".git").mkdir()
    (top / ".git" / "config").write_text("not for others")
    return top


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ChildJobs]:
    """Jobs whose hosts keep copies in an own place."""
    with ChildHosts() as connector:
        connector.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
        yield ChildJobs(connector, tmp_path)


def test_a_job_runs_in_the_copy(jobs: ChildJobs, folder: Path, tmp_path: Path) -> None:
    hosts = Hosts((Host("a", "127.0.0.1", slots=2),))
    job = replace(jobs.job(str(folder / "train.py")), sync=folder)
    assert jobs.launch(job, hosts=hosts).exit_code == 0, jobs.printed
    where, says, data, executable, listed = jobs.lines(1)[0].split("|")
    assert Path(where).parent == tmp_path / "cache" / "plink" / "sync"
    assert (says, data, executable) == ("hello", "x", "True")
    assert ".git" not in listed
    # The second time nothing is sent, and what was changed makes another copy.
    made = Path(where).stat().st_ino
    jobs.launch(job, hosts=hosts)
    assert Path(where).stat().st_ino == made
    (folder / "helper.py").write_text("SAYS = 'other'\n")
    jobs.printed.clear()
    jobs.launch(job, hosts=hosts)
    assert jobs.lines(0)[0].split("|")[:2] != [where, "hello"]
    assert "other" in jobs.lines(0)[0]
    assert len([name for name in os.listdir(tmp_path / "cache" / "plink" / "sync") if name[0] != "."]) == 2


@pytest.mark.parametrize(
    ("here", "sync", "program"),
    [
        ("mine/data", "mine", "../train.py"),
        (".", "alias", "mine/train.py"),
        ("alias", "mine", "train.py"),
    ],
)
def test_whatever_way_it_is_named_the_copy_runs(
    jobs: ChildJobs, folder: Path, tmp_path: Path, here: str, sync: str, program: str
) -> None:
    """Through links, from folders inside and outside: never the file that lies at the same place."""
    (tmp_path / "alias").symlink_to(folder)
    (folder / "train.py").write_text("import os; print(os.path.realpath(__file__), os.getcwd(), sep='|')")
    job = replace(jobs.job(program), workdirs=(str(tmp_path / here),), sync=tmp_path / sync)
    assert jobs.launch(job).exit_code == 0, jobs.printed
    ran, cwd = jobs.lines(0)[0].split("|")
    copies_folder = tmp_path / "cache" / "plink" / "sync"
    assert Path(ran).is_relative_to(copies_folder)
    below = "data" if here.endswith("data") else "."
    assert Path(cwd) == Path(ran).parent / below


def test_a_program_outside_the_folder_is_refused(jobs: ChildJobs, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("print('the wrong one')")
    job = replace(jobs.job("other.py"), sync=folder)
    with pytest.raises(UsageError, match=r"other\.py is not in it, so it would not be the copy that runs"):
        jobs.launch(job)
    assert jobs.printed == []


def test_links_are_followed_but_not_round_and_round(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data2").mkdir()
    (tmp_path / "data2" / "y.txt").write_text("y")
    (folder / "more").symlink_to(tmp_path / "data2")
    (folder / "data" / "up").symlink_to(folder)
    with tarfile.open(archive_folder(folder, tmp_path / "1.tar").file) as tar:
        names = tar.getnames()
        assert all(member.isreg() for member in tar)
    assert names == ["data/x.txt", "helper.py", "more/y.txt", "run.sh", "train.py"]


def test_a_copy_of_many_pieces_over_several_hosts(
    jobs: ChildJobs, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piece by piece, as each is taken; what is told of the progress ends at all of it."""
    monkeypatch.setattr(archive_module, "_PART_BYTES", 1000)
    (folder / "big").write_bytes(os.urandom(50_000))
    progress: list[tuple[int, int]] = []
    hosts = Hosts((Host("a", "127.0.0.1"),))
    observer = RunObserver(progress=lambda phase, *now: progress.append(now) if phase == "copying" else None)
    context = RunContext(observer, time.monotonic)
    job = replace(jobs.job(str(folder / "train.py")), sync=folder)
    assert FleetRunner("children", jobs.connector).run(job, hosts, context).exit_code == 0
    assert progress[-1][0] == progress[-1][1] > 50_000
    assert [done for done, _ in progress] == sorted(done for done, _ in progress)
    assert len(progress) > 50


def test_a_host_with_no_room_is_named(jobs: ChildJobs, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    job = replace(jobs.job(str(folder / "train.py")), sync=folder)
    with pytest.raises(HostError, match=rf"here: cannot store a copy of {folder}: .*"):
        jobs.launch(job)


def test_the_same_content_is_the_same_archive(folder: Path, tmp_path: Path) -> None:
    first = archive_folder(folder, tmp_path / "1.tar")
    os.utime(folder / "train.py", (1, 1))
    assert archive_folder(folder, tmp_path / "2.tar").digest == first.digest
    (folder / "train.py").write_text("pass")
    assert archive_folder(folder, tmp_path / "3.tar").digest != first.digest
    assert b"".join(first.parts()) == (tmp_path / "1.tar").read_bytes()


def test_folders_that_cannot_be_packed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        archive_folder(tmp_path / "nope", tmp_path / "1.tar")
    with pytest.raises(PlinkError, match="cannot archive"):
        archive_folder(folder, tmp_path / "no" / "1.tar")
    monkeypatch.setattr(archive_module, "_MAX_BYTES", 100)
    with pytest.raises(UsageError, match="copy the program's folder only"):
        archive_folder(folder, tmp_path / "1.tar")


def archive(*names: str, kind: bytes = tarfile.REGTYPE) -> tuple[str, str]:
    """(digest, base64 of it) of an archive with such members."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    return hashlib.sha256(target.getvalue()).hexdigest(), base64.b64encode(target.getvalue()).decode()


@pytest.mark.parametrize(
    ("digest", "data"),
    [
        archive("../out"),
        archive("/abs"),
        archive("link", kind=tarfile.SYMTYPE),
        ("0" * 64, archive("good")[1]),
        (archive("good")[0], archive("good")[1][:-400]),
    ],
    ids=["up", "absolute", "link", "other digest", "cut short"],
)
def test_archives_that_are_not_as_they_should_be(
    digest: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file of theirs is left, wherever it would have gone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = WorkspaceCache()
    cache.append(data)
    with pytest.raises((OSError, tarfile.TarError)):
        cache.extract(digest)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_copy_of_a_job_that_runs_stays(
    jobs: ChildJobs, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come after it; once it is over it goes like any other, and its lock with it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(workspace_cache, "_MAX_COPIES", 2)
    (folder / "train.py").write_text(
        "import os, sys, time\n"
        "open('checkpoint', 'w').close()\n"
        "print(os.getcwd(), flush=True)\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
        "print(os.path.exists(os.path.join(sys.argv[2], 'checkpoint')))\n"
    )
    made: list[str] = []

    def others_come() -> None:
        if not made:
            os.utime(jobs.lines(0)[0], (0, 0))  # it began long ago
            made.extend(_copy(f"file{k}") for k in range(5))
            (tmp_path / "go").touch()

    where = tmp_path / "cache" / "plink" / "sync"
    expected = where / archive_folder(folder, tmp_path / "1.tar").digest
    job = replace(jobs.job(str(folder / "train.py"), str(tmp_path / "go"), str(expected)), sync=folder)
    assert jobs.launch(job, on_line=others_come).exit_code == 0, jobs.printed
    assert jobs.lines(0) == [str(expected), "True"]
    assert sorted(_kept_in(where)) == sorted([str(expected), *made[-2:]])
    deadline = time.monotonic() + 60  # its agent ends in a moment
    while expected.exists():
        assert time.monotonic() < deadline
        _copy(f"after it {time.monotonic()}")
    assert sorted(path.name for path in where.iterdir() if path.name[0] == ".") == sorted(
        f".lock-{Path(path).name}" for path in _kept_in(where)
    )


def test_where_no_lock_can_be_had_copies_are_used_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre, mounted without flock."""

    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(workspace_cache, "_MAX_COPIES", 1)
    monkeypatch.setattr(fcntl, "flock", flock)
    first, second = _copy("first"), _copy("second")
    assert WorkspaceCache().find(Path(first).name) == first
    assert Path(second).exists()


def _copy(name: str) -> str:
    """A copy of an archive of one file, by an agent that ends then."""
    digest, data = archive(name)
    maker = WorkspaceCache()
    maker.append(data)
    path = maker.extract(digest)
    if maker._lock_fd is not None:
        os.close(maker._lock_fd)
    return path


def _kept_in(where: Path) -> list[str]:
    return [str(path) for path in where.iterdir() if path.name[0] != "."]


def test_a_digest_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(OSError, match="is no digest"):
        WorkspaceCache().find("../../etc")

"""``./.plink/``: made with a note that it is no source, and looked in with an error that says what to type."""

import datetime
import os
from pathlib import Path

import pytest

from plink.errors import PlinkError, UsageError
from plink.records import workspace


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_folder_is_made_once_and_ignored_by_git(here: Path) -> None:
    workspace.prepare()
    assert (here / ".plink" / ".gitignore").read_text() == "*\n"
    (here / ".plink" / ".gitignore").write_text("mine\n")
    workspace.prepare()
    assert (here / ".plink" / ".gitignore").read_text() == "mine\n"


def test_a_file_of_that_name_is_in_the_way(here: Path) -> None:
    (here / ".plink").write_text("")
    with pytest.raises(PlinkError, match=r"cannot make \.plink/ here: .*name a file with -o"):
        workspace.prepare()


def test_what_is_not_there_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"no \.plink/network\.json here yet: run `plink probe hosts\.txt` first"):
        workspace.latest(workspace.NETWORK, "plink probe hosts.txt")


def test_the_age_is_that_of_the_file(here: Path) -> None:
    file = here / "f"
    file.write_text("")
    then = file.stat().st_mtime - 7200
    os.utime(file, (then, then))
    assert workspace.age(file) == "2 h"
    ahead = file.stat().st_mtime + 10_000_000
    os.utime(file, (ahead, ahead))  # a clock that was set back
    assert workspace.age(file) == "0 s"


def test_the_age_is_that_of_the_measurement_where_it_is_stated(here: Path) -> None:
    file = here / "f"
    file.write_text("")
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=9)
    assert workspace.age(file, then.isoformat()) == "9 days"
    assert workspace.age(file, "yesterday") == "0 s"


def test_folder_that_others_may_write_is_refused(here: Path) -> None:
    workspace.prepare()
    workspace.check_trusted()
    for mode in (0o777, 0o775):
        (here / ".plink").chmod(mode)
        with pytest.raises(PlinkError, match="chmod go-w"):
            workspace.check_trusted()


def test_new_folder_is_writable_by_its_owner_alone(here: Path) -> None:
    before = os.umask(0)
    try:
        workspace.prepare()
    finally:
        os.umask(before)
    workspace.check_trusted()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_folder_of_another_user_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made there, or linked to; the user who typed sudo is none of the others."""
    (here / "theirs").mkdir()
    os.chown(here / "theirs", 65534, 65534)
    (here / ".plink").symlink_to("theirs")
    with pytest.raises(PlinkError, match="belongs to another user"):
        workspace.check_trusted()
    (here / ".plink").unlink()
    (here / "theirs").rename(here / ".plink")
    with pytest.raises(PlinkError, match="belongs to another user"):
        workspace.check_trusted()
    monkeypatch.setenv("SUDO_UID", "65534")
    workspace.check_trusted()

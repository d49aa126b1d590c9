"""``./.plink/``: made with a note that it is no source, and looked in with an error that says what to type."""

import os
from pathlib import Path

import pytest

from plink import workspace
from plink.errors import PlinkError, UsageError


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

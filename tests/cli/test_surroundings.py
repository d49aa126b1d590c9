"""Closed or full streams, a folder that was removed, limits of the system: one clear line each, and an exit code."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from plink.records.scratch import ScratchFolder
from tests.cli.files import network, refusal, write
from tests.conftest import plink

COMMANDS = [
    "--help", "--version", "cost n.json",
    *(
        pytest.param(words, marks=pytest.mark.extended)
        for words in (
            "reorder n.json --format hosts", "probe hosts.txt --dry-run",
            "launch --runner local --slots 1 --dry-run true",
        )
    ),
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A network, and hosts."""
    write(tmp_path / "n.json", network())
    (tmp_path / "hosts.txt").write_text("a address=127.0.0.1\nb address=127.0.0.2\n")
    return tmp_path


def in_shell(line: str, words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The command, with ``{}`` of a line of the shell in its place."""
    command = line.format(f"{sys.executable} -m plink {words}")
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
def test_unwritable_output_is_reported_once(words: str, stream: str, here: Path) -> None:
    done = in_shell(f"{{}} {stream}", words, here)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(errors) == 1, done.stderr
    assert "standard output" in errors[0]
    assert "defect" not in done.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_error_stream_changes_nothing(words: str, here: Path) -> None:
    done, usual = in_shell("{} 2>&-", words, here), in_shell("{} 2>/dev/null", words, here)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(usual.stdout.splitlines()) > 0
    assert in_shell("{} >&- 2>&-", words, here).returncode == 1


@pytest.mark.parametrize("words", COMMANDS[2:])
def test_folder_that_was_removed(words: str, here: Path) -> None:
    done = in_shell("mkdir gone && cd gone && rmdir ../gone && {}", words.replace("n.json", str(here / "n.json")), here)
    assert "current folder" in refusal(done, 1)
    assert in_shell("mkdir gone && cd gone && rmdir ../gone && {}", "--version", here).returncode == 0


@pytest.mark.parametrize("mib", [60, 160, 220])
def test_little_address_space(mib: int, here: Path) -> None:
    for words in ("--version", "--help"):
        assert in_shell(f"ulimit -v {mib * 1024}; {{}}", words, here).returncode == 0
    for words in ("cost n.json", "reorder n.json"):
        done = in_shell(f"ulimit -v {mib * 1024}; {{}}", words, here)
        if done.returncode:  # it may be enough for one, by the number of cores
            assert "ulimit -v" in refusal(done, 1)


def test_few_descriptors(here: Path) -> None:
    done = in_shell("ulimit -n 28; {}", "launch --runner local --slots 12 true", here)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "localhost" in done.stderr
    assert "Too many open files" in done.stderr


HOLDS = """
from plink.records.scratch import ScratchFolder
held = ScratchFolder()
print(held.path, flush=True)
import time
time.sleep(600)
"""


def test_next_plink_removes_what_a_killed_one_left(here: Path, tmp_path: Path) -> None:
    """Not what a process that lives holds, nor what is no folder of plink's."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (temporary / "plink-other").mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    held = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        held.append((process, Path(process.stdout.readline().strip())))
    try:
        (killed, left), (_, there) = held
        (left / "socket").write_text("")
        killed.kill()
        killed.wait()
        assert left.parent == temporary
        assert left.exists()
        assert plink("cost", "n.json", cwd=here, TMPDIR=str(temporary)).returncode == 0
        assert not left.exists()
        assert there.exists()
        assert (temporary / "plink-other").exists()
    finally:
        for process, _ in held:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_reader_of_errors_that_goes_away_changes_no_exit_code(here: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        words = [sys.executable, "-m", "plink", "report", "--terminal", "nosuch.json"]
        done = subprocess.run(words, cwd=here, stdout=subprocess.DEVNULL, stderr=broken, check=False)
    assert done.returncode == 2


def test_swept_folder_is_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plink may look just after it was made."""
    made: list[str] = []
    mkdtemp = tempfile.mkdtemp

    def swept(**words: str) -> str:
        made.append(mkdtemp(dir=tmp_path, **words))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    folder = ScratchFolder()
    try:
        assert (len(made), str(folder.path)) == (2, made[1])
    finally:
        folder.close()

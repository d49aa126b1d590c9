"""The journal on disk: order, torn lines, one driver a run, and writes that fail."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import to_builtins

from plink.errors import InputError, PlinkError, UsageError
from plink.model.spot import journal
from runners.spot.journal import NAME, Journal, driver_of, read_journal

OPENED = journal.JournalOpened(1.5e9, "run1", "command", "per-second", 1, 0.2)
REQUEST = journal.InstancesRequested(1.5e9 + 1, "run1-1", "zone-a", "small", "Linux/UNIX", 2, 0.1, "it lowers the cost")
ENTRIES = [
    OPENED,
    journal.PriceChanged(1.5e9, "zone-a", "small", "Linux/UNIX", 1.4e9, 0.05),
    REQUEST,
    journal.InstanceGranted(1.5e9 + 2, "run1-1", "i-1", 1.5e9 + 2),
    journal.RequestClosed(1.5e9 + 2, "run1-1", "granted", penalised_until_s=1.5e9 + 900),
    journal.InstanceJoined(1.5e9 + 60, "i-1", "spot-i-1"),
    journal.InstanceDraining(1.5e9 + 90, "i-1", "too expensive"),
    journal.InstanceReleased(1.5e9 + 99, "i-1", "too expensive"),
    journal.InstanceEnded(1.5e9 + 100, "i-1", "released", 1.5e9 + 100),
    journal.JobEnded(1.5e9 + 200),
]


def test_entries_read_back_as_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "spot") as writer:
        for entry in ENTRIES:
            writer.add(entry)
            assert list(read_journal(tmp_path / "spot"))[-1] == entry
    assert list(read_journal(tmp_path / "spot")) == ENTRIES


def test_torn_last_line_is_dropped_and_appended_after(tmp_path: Path) -> None:
    with Journal(tmp_path / "spot") as writer:
        writer.add(OPENED)
        writer.add(REQUEST)
    whole = (tmp_path / "spot" / NAME).read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole)):
        (tmp_path / "spot" / NAME).write_bytes(whole[:length])
        assert list(read_journal(tmp_path / "spot")) == [OPENED]
    with Journal(tmp_path / "spot") as writer:
        writer.add(ENTRIES[1])
    assert list(read_journal(tmp_path / "spot")) == [OPENED, ENTRIES[1]]


@pytest.mark.parametrize(
    "line",
    [b"{}", b"[]", b'{"what": "nothing"}', b'{"what": []}', b'{"what": {}}', b"\xff", b'{"what": "ended", "at": 1}'],
)
def test_invalid_journal_line_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / NAME).write_bytes(_line(OPENED) + line + b"\n")
    with pytest.raises(InputError, match=f"{NAME}:2"):
        read_journal(tmp_path)


def test_altered_line_is_refused(tmp_path: Path) -> None:
    """In the middle, in any byte."""
    with Journal(tmp_path) as writer:
        for entry in ENTRIES[:4]:
            writer.add(entry)
    path = tmp_path / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    for place in range(len(lines[2]) - 1):
        altered = bytearray(lines[2])
        altered[place] ^= 1 << place % 8
        path.write_bytes(b"".join([*lines[:2], bytes(altered), *lines[3:]]))
        with pytest.raises(InputError, match=f"{NAME}:3"):
            read_journal(tmp_path)
    for torn in (lines[2][:-20] + lines[3], lines[2][:-20] + b"\n", lines[2].partition(b', "crc32"')[0] + b"}\n"):
        path.write_bytes(b"".join([*lines[:2], torn, *lines[3:]]))
        with pytest.raises(InputError, match=f"{NAME}:3"):
            read_journal(tmp_path)


def test_journal_without_checksums_is_read_and_continued(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(_line(OPENED) + _line(ENTRIES[1]))
    with Journal(tmp_path) as writer:
        writer.add(REQUEST)
    assert list(read_journal(tmp_path)) == ENTRIES[:3]


def _line(entry: journal.JournalEntry) -> bytes:
    return json.dumps(to_builtins(entry)).encode() + b"\n"


@pytest.mark.parametrize("missing", range(4))
def test_entry_of_an_unknown_instance_is_refused(tmp_path: Path, missing: int) -> None:
    lines = [_line(entry) for place, entry in enumerate(ENTRIES) if place != missing]
    (tmp_path / NAME).write_bytes(b"".join(lines))
    with pytest.raises(InputError, match="the journal has no"):
        read_journal(tmp_path)


def test_second_driver_of_a_run_is_refused(tmp_path: Path) -> None:
    assert driver_of(tmp_path / "spot") is None
    with Journal(tmp_path / "spot"):
        assert driver_of(tmp_path / "spot") == os.getpid()
        with pytest.raises(UsageError, match=str(os.getpid())):
            Journal(tmp_path / "spot")
    with Journal(tmp_path / "spot"):
        pass
    assert driver_of(tmp_path / "spot") is None


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from runners.spot.journal import Journal; "
        "j = Journal(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "spot")], check=False)
    with Journal(tmp_path / "spot") as writer:
        writer.add(OPENED)


def test_failed_write_is_an_error_and_ends_the_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "spot") as writer:
        writer.add(OPENED)
        size = (tmp_path / "spot" / NAME).stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
        try:
            with pytest.raises(PlinkError, match="nothing is requested without a journal"):
                writer.add(REQUEST)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(PlinkError):
            writer.add(REQUEST)
    assert list(read_journal(tmp_path / "spot")) == [OPENED]

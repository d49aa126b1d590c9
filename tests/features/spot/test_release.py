"""Release of a run's instances where the disk is full, the journal is gone, listings lag, or the account is unclear."""

import errno
import json
import os
import tomllib
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from plink.errors import PartlyDone, PlinkError, UsageError
from plink.features.spot.drive import drive_spot, dry_run_spot
from plink.features.spot.request import SpotDriveRequest
from plink.model.spot.market_file import market_file_from
from runners.spot.choice import choose_provider
from runners.spot.commands import CommandProvider
from runners.spot.journal import Journal, release_is_requested
from runners.spot.process import ReleaseWaits, release_spot
from runners.spot.provider import ListedInstance, ProviderError
from runners.spot.status import runs_with_instances
from tests.conftest import typed
from tests.docs.samples import MARKET_FILE
from tests.features.spot.conftest import Waits
from tests.features.spot.test_drive import ENTRIES, aws, recorded

AWS = '[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\n'
OPENED_ON_AWS = structs.replace(ENTRIES[0], provider="aws us-east-1", account="111111111111")


def released(run: Path) -> tuple[str, ...]:
    return release_spot(run, print, Waits().limits()).names


def release_request(folder: Path) -> object:
    return json.loads((folder / "asked-release.json").read_text())


def damage(run: Path, text: str = "not a line of it") -> None:
    with (run / "spot" / "journal.jsonl").open("a") as file:
        file.write(text + "\n")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose cloud, a command, holds i-1 until that is released."""
    monkeypatch.chdir(tmp_path)
    return recorded(tmp_path, ENTRIES[:8])


class FullDisk:
    """``os`` of the journal, whose calls of these names fail."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> object:
        return self._fails if name in self._names else getattr(os, name)

    def _fails(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("full", [("write",), ("pwrite",), ("write", "pwrite", "ftruncate")])
def test_full_disk_holds_up_no_release(run: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...]) -> None:
    before = (run / "spot" / "journal.jsonl").read_bytes()
    monkeypatch.setattr("runners.spot.journal.os", FullDisk(*full))
    assert released(run) == ("spot-i-1",)
    assert release_request(Path()) == {"run": "abcd", "instances": ["i-1"]}
    if "write" in full:
        assert (run / "spot" / "journal.jsonl").read_bytes() == before


def test_full_disk_releases_what_only_the_journal_has(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandProvider, "listing", lambda self: [])
    monkeypatch.setattr("runners.spot.journal.os", FullDisk("write"))
    assert released(run) == ("spot-i-1",)
    assert release_request(Path()) == {"run": "abcd", "instances": ["i-1"]}


def test_run_whose_journal_is_gone_is_released_by_its_market_file(run: Path) -> None:
    (run / "spot" / "journal.jsonl").unlink()
    assert runs_with_instances(run.parent) == [run]
    assert released(run) == ("i-1",)
    assert release_request(Path()) == {"run": "abcd", "instances": ["i-1"]}


@pytest.mark.parametrize("content", ['{"schema": "plink.r', None])
def test_run_whose_own_file_is_damaged_is_listed_and_released(run: Path, content: str | None) -> None:
    """What costs money has to be found by its id."""
    (run / "run.json").unlink() if content is None else (run / "run.json").write_text(content)
    listed = typed("runs", cwd=Path())
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "the run abcd is damaged" in listed.stderr
    status = typed("spot", "status", "abcd", "--json", cwd=Path())
    assert [each["instance"] for each in json.loads(status.stdout)["held"]] == ["i-1"]
    done = typed("spot", "release", "last", cwd=Path())
    assert (done.returncode, release_request(Path())) == (0, {"run": "abcd", "instances": ["i-1"]}), done.stderr
    assert "run.json" in typed("runs", "show", "abcd", cwd=Path()).stderr


def test_run_with_neither_journal_nor_market_file_is_refused(run: Path) -> None:
    (run / "spot" / "journal.jsonl").unlink()
    (run / "spot" / "market.toml").unlink()
    assert runs_with_instances(run.parent) == []
    with pytest.raises(UsageError, match="plink spot drive"):
        released(run)


@pytest.mark.parametrize("text", ["not a line of it", '{"what": []}', '{"what": "drain", "at": 1, "instance": "i-9"}'])
def test_release_by_tag_where_the_journal_is_damaged(run: Path, text: str) -> None:
    damage(run, text)
    before = (run / "spot" / "journal.jsonl").read_bytes()
    notes: list[str] = []
    assert release_spot(run, notes.append, Waits().limits()).names == ("i-1",)
    assert any("journal.jsonl:9" in note for note in notes)
    assert release_request(Path()) == {"run": "abcd", "instances": ["i-1"]}
    assert (run / "spot" / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("appears_s", [30.0, 110.0])
def test_release_by_tag_waits_for_what_is_listed_late(
    run: Path, monkeypatch: pytest.MonkeyPatch, appears_s: float
) -> None:
    damage(run)
    waits, gone = Waits(), []
    late = ListedInstance("i-7", "abcd-2", 1.7e9)
    monkeypatch.setattr(CommandProvider, "listing",
                        lambda self: [late] if waits.now >= appears_s and not gone else [])  # fmt: skip
    monkeypatch.setattr(CommandProvider, "release", lambda self, ids: gone.extend(ids))
    assert release_spot(run, print, waits.limits()).names == ("i-7",)
    assert gone == ["i-7"]
    assert waits.now >= appears_s + 120


def test_release_by_tag_that_never_ends_is_partly_done(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(run)
    monkeypatch.setattr(CommandProvider, "release", lambda self, ids: None)
    with pytest.raises(PartlyDone, match="plink spot release abcd"):
        released(run)


def test_an_error_that_repeats_is_said_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(run)

    def refuse(self: CommandProvider) -> None:
        raise ProviderError("unavailable", "no answer")

    monkeypatch.setattr(CommandProvider, "listing", refuse)
    notes: list[str] = []
    with pytest.raises(PartlyDone):
        release_spot(run, notes.append, Waits().limits())
    assert sum("no answer" in note for note in notes) == 1


def aws_run(folder: Path, monkeypatch: pytest.MonkeyPatch, account: str) -> Path:
    """A run on AWS; ``account``: a shell command that answers `sts get-caller-identity`."""
    run = recorded(folder, [OPENED_ON_AWS, *ENTRIES[1:8]], MARKET_FILE + AWS)
    aws(folder, monkeypatch, account)
    return run


@pytest.mark.parametrize("is_damaged", [False, True])
def test_account_of_a_damaged_journal_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    run = aws_run(tmp_path, monkeypatch, 'echo \'{"Account": "222222222222"}\'')
    if is_damaged:
        damage(run)
    with pytest.raises(UsageError, match="222222222222"):
        released(run)
    assert "terminate" not in (tmp_path / "requests").read_text()


FAILS_ONCE = 'if [ -f {0}/once ]; then echo \'{{"Account": "{1}"}}\'; else touch {0}/once; exit 1; fi'


@pytest.mark.parametrize("account", ["111111111111", "222222222222"])
def test_release_retries_the_account_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    run = aws_run(tmp_path, monkeypatch, FAILS_ONCE.format(tmp_path, account))
    if account == "111111111111":
        assert released(run) == ("spot-i-1",)
    else:
        with pytest.raises(UsageError, match=account):
            released(run)
    assert (tmp_path / "requests").read_text().count("sts") >= 2


def test_release_without_any_account_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = aws_run(tmp_path, monkeypatch, "exit 1")
    before = (run / "spot" / "journal.jsonl").read_bytes()
    with pytest.raises(PartlyDone, match="plink spot release abcd"):
        released(run)
    assert (run / "spot" / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("is_new", [False, True])
def test_driver_does_not_start_while_the_account_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    run = aws_run(tmp_path, monkeypatch, "exit 1")
    if is_new:
        (run / "spot" / "journal.jsonl").unlink()
    request = SpotDriveRequest(str(run / "spot" / "market.toml"))
    with pytest.raises(PlinkError, match="account"):
        drive_spot(run, {}, request, print)
    with pytest.raises(PlinkError, match="account"):
        dry_run_spot(run, {}, request, print)
    assert "run-instances" not in (tmp_path / "requests").read_text()


def test_release_waits_for_the_driver_that_it_ends(run: Path) -> None:
    with ExitStack() as driver:
        driver.enter_context(Journal(run / "spot"))

        def pause(seconds: float) -> None:
            if release_is_requested(run / "spot"):
                driver.close()

        assert release_spot(run, print, ReleaseWaits(300.0, lambda: 0.0, pause)).names == ("spot-i-1",)
    assert release_is_requested(run / "spot")  # the job starts no other driver


def test_driver_that_does_not_end_is_said(run: Path) -> None:
    with Journal(run / "spot"), pytest.raises(PartlyDone, match=str(os.getpid())):
        released(run)


def test_release_outlasts_a_request_without_an_answer(tmp_path: Path) -> None:
    market_file = market_file_from(tomllib.loads(MARKET_FILE + AWS), "market.toml")
    chosen = choose_provider(market_file, "0aaa", tmp_path, "status")
    slow = replace(chosen, timing=replace(chosen.timing, request_timeout_s=300.0, listing_delay_s=600.0))
    assert ReleaseWaits(clock=lambda: 0.0).deadline(slow) > 900.0

"""``plink spot drive``, ``status`` and ``release``: what is refused, and what a journal looks like."""

import json
import os
import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from msgspec import structs, to_builtins

from plink.errors import PartlyDone, PlinkError, UsageError
from plink.features.spot.drive import drive_spot, dry_run_spot
from plink.features.spot.request import SpotDriveRequest
from plink.model.elastic.status import JobControl
from plink.model.spot import journal
from plink.model.storage import read_document
from runners.spot.journal import release_is_requested, request_release
from runners.spot.process import release_spot
from runners.spot.status import spot_status
from tests.cli.files import refusal
from tests.conftest import typed
from tests.docs.pages import ROOT
from tests.docs.samples import MARKET_FILE
from tests.stand_ins import program

AT = 1.7e9
PROVIDER = """
[provider]
kind = "command"
prices = ["./cloud", "prices"]
acquire = ["./cloud", "acquire"]
listing = ["./cloud", "listing"]
release = ["./cloud", "release"]
"""
ENTRIES = [
    journal.JournalOpened(AT, "abcd", "command", "hourly-2016", 3, 0.199),
    journal.PriceChanged(AT, "zone-a", "c4.xlarge", "Linux/UNIX", AT - 100, 0.05),
    journal.InstancesRequested(AT, "abcd-1", "zone-a", "c4.xlarge", "Linux/UNIX", 2, 0.1, "it lowers the cost"),
    journal.InstanceGranted(AT + 5, "abcd-1", "i-1", AT + 5),
    journal.InstanceGranted(AT + 5, "abcd-1", "i-2", AT + 5),
    journal.RequestClosed(AT + 5, "abcd-1", "granted"),
    journal.InstanceJoined(AT + 90, "i-1", "spot-i-1"),
    journal.InstanceEnded(AT + 1800, "i-2", "interrupted", AT + 1800),
    journal.InstancesRequested(AT + 1900, "abcd-2", "zone-b", "c4.xlarge", "Linux/UNIX", 1, 0.1, "again"),
    journal.JobEnded(AT + 3605),
]


def job_at(socket: str, pid: int) -> JobControl:
    return JobControl(socket=socket, pid=pid, lab=None, runner="local")


def recorded(folder: Path, entries: list[Any], market: str = MARKET_FILE + PROVIDER) -> Path:
    """A run with such a journal; its cloud holds i-1 until that is released."""
    run = folder / ".plink" / "runs" / "abcd"
    (run / "spot").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"schema": "plink.run/1", "id": "abcd", "started": "2024-01-01T00:00:00"}))
    (run / "spot" / "journal.jsonl").write_text("".join(json.dumps(to_builtins(entry)) + "\n" for entry in entries))
    (run / "spot" / "market.toml").write_text(market)
    program(
        folder, "cloud", "cat > asked-$1.json\nif [ $1 = release ]; then echo gone > gone; fi\n"
        'if [ $1 = listing ]; then if [ -f gone ]; then echo "[]"; else\n'
        'echo \'[{"id": "i-1", "token": "abcd-1", "since_s": 1700000005, "address": "10.0.0.1"}]\'; fi; fi'
    )  # fmt: skip
    return run


def test_status_says_what_is_held_and_what_it_costs(tmp_path: Path) -> None:
    recorded(tmp_path, ENTRIES[:-1])
    done = typed("spot", "status", "abcd", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, read_document(ROOT / "docs" / "schemas" / "spot-status.schema.json"))
    assert [(each["instance"], each["state"]) for each in document["held"]] == [("i-1", "working")]
    assert [each["token"] for each in document["open_requests"]] == ["abcd-2"]
    assert document["ended"] == {"interrupted": 1, "released": 0}
    assert document["cost"]["refunded"] == pytest.approx(0.05)
    assert document["driver"] is None
    shown = typed("spot", "status", "abcd", cwd=tmp_path)
    assert "spot-i-1" in shown.stdout


def test_status_has_the_budget_of_the_latest_driver(tmp_path: Path) -> None:
    """Options of a driver replace the market file's limits."""
    limits = [journal.LimitsSet(AT, 40.0, 6.0), journal.LimitsSet(AT + 9, None, 6.0)]
    run = recorded(tmp_path, [ENTRIES[0], limits[0], *ENTRIES[1:-1]])
    assert json.loads(typed("spot", "status", "abcd", "--json", cwd=tmp_path).stdout)["cost"]["budget"] == 40
    with (run / "spot" / "journal.jsonl").open("a") as file:
        file.write(json.dumps(to_builtins(limits[1])) + "\n")
    assert json.loads(typed("spot", "status", "abcd", "--json", cwd=tmp_path).stdout)["cost"]["budget"] is None


def test_cost_of_a_run_that_is_over(tmp_path: Path) -> None:
    ended = [*ENTRIES[:8], journal.InstanceEnded(AT + 3600, "i-1", "released", AT + 3600), ENTRIES[-1]]
    recorded(tmp_path, ended)
    cost = json.loads(typed("spot", "status", "abcd", "--json", cwd=tmp_path).stdout)["cost"]
    assert cost["transient"] == pytest.approx(0.05)  # the hour of i-1; that of i-2 was interrupted
    assert cost["anchors"] == pytest.approx(3 * 0.199 * 3605 / 3600, abs=1e-5)
    assert cost["on_demand"] == pytest.approx(cost["anchors"] + 2 * 0.199, abs=1e-5)  # two begun hours


def test_release_ends_instances_listed_for_this_run(tmp_path: Path) -> None:
    recorded(tmp_path, ENTRIES[:8])
    done = typed("spot", "release", "abcd", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "asked-release.json").read_text()) == {"run": "abcd", "instances": ["i-1"]}
    assert json.loads((tmp_path / "asked-listing.json").read_text()) == {"run": "abcd"}
    assert json.loads(typed("spot", "status", "abcd", "--json", cwd=tmp_path).stdout)["held"] == []


def test_release_of_all_asks_for_the_runs_of_this_workspace_only(tmp_path: Path) -> None:
    recorded(tmp_path, ENTRIES[:8])
    done = typed("spot", "release", "--all", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "asked-release.json").read_text()) == {"run": "abcd", "instances": ["i-1"]}
    assert typed("spot", "release", "--all", cwd=tmp_path / ".plink").returncode == 0


@pytest.mark.parametrize("words", [("release",), ("release", "abcd", "--all"), ("release", "ffff"), ("status", "ffff")])
def test_invalid_requests_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    recorded(tmp_path, ENTRIES)
    refusal(typed("spot", *words, cwd=tmp_path))


def test_run_without_instances(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES)
    (run / "spot" / "journal.jsonl").unlink()
    (run / "spot" / "market.toml").unlink()
    assert "plink spot drive" in refusal(typed("spot", "status", "abcd", cwd=tmp_path))
    assert "plink spot drive" in refusal(typed("spot", "release", "abcd", cwd=tmp_path))


def test_broken_journal_is_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES)
    with (run / "spot" / "journal.jsonl").open("a") as file:
        file.write("not a line of it\n")
    assert "journal.jsonl:11" in refusal(typed("spot", "status", "abcd", cwd=tmp_path))


def test_release_of_all_goes_on_after_a_run_that_cannot_be_released(tmp_path: Path) -> None:
    recorded(tmp_path, ENTRIES[:8])
    broken = tmp_path / ".plink" / "runs" / "aaaa" / "spot"
    broken.mkdir(parents=True)
    (broken / "journal.jsonl").write_text('{"what": []}\n')
    (broken / "market.toml").mkdir()
    done = typed("spot", "release", "--all", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "aaaa" in done.stderr
    assert json.loads((tmp_path / "asked-release.json").read_text()) == {"run": "abcd", "instances": ["i-1"]}


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ('[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nstart_up = "gone.sh"\n', "aws us-east-1"),
        ('[provider]\nkind = "replay"\nhistory = "gone.json"\nhosts = "gone.txt"\n', "replay"),
    ],
)
def test_status_needs_no_file_of_requests(tmp_path: Path, table: str, kind: str) -> None:
    recorded(tmp_path, [structs.replace(ENTRIES[0], provider=kind), *ENTRIES[1:8]], MARKET_FILE + table)
    done = typed("spot", "status", "abcd", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["held"]) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('listing = ["./cloud", "listing"]', 'listing = ["./other", "listing"]'),
        ('release = ["./cloud", "release"]', 'release = ["./cloud", "release", "--account", "2"]'),
    ],
)
def test_other_commands_are_refused_while_instances_are_held(tmp_path: Path, old: str, new: str) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    other = (MARKET_FILE + PROVIDER).replace(old, new)
    (tmp_path / "other.toml").write_text(other)
    request = SpotDriveRequest(str(tmp_path / "other.toml"))
    with pytest.raises(UsageError, match="plink spot release"):
        drive_spot(run, {}, request, print)
    assert (run / "spot" / "market.toml").read_text() == MARKET_FILE + PROVIDER


def aws(folder: Path, monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    """An ``aws`` that lists nothing; ``account``: a shell command that answers ``sts get-caller-identity``."""
    script = (
        f'echo "$@" >> {folder}/requests\ncase "$*" in\n'
        f"sts*) {account};;\n*describe*) echo '{{\"Reservations\": []}}';;\nesac"
    )
    program(folder, "aws", script)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_release_without_the_start_up_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nstart_up = "gone.sh"\n'
    opened = structs.replace(ENTRIES[0], provider="aws us-east-1", account="111111111111")
    run = recorded(tmp_path, [opened, *ENTRIES[1:8]], MARKET_FILE + table)
    aws(tmp_path, monkeypatch, """echo '{"Account": "111111111111"}'""")
    assert release_spot(run, print).names == ("spot-i-1",)
    assert "terminate-instances --instance-ids i-1" in (tmp_path / "requests").read_text()


def test_credentials_of_another_account_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\n'
    opened = structs.replace(ENTRIES[0], provider="aws us-east-1", account="111111111111")
    run = recorded(tmp_path, [opened, *ENTRIES[1:8]], MARKET_FILE + table)
    aws(tmp_path, monkeypatch, """echo '{"Account": "222222222222"}'""")
    with pytest.raises(UsageError, match="222222222222"):
        release_spot(run, print)
    with pytest.raises(UsageError, match="222222222222"):
        drive_spot(run, {}, SpotDriveRequest(str(run / "spot" / "market.toml")), print)
    assert "terminate" not in (tmp_path / "requests").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline_s": 3600.0}, "--iterations"),
        ({"iterations": 9}, "--deadline"),
        ({"deadline_s": 60.0, "iterations": 9}, "on_demand"),
        ({"fallback": True}, "on_demand"),
        ({"deadline_s": 60.0, "iterations": 9, "fallback": True}, "--fallback"),
    ],
)
def test_on_demand_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    run = recorded(tmp_path, ENTRIES[:8])

    def drive() -> None:
        request = SpotDriveRequest(str(run / "spot" / "market.toml"), **options)
        drive_spot(run, job_at("gone", 1), request, print)

    with pytest.raises(UsageError, match=message):
        drive()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "[provider]"),
        ('[provider]\nkind = "gce"\n', "provider.kind"),
        ('[provider]\nkind = "aws"\n', "provider.region"),
        ('[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nspeed = 60\n', "provider.speed"),
        ('[provider]\nkind = "command"\nprices = ["a"]\n', "provider.acquire"),
        ('[provider]\nkind = "command"\nprices = "a"\n', "provider.prices"),
        ('[provider]\nkind = "command"\nprices = []\n', "provider.prices"),
        ('[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nlease_s = 1\n', "provider.lease_s"),
        ('[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nlease_s = inf\n', "provider.lease_s"),
        ('[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\nlease_s = nan\n', "provider.lease_s"),
    ],
)
def test_invalid_provider_tables_are_refused(tmp_path: Path, table: str, message: str) -> None:
    recorded(tmp_path, ENTRIES, MARKET_FILE + table)
    assert message in refusal(typed("spot", "status", "abcd", cwd=tmp_path))


def test_driver_says_at_the_end_which_request_was_never_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = time.time()
    entries = [
        journal.JournalOpened(now - 900, "abcd", "command", "hourly-2016", 3, 0.199),
        journal.PriceChanged(now - 900, "zone-a", "c4.xlarge", "Linux/UNIX", now - 900, 0.05),
        journal.InstancesRequested(now - 900, "abcd-1", "zone-a", "c4.xlarge", "Linux/UNIX", 2, 0.1, "it lowers"),
        journal.RequestClosed(now - 600, "abcd-1", "abandoned", "no answer"),
        journal.JobEnded(now - 400),
    ]
    run = recorded(tmp_path, entries)
    (tmp_path / "cloud").write_text("#!/bin/sh\necho '[]'\n")
    with pytest.raises(PartlyDone, match="plink spot release abcd"):
        drive_spot(run, job_at("none", os.getpid()), SpotDriveRequest(str(run / "spot" / "market.toml")), print)


@pytest.mark.parametrize("has_deadline", [False, True])
def test_history_that_cannot_be_had_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_deadline: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    run = recorded(tmp_path, [], MARKET_FILE + PROVIDER + "on_demand = true\n")
    market = (run / "spot" / "market.toml").rename(tmp_path / "market.toml")
    (tmp_path / "cloud").write_text("#!/bin/sh\n[ $1 = prices ] && exit 1\necho '[]'\n")
    (run / "spot" / "job-ended").touch()
    request = SpotDriveRequest(str(market))
    if has_deadline:
        request = replace(request, deadline_s=9.0, iterations=9, budget=40.0)
        drive_spot(run, job_at("none", os.getpid()), request, print)
        assert (run / "spot" / "market.toml").exists()
        assert spot_status(run).cost.budget == 40
    else:
        with pytest.raises(PlinkError):
            drive_spot(run, job_at("none", os.getpid()), request, print)
        assert not (run / "spot" / "market.toml").exists()  # nothing to release


@pytest.mark.parametrize("is_supervised", [False, True])
def test_restarted_driver_releases_without_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_supervised: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plink.features.spot.drive.time", SimpleNamespace(sleep=lambda seconds: None))
    run = recorded(tmp_path, ENTRIES[:8])
    (run / "spot" / "job-ended").touch()
    assert request_release(run / "spot")
    instance = '{"id": "i-1", "token": "abcd-1", "since_s": 1700000005, "address": "10.0.0.1"'
    (tmp_path / "held.json").write_text(f"[{instance}}}]")
    (tmp_path / "ended.json").write_text(f'[{instance}, "until_s": 1700003600, "end": "released"}}]')
    (tmp_path / "cloud").write_text(
        "#!/bin/sh\ncase $1 in prices) exit 1;; release) touch gone;;\n"
        "listing) if [ -f gone ]; then cat ended.json; else cat held.json; fi;; esac\n"
    )
    notes: list[str] = []
    drive_spot(
        run, job_at("none", os.getpid()),
        SpotDriveRequest(str(run / "spot" / "market.toml")), notes.append, is_supervised=is_supervised,
    )  # fmt: skip
    assert (tmp_path / "gone").exists()
    assert release_is_requested(run / "spot") == is_supervised  # a driver that a user starts rents again
    assert any("no history of prices" in note for note in notes)


def test_dry_run_says_what_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is released, so nothing is said to have been."""
    run = recorded(tmp_path, ENTRIES[:1])
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    dry_run_spot(run, job_at("none", 2**22 + 1), SpotDriveRequest(str(run / "spot" / "market.toml")), notes.append)
    assert "a driver would say: i-1: of this run, but not in its journal; released" in notes
    assert "a driver would release i-1" in notes
    assert all(note.startswith("a driver would ") for note in notes)
    assert not (tmp_path / "asked-release.json").exists()


def test_hint_after_an_interrupt_is_the_whole_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("plink.features.spot.command.live_job", lambda run: (SimpleNamespace(id="abcd"), None))
    monkeypatch.setattr("plink.drive_spot", interrupted)
    options = ("--prices", "a b.json", "--budget", "40.0", "--per-hour", "6.0", "--deadline", "2h", "--iterations", "9")
    done = typed("spot", "drive", "my market.toml", "last", *options, cwd=tmp_path)
    words = shlex.split(done.stderr.partition("Go on: ")[2].partition(";")[0])
    assert words == ["plink", "spot", "drive", "my market.toml", "abcd", *options[:7], "7200s", *options[8:]]

"""The driver that an elastic job is started with: what is refused before the job, lost drivers, and the end."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plink.errors import InputError, PartlyDone, PlinkError, UsageError
from plink.features.elastic.session import Rental
from plink.features.spot.drive import checked_max_hosts, driver_command, request_of
from plink.features.spot.request import SpotDriveRequest
from plink.model.hosts import Host, Hosts
from runners.spot.process import DriverProcess
from tests.conftest import typed
from tests.docs.samples import MARKET_FILE
from tests.features.spot.test_drive import ENTRIES, PROVIDER, recorded
from tests.lab.waiting import until
from tests.stand_ins import program

RELIABLE = Hosts(tuple(Host(f"r{k}", f"10.0.0.{k}", tier="reliable") for k in range(3)))
SMALL = MARKET_FILE.replace("max_cores = 768", "max_cores = 24")  # 6 of c4.xlarge


def market(folder: Path, text: str = SMALL + PROVIDER) -> SpotDriveRequest:
    path = folder / "market.toml"
    path.write_text(text)
    program(folder, "cloud", "")
    return SpotDriveRequest(str(path))


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_max_hosts_has_room_for_all_that_is_rented(tmp_path: Path) -> None:
    request = market(tmp_path)
    assert checked_max_hosts(request, RELIABLE, "ssh", None) == 9
    assert checked_max_hosts(request, RELIABLE, "ssh", 9) == 9
    with pytest.raises(UsageError, match="--max-hosts 9"):
        checked_max_hosts(request, RELIABLE, "ssh", 8)


def test_anchors_that_work_are_among_the_cores(tmp_path: Path) -> None:
    working = SMALL.replace("count = 3\n", "count = 3\nworks = true\n")
    assert checked_max_hosts(market(tmp_path, working + PROVIDER), RELIABLE, "ssh", None) == 3 + (24 - 12) // 4


@pytest.mark.parametrize(
    ("text", "runner", "message"),
    [
        (SMALL + PROVIDER, "slurm", "--runner"),
        (SMALL, "ssh", "provider"),
        (SMALL.replace("count = 3", "count = 2") + PROVIDER, "ssh", "anchors.count"),
        (SMALL + PROVIDER.replace('["./cloud", "acquire"]', '["./gone"]'), "ssh", "./gone"),
        (SMALL + '[provider]\nkind = "replay"\nhistory = "gone.json"\nhosts = "gone.txt"\n', "ssh", "gone.txt"),
        (SMALL + '[provider]\nkind = "aws"\nregion = "us-east-1"\nimage = "ami-1"\n', "ssh", "aws"),
    ],
)
def test_refused_before_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, runner: str, message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises((UsageError, InputError), match=message):
        checked_max_hosts(market(tmp_path, text), RELIABLE, runner, None)


def test_hosts_of_a_lab_are_not_rented_for_others(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text(
        "zone,type,timestamp,price\nzone-a,c4.xlarge,2016-06-11T00:00:00Z,0.1\n"
        "zone-a,c4.xlarge,2016-06-12T00:00:00Z,0.1\n"
    )
    (tmp_path / "more.txt").write_text("w1 address=127.0.0.1\n")
    text = SMALL + '[provider]\nkind = "replay"\nhistory = "prices.csv"\nhosts = "more.txt"\n'
    assert checked_max_hosts(market(tmp_path, text), RELIABLE, "ssh", None) == 4  # one host of its own
    with pytest.raises(UsageError, match="where the job's hosts are"):
        checked_max_hosts(market(tmp_path, text), Hosts(RELIABLE.members, "quiet"), "ssh", None)


@pytest.mark.parametrize("cores", ["inf", "1e18"])
def test_cores_without_a_bound_are_refused(tmp_path: Path, cores: str) -> None:
    request = market(tmp_path, MARKET_FILE.replace("max_cores = 768", f"max_cores = {cores}") + PROVIDER)
    with pytest.raises(UsageError, match="max_cores"):
        checked_max_hosts(request, RELIABLE, "ssh", None)


def test_deadline_needs_zones(tmp_path: Path) -> None:
    text = SMALL.replace('zones = ["zone-a", "zone-b"]\n', "") + PROVIDER + "on_demand = true\n"
    request = replace(market(tmp_path, text), deadline_s=3600.0, iterations=9)
    with pytest.raises(UsageError, match="zones"):
        checked_max_hosts(request, RELIABLE, "ssh", None)


@pytest.mark.parametrize("words", [("--budget", "3"), ("--per-hour", "3"), ("--prices", "prices.json")])
def test_options_that_go_with_spot(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = typed("elastic", "run", "--runner", "local", *words, "fit.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "--spot" in done.stderr


def test_deadline_has_room_for_the_reference_machines(tmp_path: Path) -> None:
    request = replace(market(tmp_path, SMALL + PROVIDER + "on_demand = true\n"), deadline_s=3600.0, iterations=9)
    assert checked_max_hosts(request, RELIABLE, "ssh", None) == 9 + 64


def test_fallback_needs_no_more_room_than_the_core_limit(tmp_path: Path) -> None:
    usual = market(tmp_path, SMALL + PROVIDER + "on_demand = true\n")
    request = replace(usual, fallback=True)
    assert checked_max_hosts(request, RELIABLE, "ssh", None) == checked_max_hosts(usual, RELIABLE, "ssh", None)


def test_deadline_needs_iterations_and_a_provider_of_on_demand_machines(tmp_path: Path) -> None:
    request = market(tmp_path)
    with pytest.raises(UsageError, match="--iterations"):
        replace(request, deadline_s=3600.0)
    with pytest.raises(UsageError, match="on_demand"):
        checked_max_hosts(replace(request, deadline_s=3600.0, iterations=9), RELIABLE, "ssh", None)


def test_driver_reads_the_request_that_its_job_wrote(tmp_path: Path) -> None:
    request = SpotDriveRequest("my market.toml", ("a.json", "b c.json"), 40.0, 6.5, 3600.0, 9)
    assert driver_command(request, tmp_path)[-2:] == ["drive-job", tmp_path.name]
    assert request_of(tmp_path) == request
    (tmp_path / "spot-driver.json").write_text('{"market": "market.toml", "budget": "all"}')
    with pytest.raises(InputError, match="budget"):
        request_of(tmp_path)


def test_dry_run_checks_the_market_file(tmp_path: Path) -> None:
    market(tmp_path, SMALL.replace("count = 3", "count = 1") + PROVIDER)
    words = ("elastic", "run", "--runner", "local", "--spot", "market.toml", "--dry-run")
    assert typed(*words, "fit.py", cwd=tmp_path).returncode == 0
    refused = typed(*words, "--max-hosts", "3", "fit.py", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--max-hosts 8" in refused.stderr


def driver(folder: Path, body: str, notes: list[str]) -> DriverProcess:
    """A driver that is this program, with the number of its starts in ``n``."""
    script = folder / "driver.py"
    script.write_text(
        "import pathlib, sys, time, os, signal\ncount = pathlib.Path('starts')\n"
        "n = len(count.read_text()) if count.exists() else 0\ncount.write_text('x' * (n + 1))\n" + body
    )
    return DriverProcess(folder, [sys.executable, str(script)], notes.append, restart_s=0.01)


def test_lost_driver_is_started_again_and_what_it_says_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    notes: list[str] = []
    process = driver(
        tmp_path, "print('plink: driver', n, flush=True)\nif n < 2:\n    os.kill(os.getpid(), signal.SIGKILL)\n", notes
    )
    process.start()
    process._thread.join()  # the third one ends well
    process.finish()
    assert len((tmp_path / "starts").read_text()) == 3
    assert [note for note in notes if note.startswith("driver ")] == ["driver 0", "driver 1", "driver 2"]


def test_refused_driver_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    notes: list[str] = []
    process = driver(tmp_path, "print('plink: no such market', file=sys.stderr)\nsys.exit(2)\n", notes)
    process.start()
    process._thread.join()  # it does not wait for another start
    process.finish()
    assert len((tmp_path / "starts").read_text()) == 1
    assert "no such market" in notes
    assert any("was refused" in note for note in notes)


def test_driver_is_not_started_again_after_a_release(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "spot").mkdir()
    notes: list[str] = []
    process = driver(
        tmp_path,
        "from runners.spot.journal import request_release\nrequest_release(pathlib.Path('spot'))\nsys.exit(n == 0)\n",
        notes,
    )
    process.start()
    process._thread.join()
    process.finish()
    assert len((tmp_path / "starts").read_text()) == 1
    assert any("plink spot drive" in note for note in notes)


def test_refused_driver_is_started_again_while_something_may_be_held(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    (run / "run.json").write_text("{}")
    notes: list[str] = []
    script = tmp_path / "driver.py"
    script.write_text("import pathlib, sys\nif not pathlib.Path('once').exists():\n"
                      "    pathlib.Path('once').touch()\n    sys.exit(2)\n")  # fmt: skip
    process = DriverProcess(run, [sys.executable, str(script)], notes.append, restart_s=0.01)
    process.start()
    process._thread.join()
    process.finish()
    assert any("leases" in note for note in notes)
    assert not (tmp_path / "asked-release.json").exists()  # the second one ended well


def test_driver_that_requested_nothing_leaves_nothing_to_release(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:1])
    process = DriverProcess(run, [sys.executable, "-c", "raise SystemExit(1)"], lambda note: None)
    process.start()
    process.finish()
    assert not (tmp_path / "asked-listing.json").exists()


def test_run_that_is_not_recorded_rents_nothing(tmp_path: Path) -> None:
    process = driver(tmp_path, "", [])
    with pytest.raises(PlinkError, match="not recorded"):
        process.start()
    process.finish()
    assert not (tmp_path / "starts").exists()


def test_what_a_lost_driver_held_is_released_at_the_end(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    started = threading.Event()
    process = DriverProcess(
        run, [sys.executable, "-c", "raise SystemExit('lost')"], lambda note: started.set(), restart_s=60.0
    )
    process.start()
    assert started.wait(60)
    process.finish()
    assert json.loads((tmp_path / "asked-release.json").read_text()) == {"run": "abcd", "instances": ["i-1"]}


def test_what_cannot_be_released_at_the_end_is_said(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    (run / "spot" / "market.toml").write_text("not a market file")
    process = DriverProcess(run, [sys.executable, "-c", "raise SystemExit(2)"], lambda note: None)
    process.start()
    with pytest.raises(PartlyDone, match="plink spot release abcd"):
        process.finish()


ENDS_WITH_THE_JOB = """
from pathlib import Path
from plink.model.elastic.status import JobControl
from runners.spot.elastic_job import ElasticJob
job = ElasticJob(Path.cwd(), JobControl(socket="none", pid=os.getppid(), lab=None, runner="local"))
print("drives", flush=True)
while (view := job.view()) is None or not view.has_ended:
    time.sleep(0.05)
print("released", flush=True)
"""


def test_driver_learns_of_an_end_that_is_in_no_record(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "plink.run/1", "exit_code": null}')
    notes: list[str] = []
    process = driver(tmp_path, ENDS_WITH_THE_JOB, notes)
    process.start()
    until(lambda: "drives" in notes, 60, "the driver runs")
    process.finish(timeout_s=60.0)
    assert "released" in notes


@pytest.mark.extended
def test_driver_that_cannot_learn_of_the_end_is_replaced_at_once(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    (run / "spot" / "job-ended").symlink_to(tmp_path / "gone" / "file")
    notes: list[str] = []
    process = DriverProcess(
        run, [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(900)"], notes.append
    )
    process.start()
    until(lambda: "1" in notes, 60, "the driver runs")
    process.finish()
    assert json.loads((tmp_path / "asked-release.json").read_text()) == {"run": "abcd", "instances": ["i-1"]}


INTERRUPTS = """
import os, pathlib, signal, time
end = time.monotonic() + 100
print("drives", flush=True)
while not pathlib.Path("{run}/spot/job-ended").exists() and time.monotonic() < end:
    time.sleep(0.05)
if os.getppid() == {parent}:
    os.kill({parent}, signal.SIGUSR1)
while not pathlib.Path("{folder}/over").exists() and time.monotonic() < end:
    time.sleep(0.05)
"""


def rental_of(
    folder: Path, program: str, monkeypatch: pytest.MonkeyPatch, note: Callable[[str], None] = print
) -> Rental:
    """What a job rents, with this program for its driver."""
    run = recorded(folder, ENTRIES[:8])
    argv = [sys.executable, "-c", program.format(run=run, folder=folder, parent=os.getpid())]
    monkeypatch.setattr("plink.features.elastic.session.driver_command", lambda request, name: argv)
    rental = Rental(SpotDriveRequest(str(run / "spot" / "market.toml")), note)
    rental.start(run)
    return rental


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_interrupt_while_the_driver_releases_leaves_that_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, notes = signal.signal(signal.SIGUSR1, interrupt), list[str]()
    try:
        rental = rental_of(tmp_path, INTERRUPTS, monkeypatch, notes.append)
        until(lambda: "drives" in notes, 60, "the driver runs")
        with pytest.raises(KeyboardInterrupt):
            rental.finish()
    finally:
        signal.signal(signal.SIGUSR1, before)
        (tmp_path / "over").touch()
    assert "plink spot status abcd" in capsys.readouterr().err


def test_interrupt_while_this_process_releases_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runners.spot.process.release_spot", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rental_of(tmp_path, "raise SystemExit(2)", monkeypatch).finish()
    assert "plink spot release abcd" in capsys.readouterr().err


def test_request_in_doubt_at_the_end_is_said(tmp_path: Path) -> None:
    run = recorded(tmp_path, ENTRIES[:8])
    process = DriverProcess(run, [sys.executable, "-c", "raise SystemExit(3)"], lambda note: None)
    process.start()
    with pytest.raises(PartlyDone, match="plink spot release abcd"):
        process.finish()

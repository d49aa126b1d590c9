"""An elastic job from the command line: started, shown, kept."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec.structs

from plink.errors import PartlyDone, PlinkError, UsageError
from plink.features.elastic.request import ElasticRequest
from plink.features.elastic.run import ElasticObserver, check_program, prepare_elastic, run_elastic
from plink.features.elastic.show import Screen
from plink.features.launch.request import JobRequest
from plink.features.launch.run import RecordRequest
from plink.features.spot.drive import checked_max_hosts, driver_command
from plink.features.spot.rented import cost_line
from plink.features.spot.request import SpotDriveRequest
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.network import Network, read_network
from plink.model.spot.results import SpotStatus
from plink.records import workspace
from plink.terminal.screen import print_json, progress, say, say_error
from runners.choice import KUBERNETES
from runners.job.placement import PlacementError
from runners.job.runner import Job
from runners.spot.process import DriverProcess
from runners.spot.status import status_if_rented

_MAX_LOCAL_SLOTS = 64


def run_job(
    program: str, args: list[str], options: JobRequest, request: ElasticRequest, rental_request: SpotDriveRequest | None
) -> int:
    """Run it to its end; returns the exit code to end with. :raises PlinkError: when the job could not be run."""
    check_program(program)
    runner = request.runner
    options.check(runner, external=False)
    record = RecordRequest(options.log_dir, {"python": options.python})
    request = replace(request, accept_new_host_keys=options.accept_new_host_keys, record=record)
    in_pods = runner == KUBERNETES
    job = Job(
        program=program,
        args=tuple(args),
        workdirs=(options.workdir,) if options.workdir else (".",) if in_pods else (os.getcwd(), "~"),
        pythons=(options.python or ("python3" if in_pods else sys.executable),),
        env=dict(options.env),
    )
    job = options.applied(job)
    hosts = _hosts(runner, options)
    if rental_request is not None:
        request = replace(request, max_hosts=checked_max_hosts(rental_request, hosts, runner, request.max_hosts))
    if options.dry_run:
        _show_nodes(hosts, prepare_elastic(job, hosts, request)[0])
        return 0
    screen = Screen(len(str(2 * len(hosts))), options.as_json)
    rental = Rental(rental_request, screen.note)
    try:
        with screen, contextlib.ExitStack() as bars:
            advance = bars.enter_context(progress("connecting", "copying"))
            observer = ElasticObserver(
                screen.line,
                lambda locations: bars.close(),
                lambda what, done, total: advance[what](done, total),
                on_status=screen.status,
                on_start=rental.start,
            )
            result = run_elastic(job, hosts, replace(request, network=_network()), observer)
    except PlacementError as error:
        for rank in error.locations:
            if rank.problem:
                say_error(f"assigned to {rank.host}, runs on {rank.hostname}: {rank.problem}")
        raise
    finally:
        rental.finish()
    if options.as_json:
        print_json((result if rental.status is None else msgspec.structs.replace(result, spot=rental.status)).to_json())
    else:
        screen.last_word(result)
    if result.exit_code:
        say_error(f"error: {result.why}")
    return result.exit_code or rental.failure


def _network() -> Network | None:
    """The last one that was measured here, which may know the racks of the hosts."""
    if not workspace.NETWORK.is_file():
        return None
    try:
        return read_network(workspace.NETWORK)
    except PlinkError as error:
        say_error(f"the racks of hosts are not known: {error}")
        return None


def _hosts(runner: str, options: JobRequest) -> Hosts:
    """:raises UsageError: there are none."""
    if runner == "local":
        if options.hosts_file is not None:
            raise UsageError("--runner local runs every host's part on this machine; omit --hosts (--slots N)")
        number = options.slots or 2
        if number > _MAX_LOCAL_SLOTS:
            raise UsageError(f"--slots {number}: {_MAX_LOCAL_SLOTS} parts on one machine at most")
        tiers = ("reliable", *("transient",) * (number - 1))
        members = tuple(Host(f"local-{k}", "127.0.0.1", tier=tier) for k, tier in enumerate(tiers))
        return Hosts(members)
    if options.hosts_file is None:
        raise UsageError("an elastic job needs --hosts FILE, where hosts have tier=reliable or tier=transient")
    everyone = read_hosts(options.hosts_file)
    if everyone.hubs:
        say(f"hubs take no part in an elastic job: {', '.join(host.name for host in everyone.hubs)}")
    return everyone.ranked()


def _show_nodes(hosts: Hosts, node: Job) -> None:
    for host in hosts:
        print(f"# on {host.name}, {host.tier}\n{shlex.join([node.program, *node.args])}")
    say("no host was asked: whether it can be reached, makes the program and has the memory shows when the job starts")


class Rental:
    """The instances of one job. ``status``: of them once they are released, None where there is none;
    ``failure``: an exit code where something is held still."""

    def __init__(self, request: SpotDriveRequest | None, note: Callable[[str], None]) -> None:
        self._request, self._note = request, note
        self._driver: DriverProcess | None = None
        self._folder: Path | None = None
        self.status: SpotStatus | None = None
        self.failure = 0

    def start(self, folder: Path) -> None:
        """Start the driver of a run. :raises PlinkError: when the run is not recorded."""
        if self._request is not None:
            self._folder = folder
            self._driver = DriverProcess(folder, driver_command(self._request, folder), self._note)
            self._driver.start()

    def finish(self) -> None:
        """Return when nothing is held, and say what it cost. The run's record has its end already."""
        if self._driver is None or self._folder is None:
            return
        try:
            self._driver.finish()
        except PartlyDone as error:
            say_error(f"error: {error}")
            self.failure = error.exit_code
        except KeyboardInterrupt:
            run = self._folder.name
            if self._driver.is_running:
                say_error(f"the spot driver goes on releasing; see `plink spot status {run}`")
            else:
                say_error(f"instances may be held still, and no driver runs; type `plink spot release {run}`")
            raise
        try:
            self.status = status_if_rented(self._folder)
        except PlinkError as error:
            say_error(f"what it cost is not known: {error}")
        if self.status is not None:
            say(cost_line(self.status))

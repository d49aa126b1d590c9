"""An elastic job from the command line: started, shown, kept.

Imported by the commands that run one, when they do.
"""

import contextlib
import os
import sys
import time
import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plink.api.connecting import connector_for
from plink.cli.elastic.live import SOCKET
from plink.cli.elastic.options import ElasticOptions
from plink.cli.elastic.screen import Screen
from plink.cli.job_options import AGILEML, JobOptions
from plink.cli.job_setup import with_options
from plink.cli.launching import RunRequest, record_run, recorded, run_folder
from plink.cli.screen import print_json, progress, say, say_error
from plink.errors import PlinkError, UsageError
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.storage import write_document
from plink.records import workspace
from plink.records.elastic_log import NAME as LOG
from plink.records.elastic_log import ElasticLog, Entry
from plink.records.runs import Record
from plink.remote.connector import Connector
from runners.agile.hub import Ended, Hub, Report, Wishes
from runners.choice import KUBERNETES
from runners.job.job import Job
from runners.job.proof import Finding
from runners.job.result import OrderNotKept, new_id
from runners.local import LocalConnector

_RUNNERS = ("ssh", "local", "slurm")  # of those that `plink launch` has
_NODE = ("-m", "plink.runtime.agileml.node")
_MOST_LOCAL = 64
_KINDS: dict[str, Any] = {kind.what: kind for kind in typing.get_args(Entry)}


@dataclass(frozen=True)
class _Request:
    """What was asked for; ``settings``: as :class:`solvers.elastic.settings.Settings` has them."""

    runner: str
    options: JobOptions
    elastic: ElasticOptions
    settings: dict[str, Any]


def launch_with_defaults(program: str, args: list[str], options: JobOptions) -> int:
    """``plink launch --backend agileml``; returns as :func:`run_job` does.

    :raises PlinkError: as that does. :raises UsageError: for what an elastic job does not take.
    """
    runner = options.runner or "ssh"
    if runner not in _RUNNERS:
        raise UsageError(f"--backend {AGILEML}: choose --runner {', '.join(_RUNNERS)}, not {runner}")
    for name in ("order", "algo", "autotune", "tail", "launcher_args"):
        if (value := getattr(options, name)) is not None and value is not False:
            raise UsageError(f"--backend {AGILEML}: omit --{name.replace('_', '-')}, its hosts have no ranks")
    return run_job(program, args, runner, replace(options, backend=None), ElasticOptions())


def run_job(program: str, args: list[str], runner: str, options: JobOptions, elastic: ElasticOptions) -> int:
    """Run it to its end; returns the exit code to end with. :raises PlinkError: when the job could not be run."""
    if not program.endswith(".py"):
        raise UsageError(f"an elastic job: {program} must be a .py file that defines make(arguments)")
    typed = options.check(runner, external=False)
    request = _Request(runner, options, elastic, elastic.settings())
    hosts = _hosts(request)
    python = options.python or ("python3" if runner == KUBERNETES else sys.executable)
    job = Job(
        program=python,
        args=(*_NODE, program, *args),
        workdirs=(options.workdir,) if options.workdir else ("." if runner == KUBERNETES else os.getcwd(), "~"),
        # Or the parts of one machine would fight over its cores.
        env=({"OMP_NUM_THREADS": "1"} if runner == "local" else {}) | options.environment,
    )
    job = with_options(job, options, typed)
    connector = _connector(request, hosts)
    if options.dry_run:
        _rehearse(hosts, job)
        return 0
    run_id = new_id()
    typed_job = replace(job, program=program, args=tuple(args), pythons=(python,))
    note = {"backend": AGILEML, "settings": request.settings}
    record = record_run(run_id, runner, typed_job, RunRequest(hosts, options), note)
    screen = Screen(len(str(2 * len(hosts))), options.as_json)
    try:
        with recorded(record, run_id) as ended, run_folder(record) as folder, contextlib.ExitStack() as bars:
            bars.callback(screen.close)
            result = _run(hosts, job, connector, request, screen, record, folder, bars)
            ended.update(exit_code=result.code, seconds=result.seconds, why=result.why)
    except OrderNotKept as error:
        for finding in error.findings:
            if finding.wrong:
                say_error(f"asked for {finding.host}, found {finding.hostname}: {finding.wrong}")
        raise
    if options.as_json:
        print_json({"schema": "plink.elastic/1", "id": run_id, **ended, **screen.summary()})
    else:
        screen.last_word(result, run_id)
    if result.code:
        say_error(f"error: {result.why}")
    return result.code


def _run(
    hosts: Hosts, job: Job, connector: Any, request: _Request, screen: Screen, record: Record | None, folder: Path,
    bars: contextlib.ExitStack,
) -> Ended:  # fmt: skip
    shown_bars = bars.enter_context(contextlib.ExitStack())
    shown = shown_bars.enter_context(progress("connecting", "copying"))
    log, notes = ElasticLog(folder / LOG), (folder / "notes.log").open("a")

    def close() -> None:
        log.close()
        with contextlib.suppress(OSError):
            notes.close()
        if log.trouble is not None and (record is None or record.trouble is None):
            say_error(log.trouble)

    bars.callback(close)
    began = time.monotonic()

    def sink(number: int | None, stream: str, line: str) -> None:
        if record is not None:
            record.line(number, stream, line)
        screen.line(number, stream, line)

    def on_log(line: dict[str, Any]) -> None:
        log.add(_KINDS[line["what"]](**{key: value for key, value in line.items() if key != "what"}))
        screen.log(line)

    def on_note(text: str) -> None:
        with contextlib.suppress(OSError):  # the disk is full, which the end of the log beside it tells
            notes.write(f"{time.monotonic() - began:9.3f} {text}\n")
            notes.flush()

    def on_proof(findings: list[Finding]) -> None:
        shown_bars.close()
        screen.began(len(findings))

    report = Report(
        sink, on_log, on_note, say_error, on_proof, shown["connecting"], shown["copying"], screen.status, folder
    )
    machines: dict[str, dict[str, Any]] | None = None if request.runner == "local" else {}
    wishes = Wishes(request.settings, request.elastic.max_hosts, _racks(hosts))
    hub = Hub(connector, job, wishes, report, machines, time.monotonic)
    write_document(folder / SOCKET, {"schema": "plink.elastic-job/1", "socket": hub.asking.name, "pid": os.getpid(),
                                     "lab": hosts.lab, "runner": request.runner})  # fmt: skip
    return hub.run(hosts)


def _racks(hosts: Hosts) -> dict[str, str]:
    """Groups of near hosts in the network file, named after their first host; empty where it does not know these."""
    if not workspace.NETWORK.is_file():
        return {}
    from plink.model.network import read_network
    from solvers.costs.fabric import fabric_of

    try:
        network = read_network(workspace.NETWORK)
        groups = fabric_of(network).group_of
    except PlinkError as error:
        say_error(f"note: the racks of hosts are not known: {error}")
        return {}
    known = network.hosts.by_name()
    if not any(host.name in known and known[host.name].address == host.address for host in hosts):
        return {}
    if groups.max() == 0:
        return {}
    names = network.hosts.names
    first = {int(group): names[index] for index, group in reversed(list(enumerate(groups)))}
    return {name: first[int(group)] for name, group in zip(names, groups, strict=True)}


def _hosts(request: _Request) -> Hosts:
    """:raises UsageError: there are none, or none that is reliable."""
    options = request.options
    if request.runner == "local":
        if options.hosts_file is not None:
            raise UsageError("--runner local runs every host's part on this machine; omit --hosts (--slots N)")
        number = options.slots or 2
        if number > _MOST_LOCAL:
            raise UsageError(f"--slots {number}: {_MOST_LOCAL} parts on one machine at most")
        tiers = ("reliable", *("transient",) * (number - 1))
        members = tuple(Host(f"local-{k}", "127.0.0.1", tier=tier) for k, tier in enumerate(tiers))
        return Hosts(members)
    if options.hosts_file is None:
        raise UsageError("an elastic job needs --hosts FILE, where hosts have tier=reliable or tier=transient")
    hosts = read_hosts(options.hosts_file)
    if not any(host.tier == "reliable" for host in hosts):
        raise UsageError(
            f"{options.hosts_file}: no reliable host: parameters would be lost with the hosts that may be taken away; "
            "mark one with tier=reliable"
        )
    return hosts


def _connector(request: _Request, hosts: Hosts) -> Connector:
    """How its hosts are reached. :raises UsageError: what is needed for that is not here."""
    if request.runner == "local":
        return LocalConnector()
    over_ssh = connector_for(
        hosts, request.options.accept_new_host_keys
    )  # from inside the lab, where the hosts are a lab's
    if request.runner == "slurm":
        from runners.launchers.steps import StepConnector

        return StepConnector()
    if request.runner == KUBERNETES:
        from runners.kubernetes.exec import ExecConnector

        return ExecConnector()
    return over_ssh


def _rehearse(hosts: Hosts, job: Job) -> None:
    import shlex

    for host in hosts:
        print(f"# on {host.name}, {host.tier}\n{shlex.join([job.program, *job.args])}")
    say("no host was asked: whether it can be reached, makes the program and has the memory shows when the job starts")

"""What reads bytes that others wrote, each as a function of the bytes: the one place that both the properties
(``test_targets.py``) and the guided fuzzer (``guided.py``) take them from.

A target's contract: any bytes give either a valid object, which comes back the same where there is a writer, or one
PlinkError of one short line. Another exception, an assertion here, seconds or a gigabyte are what a fuzzer looks for.
"""

import atexit
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from plink.errors import PlinkError
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import NetworkDetails

Read = Callable[[bytes], object]
_MAX_CHARACTERS = 1000  # characters of a message

THREE = Hosts((Host("a", "10.0.0.1", 2), Host("b", "10.0.0.2", 2, "transient"), Host("c.x.org", "c.x.org", price=0.5)))


@dataclass(frozen=True)
class Target:
    """``read`` may raise PlinkError and nothing else; ``seeds`` are inputs to begin with, good ones among them."""

    read: Read
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> bool:
        """Whether the bytes were taken; raises what is wrong with the code."""
        return _tried(lambda: self.read(data))


def _tried(read: Callable[[], object]) -> bool:
    """Whether it could be read; refused it is in a line."""
    try:
        read()
    except PlinkError as error:
        line = str(error)
    else:
        return True
    assert line, "an error that says nothing"
    assert len(line) <= _MAX_CHARACTERS, f"{len(line)} characters: {line[:200]}"
    assert line.isprintable(), repr(line[:300])
    return False


@cache
def _folder() -> Path:
    """Of this process, gone with it; in memory where there is such a place."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="plink-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _file(data: bytes, name: str) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


def _named(read: Callable[[Path], Any], path: Path) -> Any:
    """What is in a file; what is wrong with it begins with the file's name."""
    try:
        return read(path)
    except PlinkError as error:
        if not str(error).startswith(str(path)):
            raise AssertionError(f"{str(error)[:200]} does not name {path}") from error
        raise


def _json(*documents: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(document).encode() for document in documents)


# Files that people and other programs write.


def hosts(data: bytes) -> None:
    """Hosts files."""
    from plink.model.hosts import parse_hosts, read_hosts, render_hosts

    hosts = _named(read_hosts, _file(data, "hosts.txt"))
    assert len(set(hosts.names)) == len(hosts)
    assert parse_hosts(render_hosts(hosts), "again") == hosts


def network(data: bytes) -> None:
    """``plink.network/1``: what is read, what is asked of it later, and a probe that goes on from it."""
    from plink.model.network import network_from_json, read_network
    from plink.model.storage import parse_document, render_document
    from probes.measurements import measurements_from

    network = _named(read_network, _file(data, "network.json"))
    again = network_from_json(parse_document(render_document(network.to_json()), "again"), "again")
    assert again.fingerprint() == network.fingerprint()
    assert again.hosts == network.hosts
    for key in NetworkDetails.__struct_fields__:
        if key.endswith("_us") or key == "hops":
            _tried(lambda key=key: network.detail(key))  # type: ignore[misc]
    _tried(network.halves)
    measurements_from(network).network().to_json()


def compared(data: bytes) -> None:
    """``plink.network/1`` beside one of another day: ``plink diff``, which reads what hardly anybody else does."""
    from plink.model.network import network_from_json, read_network
    from plink.model.storage import parse_document
    from solvers.changes.compare import compare
    from solvers.changes.differences import ChangeThresholds
    from tests.fuzz.seeds import seeds

    good = network_from_json(parse_document(_text(seeds()["compared"][0]), "old.json"), "old.json")
    other = read_network(_file(data, "new.json"))
    for sides in ((good, other), (other, good), (other, other)):
        _tried(lambda sides=sides: compare(*sides, ChangeThresholds()))  # type: ignore[misc]


def order(data: bytes) -> None:
    """``plink.order/1``, and lists of names."""
    from plink.model.order import order_from_json, read_order
    from plink.model.storage import parse_document, render_document

    order = _named(read_order, _file(data, "order"))
    assert order_from_json(parse_document(render_document(order.to_json()), "again"), "again") == order
    order.arrange(THREE, "order")


def groups(data: bytes) -> None:
    """Lists of groups, and ``plink.groups/1``."""
    from plink.model.groups import parse_groups, read_groups

    groups = read_groups(_file(data, "groups"))
    lines = "\n".join(" ".join(group) for group in groups)
    if all(groups) and lines:
        assert parse_groups(lines, "again") == groups


def plan(data: bytes) -> None:
    """``plink.plan/1``, with its schedule and masters."""
    from plink.model.plan import plan_from_json, read_plan
    from plink.model.storage import parse_document, render_document

    plan = _named(read_plan, _file(data, "plan.json"))
    again = plan_from_json(parse_document(render_document(plan.to_json()), "again"), "again")
    assert again.to_json() == plan.to_json()


def schedule(data: bytes) -> None:
    """``plink.schedule/1``."""
    from plink.model.schedule_file import read_schedule, schedule_from_json
    from plink.model.storage import parse_document, render_document

    schedule = _named(read_schedule, _file(data, "schedule.json"))
    again = schedule_from_json(parse_document(render_document(schedule.to_json()), "again"), "again")
    assert again.to_json() == schedule.to_json()


def aggregation(data: bytes) -> None:
    """``plink.aggregation/2``, and plans that ranks aggregate by; run on random numbers before they are believed."""
    from plink.runtime.allreduce.aggregation import from_bytes, read_aggregation

    aggregation = read_aggregation(_file(data, "aggregation.json"))
    assert from_bytes(aggregation.to_bytes()).to_bytes() == aggregation.to_bytes()


def topology(data: bytes) -> None:
    """Whatever a provider or a scheduler says."""
    from plink.model.topology import hosts_of, paths_for, read_topology

    topology = read_topology(_file(data, "topology"))
    assert paths_for(topology, hosts_of(topology)) == list(topology.paths.values())


def truth(data: bytes) -> None:
    """Where hosts really are, in any of its forms."""
    from plink.model.truth import read_truth

    assert len(read_truth(_file(data, "truth"), THREE)) == len(THREE)


def compressed(data: bytes) -> None:
    """Any document in a file whose name ends in ``.gz``."""
    from plink.model.storage import read_document

    read_document(_file(data, "network.json.gz"))


def elastic_log(data: bytes) -> None:
    """The log of an elastic run, and what it amounts to; another run may go on with it."""
    from plink.records.elastic_history import history_of
    from plink.records.elastic_log import ElasticLog, read_elastic_log

    path = _file(data, "elastic.jsonl")
    entries = read_elastic_log(path)
    history_of(entries)
    log = ElasticLog(path)
    log.close()
    assert read_elastic_log(path)[: len(entries)] == entries


def autotune_log(data: bytes) -> None:
    """The log of Autotune, decided again."""
    from runners.autotune.daemon import read_log
    from solvers.autotune.trajectory import TuningTrajectory, decide

    assignment, settings, lines = read_log(_file(data, "autotune.jsonl"))
    course = TuningTrajectory(assignment)
    for _, stretch in lines:
        course, _ = decide(course, stretch, settings)


def run(data: bytes) -> None:
    """The file of a job that was run: listed, shown, and asked for again."""
    from plink.records.runs import Run, run_named, runs_in

    folder = _folder() / "runs"
    (folder / "one").mkdir(parents=True, exist_ok=True)
    (folder / "one" / "run.json").write_bytes(data)
    assert len(list(runs_in(folder))) <= 1
    run: Run = run_named(folder, "last")
    for ask in (run.hosts, lambda: run.value(str, "program"), lambda: run.value(tuple[str, ...], "args")):
        _tried(ask)
    run.machines()


def shown_runs(data: bytes) -> None:
    """The same by the command line."""
    import io

    from plink.features.runs.show import print_runs, run_lines
    from plink.records.runs import runs_in

    folder = _folder() / ".plink" / "runs"
    (folder / "one").mkdir(parents=True, exist_ok=True)
    (folder / "one" / "run.json").write_bytes(data)
    with contextlib.chdir(_folder()), contextlib.redirect_stdout(io.StringIO()):
        print_runs(list(runs_in(folder)))
        for run in runs_in(folder):
            list(run_lines(run))


def check(data: bytes) -> None:
    """``plink.check/1``: runs that were measured."""
    from plink.model.check import read_benchmark_runs

    assert read_benchmark_runs(_file(data, "check.json"))


def embedding(data: bytes) -> None:
    """Where hosts were placed."""
    from plink.features.report.projection import map_of
    from plink.model.codec import decode
    from plink.model.embedding import NetworkEmbedding
    from plink.model.storage import parse_document

    document = parse_document(_text(data), "embedding.json")
    embedding = decode(NetworkEmbedding, document, "embedding.json")
    map_of(Network(THREE, np.zeros((3, 3))), np.zeros(3, dtype=np.intp), embedding, "embedding.json")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def quantities(data: bytes) -> None:
    """Sizes, rates and durations."""
    from plink.model.units import parse_bytes, parse_duration, parse_rate

    for parse in (parse_bytes, parse_rate, parse_duration):
        _tried(lambda parse=parse: parse(_text(data)))  # type: ignore[misc]


def checkpoint(data: bytes) -> None:
    """A partition in a file whose digest is right."""
    import hashlib

    from plink.runtime.elastic.partition.serialization import parts_of, read_partition, write_partition

    layout, path = _layout(), _file(data + hashlib.sha256(data).digest(), "partition")
    partition = read_partition(path, layout, sees_ahead=False)
    write_partition(path, parts_of(partition), layout)


def latest_checkpoint(data: bytes) -> None:
    """Which checkpoint is the latest."""
    from plink.runtime.elastic.host.checkpoint_folder import latest

    newest = latest(_file(data, "latest.json").parent)
    assert newest is None or isinstance(newest.clock, int)


@cache
def _layout() -> Any:
    from plink.elastic import Table
    from plink.runtime.elastic.arrays.layout import Layout

    return Layout((Table("a", 10, 3), Table("b", 6, 1, "int64")), 2)


def lab(data: bytes) -> None:
    """What stands of a lab."""
    from plink.model.storage import parse_document
    from runners.lab.blueprint import from_json

    from_json(parse_document(_text(data), "lab.json"), "lab.json")


def known_hosts(data: bytes) -> None:
    """Keys of hosts."""
    from runners.ssh.host_keys import REVOKED, keys_of, marked

    path = _file(data, "known_hosts")
    keys_of("a", [path])
    marked([path], REVOKED)


def ssh_config(data: bytes) -> None:
    """The user's SSH configuration, where OpenSSH is not installed: that would run what is in it."""
    from runners.ssh.settings import ParamikoConfig, settings_for

    config = ParamikoConfig(_file(data, "config"))
    with contextlib.suppress(ValueError):  # which whoever connects turns into an error of that host
        for host in THREE:
            settings_for(host, config, None)


# What programs print.


def iperf3(data: bytes) -> None:
    """The report of iperf3; what is wrong with it is said in the answer."""
    from probes.agent.tools import read_iperf3

    report = read_iperf3(_text(data))
    assert report.get("error") or report["gbps"] > 0
    json.dumps(report, allow_nan=False)


def figure(data: bytes) -> None:
    """What a user's program printed of its speed."""
    from plink.features.compare.metric import detected_metric, metric_from

    lines = _text(data).splitlines()
    for pattern in ("step_s", r"loss (\S+)"):
        _tried(lambda pattern=pattern: metric_from(pattern).parse(lines))  # type: ignore[misc]
    metric = detected_metric(lines)
    assert metric is None or metric.parse(lines) is not None


def launched(data: bytes) -> None:
    """What ranks and launchers print, mixed and cut."""
    from runners.launchers.monitor import OutputParser
    from runners.launchers.slurm import Slurm

    parser = OutputParser(Slurm())
    for line in _text(data).split("\n"):
        list(parser.parse_line("out", line))
    assert all(isinstance(report, dict) for report in (*parser.reports.values(), *parser.exits.values()))
    Slurm().first_failure(_text(data).splitlines())


def environment(data: bytes) -> None:
    """The user's environment on its way through a launcher."""
    import os

    from runners.launchers.shim import USER_ENVIRONMENT, unpack_environment

    os.environ[USER_ENVIRONMENT] = _text(data).replace("\0", "0")
    result = unpack_environment()
    assert result is None or all(isinstance(value, str) for value in result.values())


def squeue(data: bytes) -> None:
    """The numbers of jobs."""
    from runners.launchers.slurm import job_numbers

    assert all(number.isascii() and int(number) > 0 for number in job_numbers(_text(data)))


# Every target by its name, with inputs to begin with.


def _documents() -> dict[str, Sequence[bytes]]:
    from tests.fuzz import pipelines, spot
    from tests.fuzz.seeds import seeds

    return {**seeds(), **pipelines.documents(), **spot.documents()}


def targets() -> dict[str, Target]:
    """All of them."""
    from tests.fuzz import lines, listeners, pipelines, spot

    every: tuple[Read, ...] = (
        *(hosts, network, order, groups, plan, schedule, aggregation, topology, truth, compressed, elastic_log),
        *(compared, autotune_log, run, shown_runs, check, embedding, quantities, checkpoint, latest_checkpoint, lab),
        *(known_hosts, ssh_config, iperf3, figure, launched, environment, squeue, *lines.EVERY, *listeners.EVERY),
        *pipelines.EVERY,
        *spot.EVERY,
    )
    begin = _documents()
    return {read.__name__: Target(read, tuple(begin.get(read.__name__, ())) or (b"",)) for read in every}

"""Elastic jobs of processes on this machine, with a supervisor in this one: real servers and controllers."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.model.hosts import Host, Hosts
from plink.transport.program import BOOTSTRAP
from runners.child import ChildConnection, LocalConnector, start
from runners.elastic.control_socket import ask
from runners.elastic.supervisor import JobEnd, JobSettingsOverride, Supervisor, SupervisorCallbacks
from runners.job.runner import Job
from tests.runners.elastic.tally import expected, expected_m

PROGRAM = Path(__file__).parents[1] / "tally.py"


_MOUNT = 'mount -t tmpfs plink "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class PrivateFolder:
    """Hosts as child processes of this one; those named, or else all transient ones, have an empty folder at ``path``
    for themselves, in a mount namespace of their own. It needs root."""

    path: Path
    names: frozenset[str] = frozenset()

    def open(self, host: Host) -> ChildConnection:
        """Start an agent."""
        private = host.name in self.names if self.names else host.tier == "transient"
        if not private:
            return LocalConnector().open(host)
        mounted = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", str(self.path)]
        return start(host, [*mounted, sys.executable, "-c", BOOTSTRAP])


@dataclass
class Elastic:
    """One job. ``tiers``: a letter a host, r or t. ``private``: a folder that not all hosts share."""

    folder: Path
    tiers: str
    clocks: int = 40
    shards: int = 12
    settings: dict[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    most_hosts: int | None = 8
    timeout_s: float = 90.0
    private: PrivateFolder | None = None
    program: Path = PROGRAM
    racks: dict[str, str] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    ended: JobEnd | None = None
    error: BaseException | None = None

    def __enter__(self) -> "Elastic":
        out = self.folder / "result.json"
        words = ("--out", str(out), "--shards", str(self.shards), "--clocks", str(self.clocks), *self.more)
        job = Job(
            program=sys.executable, args=("-m", "plink.runtime.elastic.node", str(self.program), *words),
            workdirs=(os.getcwd(),), timeout_s=self.timeout_s, env={"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        report = SupervisorCallbacks(
            sink=lambda number, stream, line: self.lines.append(line), log=self.log.append, note=self.notes.append,
            say=self.notes.append, on_placement=lambda findings: None, folder=self.folder,
        )  # fmt: skip
        connector, overrides = (
            self.private or LocalConnector(),
            JobSettingsOverride(self.settings, self.most_hosts, self.racks),
        )
        self.supervisor = Supervisor(connector, job, overrides, report, None, time.monotonic)
        hosts = Hosts(tuple(host(f"h{k}", tier) for k, tier in enumerate(self.tiers)))
        self._thread = threading.Thread(target=self._run, args=(hosts,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None or self.ended is None:
            self.supervisor._queue.put(lambda: self.supervisor._end(99, "the test is over"))
        self._thread.join(30)
        if error[0] is not None:
            print("\n".join([*map(json.dumps, self.log[-60:]), *self.notes[-40:], *self.lines[-20:]]))
            errors = self.folder / "controller.err"
            print(errors.read_text() if errors.exists() else "")

    def _run(self, hosts: Hosts) -> None:
        try:
            self.ended = self.supervisor.run(hosts)
        except BaseException as error:
            self.error = error

    def status(self) -> dict[str, Any]:
        """As `plink elastic status` has it."""
        return ask(self.supervisor.control_socket.name, {"method": "status"})

    def until(self, what: Callable[[dict[str, Any]], bool], seconds: float = 30.0) -> dict[str, Any]:
        """The first status that fits."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.error is None, self.error
            assert self.ended is None, self.ended
            if self.supervisor._settings is not None and what(status := self.status()):
                return status
            time.sleep(0.05)
        raise AssertionError("that did not come")

    def clock_now(self) -> int:
        """The latest that was begun."""
        return int(self.status().get("begun", -1))

    def clock(self, clock: int) -> dict[str, Any]:
        """Wait for a clock to have been begun."""
        return self.until(lambda status: status.get("begun", -1) >= clock)

    def pid(self, name: str) -> int:
        """Of a host's node."""
        return int(next(m.program.pid for m in self.supervisor._members.values() if m.name == name))

    def kill(self, *names: str, number: int = signal.SIGKILL) -> None:
        """All at once."""
        for pid in [self.pid(name) for name in names]:
            os.kill(pid, number)

    def evict(self, *names: str, seconds: float) -> None:
        """As `plink elastic evict`."""
        ask(self.supervisor.control_socket.name, {"method": "evict", "hosts": list(names), "seconds": seconds})

    def add(self, *names: str, tier: str = "t", bulk: bool = True) -> None:
        """As `plink elastic add`."""
        hosts = [vars(host(name, tier)) for name in names]
        ask(self.supervisor.control_socket.name, {"method": "add", "hosts": hosts, "bulk": bulk})

    def checkpoint(self) -> dict[str, Any]:
        """As `plink elastic checkpoint`."""
        return ask(self.supervisor.control_socket.name, {"method": "checkpoint"})

    def finish(self, *, exactly: bool = True) -> dict[str, Any]:
        """To the end; the result, with every update in it once; ``exactly``: and made of what should be read. Under
        ElasticBSP and ASP shards have had different numbers of steps, which add up to what was wanted. A program that
        is to go on ``--until`` there is a file has had as many clocks as its first shard."""
        if "--until" in self.more:
            Path(self.more[self.more.index("--until") + 1]).touch()
        result = self.result()
        if "--until" in self.more:
            self.clocks = int(result["n"][0][0])
        rule = str(self.settings.get("rule"))
        if rule.startswith(("elastic-bsp", "asp")):
            steps = [row[0] for row in result["n"]]
            most = self.clocks + 2 if rule.startswith("elastic-bsp") else 2 * self.clocks
            assert self.clocks * self.shards <= sum(steps) < most * self.shards
            wanted, exactly = expected(self.shards, steps), False
        else:
            wanted = expected(self.shards, self.clocks)
        assert {key: result[key] for key in wanted} == wanted
        m = [expected_m(self.clocks, "--adam" in self.more)] * 4
        assert not exactly or all(
            abs(item - other) < 1e-9 for row in result["m"] for item, other in zip(row, m, strict=True)
        )
        return result

    def result(self) -> dict[str, Any]:
        """What the program wrote, once the job has come to its end."""
        self._thread.join(self.timeout_s + 10)
        assert self.error is None, self.error
        assert self.ended is not None
        assert self.ended.code == 0, self.ended
        results: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return results

    def events(self, what: str) -> list[dict[str, Any]]:
        """Of the log."""
        return [line for line in self.log if line["what"] == what]


def host(name: str, tier: str) -> Host:
    """On this machine."""
    return Host(name, "127.0.0.1", tier="reliable" if tier == "r" else "transient")

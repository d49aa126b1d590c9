"""Hosts reached through a command (srun, kubectl exec): its standard input and output are the line to the agent."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from plink.errors import HostError, UsageError
from plink.model.hosts import Host
from plink.transport.fleet import Connector, Fleet
from plink.transport.program import AgentProgram
from runners.child import ExecConnector
from runners.launchers.slurm import StepConnector
from tests.child_hosts import ends

ECHO = AgentProgram(("tests.transport.fleet_agent",))
# Each says how it was called, and runs what stands behind its own options.
SRUN = """#!/bin/sh
echo srun "$@" >>{folder}/calls
env | grep -E '^(SLURM|SSH_CONN)' >{folder}/variables
while [ "${{1#--}}" != "$1" ]; do shift; done
exec "$@"
"""
SQUEUE = """#!/bin/sh
echo squeue "$@" >>{folder}/calls
for word; do
  case $word in
    --nodelist=n1) echo 7; echo 12; echo 9;;
    --nodelist=n3) echo "no such node" >&2; exit 1;;
  esac
done
"""
KUBECTL = """#!/bin/sh
echo kubectl "$@" >>{folder}/calls
[ "$4" = deaf ] && exec sleep 61
[ "$4" = bare ] && echo 'sh: python3: not found' >&2 && echo 'command terminated with exit code 127' >&2 && exit 127
[ "$4" = gone ] && echo 'Error from server (NotFound): pods "gone" not found' >&2 && exit 1
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands, which stand before any real ones, write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("srun", SRUN), ("squeue", SQUEUE), ("kubectl", KUBECTL)):
        (folder / name).write_text(text.format(folder=tmp_path))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path / "calls"


def answers(connector: Connector, name: str) -> dict[str, HostError]:
    """An agent is started there, says something back, and ends; or why it was not."""
    with Fleet(connector, ECHO) as fleet:
        failures = fleet.start([Host(name, "10.0.0.1")], {"first": "hello"})
        if not failures:
            fleet.send(name, method="echo", what="hello")
            message = fleet.receive(60)
            assert message is not None
            assert message.body is not None, message.error
            assert message.body["said"]["what"] == "hello"
    return failures


@pytest.mark.parametrize(("own", "job"), [(None, 12), ("9", 9)])
def test_a_step_of_the_job_that_has_the_node(
    own: str | None, job: int, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that plink runs in, where that has it; else the latest."""
    monkeypatch.setenv("SLURM_CONF", "/etc/s.conf")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "64000")
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.5 51000 192.0.2.1 22")
    if own is not None:
        monkeypatch.setenv("SLURM_JOB_ID", own)
    assert answers(StepConnector(), "n1") == {}
    request, ran = (line for line in calls.read_text().splitlines() if line.startswith(("squeue ", "srun ")))
    assert f"--user={os.getuid()} --nodelist=n1" in request
    # What a job that plink runs in was given is not for others; where Slurm is, is. And nobody came
    # to the node by the connection of whoever typed this.
    assert (calls.parent / "variables").read_text().split() == ["SLURM_CONF=/etc/s.conf"]
    assert ran.startswith(f"srun --jobid={job} --nodelist=n1 --nodes=1 --ntasks=1 --overlap --unbuffered")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("n2", "no running job of yours has this node; allocate it with salloc"), ("n3", "no such node")],
)
def test_a_node_that_nobody_has(name: str, expected: str, calls: Path) -> None:
    """Nothing is run."""
    failures = answers(StepConnector(), name)
    assert str(failures[name]).startswith(f"{name}: {expected}")
    assert "srun" not in calls.read_text()


def test_a_pod(calls: Path) -> None:
    """By its name."""
    assert answers(ExecConnector(), "pod-3") == {}
    assert calls.read_text().startswith("kubectl exec --stdin --quiet pod-3 -- python3 -c exec(")


def test_a_pod_that_is_not_there(calls: Path) -> None:
    """kubectl says why."""
    reason = 'no agent could be started: Error from server (NotFound): pods "gone" not found'
    assert str(answers(ExecConnector(), "gone")["gone"]) == f"gone: {reason}"


def test_a_pod_without_python(calls: Path) -> None:
    """What is said is why, and not how kubectl ended."""
    assert str(answers(ExecConnector(), "bare")["bare"]).endswith("could be started: sh: python3: not found")


def test_command_without_input_is_ended(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its silence nor a full pipe keeps plink waiting, and nothing of it stays."""
    monkeypatch.setattr("plink.transport.fleet.HELLO_S", 1.0)
    monkeypatch.setattr("runners.child._END_TIMEOUT_S", 1.0)
    line = ExecConnector().open(Host("deaf", "10.0.0.1"))

    def write() -> None:
        with contextlib.suppress(OSError):
            line.write(b"x" * (1 << 20))

    writer = threading.Thread(target=write)
    writer.start()
    began = time.monotonic()
    line.close()
    line.close()
    assert time.monotonic() - began < 30
    assert line.read() == b""
    writer.join(60)
    assert not writer.is_alive()
    assert "no agent could be started" in str(answers(ExecConnector(), "deaf")["deaf"])
    assert time.monotonic() - began < 50
    assert ends(line._process.pid)


@pytest.mark.parametrize(
    ("connector", "expected"), [(StepConnector, "srun is not installed"), (ExecConnector, "kubectl is not installed")]
)
def test_where_there_is_no_such_thing(
    connector: type[Connector], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Said before anything is started."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=expected):
        connector()

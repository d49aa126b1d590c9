"""Hosts reached through a command (srun, kubectl exec): its standard input and output are the line to the agent."""

import os
from pathlib import Path

import pytest

from plink.errors import HostError, UsageError
from plink.hosts import Host
from plink.remote.connector import Connector
from plink.remote.fleet import Fleet
from plink.remote.program import AgentProgram
from runners.kubernetes.exec import ExecConnector
from runners.launchers.steps import StepConnector

ECHO = AgentProgram(("tests.words.fleet_agent",))
# Each says how it was called, and runs what stands behind its own options.
SRUN = """#!/bin/sh
echo srun "$@" >>{folder}/calls
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
            fleet.send(name, do="echo", what="hello")
            message = fleet.receive(20)
            assert message is not None
            assert message.body is not None, message.error
            assert message.body["said"]["what"] == "hello"
    return failures


@pytest.mark.parametrize(("own", "job"), [(None, 12), ("9", 9), ("5", 12)])
def test_a_step_of_the_job_that_has_the_node(
    own: str | None, job: int, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that plink runs in, where that has it; else the latest."""
    if own is not None:
        monkeypatch.setenv("SLURM_JOB_ID", own)
    assert answers(StepConnector(), "n1") == {}
    asked, ran = (line for line in calls.read_text().splitlines() if line.startswith(("squeue ", "srun ")))
    assert f"--user={os.getuid()} --nodelist=n1" in asked
    assert ran.startswith(f"srun --jobid={job} --nodelist=n1 --nodes=1 --ntasks=1 --overlap --unbuffered")


@pytest.mark.parametrize(
    ("name", "why"), [("n2", "no running job of yours has this node; ask for it with salloc"), ("n3", "no such node")]
)
def test_a_node_that_nobody_has(name: str, why: str, calls: Path) -> None:
    """Nothing is run."""
    failures = answers(StepConnector(), name)
    assert str(failures[name]).startswith(f"{name}: {why}")
    assert "srun" not in calls.read_text()


def test_a_pod(calls: Path) -> None:
    """By its name."""
    assert answers(ExecConnector(), "pod-3") == {}
    assert calls.read_text().startswith("kubectl exec --stdin --quiet pod-3 -- python3 -c exec(")


def test_a_pod_that_is_not_there(calls: Path) -> None:
    """kubectl says why."""
    why = 'no agent could be started: Error from server (NotFound): pods "gone" not found'
    assert str(answers(ExecConnector(), "gone")["gone"]) == f"gone: {why}"


@pytest.mark.parametrize(("connector", "said"), [(StepConnector, "there is no srun"), (ExecConnector, "no kubectl")])
def test_where_there_is_no_such_thing(
    connector: type[Connector], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Said before anything is started."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=said):
        connector()

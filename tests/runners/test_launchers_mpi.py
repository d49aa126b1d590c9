"""mpirun and its like: what is typed, how their output is told apart, what they say of failures. None is started."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plink.errors import PlinkError, UsageError
from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Host, Hosts
from runners.job.placement import RankAssignment
from runners.job.runner import Job, RunContext, RunObserver
from runners.launchers import external_runner
from runners.launchers.external_runner import ExternalLauncherRunner
from runners.launchers.launcher import Launcher, LauncherProcess
from runners.launchers.monitor import LauncherMonitor
from runners.launchers.mpi import Mpich, OpenMpi, mpich, mpirun
from runners.ssh.connector import SshConnector
from runners.ssh.settings import Identity
from tests.stand_ins import program

HOSTS = Hosts((Host("c", "127.0.0.3", user="me", port=2222), Host("a", "127.0.0.1", slots=2, user="me")))
JOB = Job("train.py", (), ("/",), launcher_args=("--mca", "pml", "ob1"))


@pytest.fixture
def connector(tmp_path: Path) -> SshConnector:
    """With a key and known hosts of its own."""
    return SshConnector(identity=Identity(tmp_path / "a key", tmp_path / "known"))


def test_open_mpi_5_and_later(connector: SshConnector, tmp_path: Path) -> None:
    """Other names for the same."""
    for version in (5, 6):
        argv = OpenMpi(connector, version).command(HOSTS, JOB, tmp_path, ("x",)).argv
        assert "--prtemca" in argv
        assert "--tag-output" not in argv


@pytest.mark.parametrize("version", [4, 5])
def test_open_mpi_keeps_whole_names(version: int, connector: SshConnector, tmp_path: Path) -> None:
    """The ssh_config has settings under them; version 4 would pass the first part."""
    hosts = Hosts((Host("c", "c.x.org"), Host("a", "127.0.0.1")))
    assert "orte_keep_fqdn_hostnames" in OpenMpi(connector, version).command(hosts, JOB, tmp_path, ("x",)).argv
    assert "orte_keep_fqdn_hostnames" not in OpenMpi(connector, version).command(HOSTS, JOB, tmp_path, ("x",)).argv


def test_hosts_of_one_address_are_refused_by_the_runner(connector: SshConnector) -> None:
    hosts = Hosts((Host("c", "127.0.0.1"), Host("a", "127.0.0.1")))
    with pytest.raises(UsageError, match=r"^--runner mpirun: hosts c and a are both 127\.0\.0\.1"):
        OpenMpi(connector, 5).files(hosts, JOB)
    with pytest.raises(UsageError, match=r"^--runner mpich: hosts c and a are both 127\.0\.0\.1"):
        Mpich(connector).files(hosts, JOB)


def test_the_ssh_settings(connector: SshConnector, tmp_path: Path) -> None:
    """What the hosts file says, keys that are known already, and no questions."""
    text = OpenMpi(connector, 4).files(HOSTS, JOB)["ssh_config"]
    host, other, everyone = (part.splitlines() for part in text.split("Host ")[1:])
    assert host[0] == "127.0.0.3"
    assert {"  Port 2222", "  User me", f'  IdentityFile "{tmp_path}/a key"', "  IdentitiesOnly yes"} < set(host)
    assert "  Port 22" in other
    assert "  StrictHostKeyChecking yes" in everyone
    assert "  BatchMode yes" in everyone
    new = OpenMpi(SshConnector(True), 4).files(HOSTS, JOB)["ssh_config"]
    assert "StrictHostKeyChecking accept-new" in new
    assert "Include ~/.ssh/config" in new


def four(connector: SshConnector) -> Launcher:
    """Open MPI 4."""
    return OpenMpi(connector, 4)


def five(connector: SshConnector) -> Launcher:
    """Open MPI 5."""
    return OpenMpi(connector, 5)


@pytest.mark.parametrize(
    ("launcher", "line", "pieces"),
    [
        (four, "[5,12]<stdout>:a[5,3]<stderr>: b", [(12, "out", "a"), (3, "err", " b")]),
        (four, "mpirun was [1] not", [(None, "out", "mpirun was [1] not")]),
        (four, "[vm:1] plm:rsh: Warning: setpgid(1,1) failed in parent", []),
        (five, "[1,12]<stdout>: a[1,3]<stderr>:  b", [(12, "out", "a"), (3, "err", " b")]),
        (Mpich, "[12] a[3]  b", [(12, "out", "a"), (3, "out", " b")]),
        (Mpich, "[mpiexec@vm] error", [(None, "out", "[mpiexec@vm] error")]),
    ],
)
def test_parse_output_line(
    launcher: Callable[[SshConnector], Launcher],
    line: str,
    pieces: list[tuple[int | None, str, str]],
    connector: SshConnector,
) -> None:
    """Also where a line holds pieces of several ranks."""
    assert list(launcher(connector).parse_output_line("out", line)) == pieces


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (["The first process to do so was:", "", "  Process name: [[23870,1],2]", "  Exit code:    7"], (2, 7)),
        (["mpirun noticed that process rank 2 with PID 7 on node a exited on signal 9 (Killed)."], (2, 137)),
        (["ORTE was unable to reliably start one or more daemons."], None),
    ],
)
def test_the_first_failure(output: list[str], expected: tuple[int, int] | None, connector: SshConnector) -> None:
    assert OpenMpi(connector, 4).first_failure(output) == expected


@pytest.mark.parametrize(
    ("output", "version"),
    [("mpirun (Open MPI) 4.1.4", 4), ("mpirun (Open MPI) 5.0.11", 5), ("HYDRA build details:", None)],
)
def test_whose_mpirun(
    output: str, version: int | None, tmp_path: Path, connector: SshConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share the name."""
    program(tmp_path, "mpirun", f"echo '{output}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = mpirun(connector)
    assert isinstance(result, Mpich if version is None else OpenMpi)
    assert result.command(HOSTS, JOB, tmp_path, ()).argv[0] == "mpirun"
    assert ("--prtemca" in result.command(HOSTS, JOB, tmp_path, ()).argv) == (version == 5)


def test_no_mpirun_or_an_unknown_one(tmp_path: Path, connector: SshConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="mpirun is not installed here"):
        mpirun(connector)
    with pytest.raises(UsageError, match=r"mpiexec\.hydra is not installed here"):
        mpich(connector)
    program(tmp_path, "mpirun", "echo mpirun of somebody else")
    with pytest.raises(UsageError, match="somebody else"):
        mpirun(connector)


@pytest.mark.parametrize("then", ["exec sleep 60", "exit 1"])
def test_ssh_error_ends_a_launcher_and_is_shown(
    then: str, connector: SshConnector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the host's name. Hydra waits for a host that is not reached, and others print more about it."""
    error = "ssh: connect to host 127.0.0.3 port 2222: Connection refused"
    named = error.replace("127.0.0.3", "c")
    noise = "".join(f"echo advice {number} >&2\n" for number in range(4))
    program(tmp_path, "mpirun", f"echo '{error}' >&2\n{noise}{then}")
    monkeypatch.setattr(external_runner, "STOP_TIMEOUT_S", 0.5)
    context = RunContext(RunObserver(), time.monotonic, folder=tmp_path)
    began = time.monotonic()
    with pytest.raises(PlinkError, match=rf"3 of 3 ranks did not report \(first: rank 0 on c\): {named}; nothing"):
        ExternalLauncherRunner(Mpich(connector, str(tmp_path / "mpirun"))).run(JOB, HOSTS, context)
    assert time.monotonic() - began < external_runner.REPORT_TIMEOUT_S / 4


@pytest.mark.parametrize(
    ("launcher", "script"),
    [
        (four, "echo '  Remote daemon: [[9232,0],2] on node 127.0.0.3'; exit 1"),
        (five, "echo '  Remote daemon: [prterun-vm-7@0,2] on node 127.0.0.3'; exit 1"),
        (Mpich, "echo 'Timeout, server 127.0.0.3 not responding.' >&2; exec sleep 60"),
        (five, "echo \"ssh-keygen -R '127.0.0.1'\"; echo '  Remote daemon: [prterun-vm-7@0,2] on node b'; exit 1"),
    ],
)
def test_a_host_that_is_lost_ends_the_job_and_is_named(
    launcher: Callable[[SshConnector], Launcher], script: str, connector: SshConnector
) -> None:
    """As the hosts file names it; launchers know its address."""
    shown: list[str] = []
    context = RunContext(RunObserver(lambda rank, stream, line: shown.append(line)), time.monotonic)
    ranks = [RankAssignment(rank, 0, name, None, None) for rank, name in enumerate(("a", "b.lan"))]
    monitor = LauncherMonitor(launcher(connector), ranks, context, None, [], {"127.0.0.1": "a", "127.0.0.3": "b.lan"})
    began = time.monotonic()
    with LauncherProcess(LaunchCommand(("sh", "-c", script))) as process:
        monitor.follow(process)
        monitor.finish(process.end(0.0))
    assert time.monotonic() - began < 30
    assert monitor.failure is not None
    assert (monitor.failure.rank, monitor.failure.host) == (1, "b.lan")
    assert "lost" in str(monitor.failure.cause)
    assert "127.0.0.3" not in "".join(shown)
    assert ("127.0.0.1" in "".join(shown)) == ("127.0.0.1" in script)

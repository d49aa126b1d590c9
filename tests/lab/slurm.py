"""Slurm on a lab's hosts: munged for all of them, slurmctld where the lab is controlled from, a slurmd a host.

All in one folder, on ports of the lab's own addresses: a Slurm that this machine belongs to is not touched.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import Lab
from tests.lab.waiting import until
from tests.reaper import kill_process

_SBIN = os.environ["PATH"] + ":/usr/sbin:/sbin"
PATIENCE_S = 60.0
CPUS = 4  # that every node is said to have: more than one rank fits

_CONFIGURATION = """\
ClusterName=plinklab
SlurmctldHost={control}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort=6817
SlurmdPort=6818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=5
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 DefaultTime=10 State=UP OverSubscribe=YES
"""


class Cluster:
    """A Slurm that is up; ``environment`` is what its users need."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._control = ["ip", "netns", "exec", lab.blueprint.namespace("ctl")]

    def ask(self, *words: str, check: bool = True) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(
            [*self._control, *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def up(self) -> None:
        """Start all of it, and wait until every node can be used."""
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(128))
        address, _ = self.lab.blueprint.uplink(len(self.lab.blueprint.racks))
        nodes = "\n".join(
            f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} RealMemory=100000" for host in self.lab.hosts
        )
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                control=socket.gethostname().split(".")[0], address=address, folder=self.folder, nodes=nodes
            )
        )
        # Found by itself only where /sys/fs/cgroup is mounted, which it is not in a namespace of `ip netns`.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        place = {name: str(self.folder / f"munge.{name}") for name in ("socket", "pid", "log", "seed")}
        self._start([], "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place['socket']}",
                    f"--pid-file={place['pid']}", f"--log-file={place['log']}", f"--seed-file={place['seed']}",
                    "--num-threads=2")  # fmt: skip
        until(lambda: Path(place["socket"]).exists(), PATIENCE_S, "munged to listen")
        self._start(self._control, "slurmctld", "-D", "-i")
        for host in self.lab.hosts:
            sshd = self.lab.state.file(host.name, "sshd.pid").read_text().strip()
            self._start(
                ["nsenter", "--target", sshd, "--net", "--uts", "--mount", "--root", f"--wd={self.folder}"],
                "slurmd", "-D", "-N", host.name,
            )  # fmt: skip
        until(lambda: self.idle() == len(self.lab.hosts.names), PATIENCE_S, "all nodes to be idle")

    def idle(self) -> int:
        """How many nodes wait for work."""
        return self.ask("sinfo", "--noheader", "--Node", "--format=%t", check=False).split().count("idle")

    def jobs(self) -> list[str]:
        """Jobs that Slurm still knows as waiting, running or ending."""
        return self.ask("squeue", "--noheader", "--format=%i %T").splitlines()

    def clear(self) -> None:
        """End the jobs that are left."""
        if self.jobs():
            self.ask("scancel", "--user=root", check=False)
            until(lambda: not self.jobs(), PATIENCE_S, "jobs to end")

    def down(self) -> None:
        """End what :meth:`up` started, and what runs below it."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.clear()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self._processes):
                if process.poll() is None:
                    process.send_signal(number)
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)

    def _start(self, prefix: list[str], daemon: str, *words: str) -> None:
        program = shutil.which(daemon, path=_SBIN)
        assert program is not None
        with (self.folder / f"{daemon}-{len(self._processes)}.said").open("wb") as log_file:
            self._processes.append(
                subprocess.Popen(
                    [*prefix, program, *words],
                    env={**os.environ, **self.environment},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                )
            )
        kill_process(self._processes[-1].pid)


@contextlib.contextmanager
def cluster(lab: Lab, folder: Path) -> Iterator[Cluster]:
    """A Slurm of this lab, for as long as it is needed."""
    made = Cluster(lab, folder)
    try:
        made.up()
        yield made
    finally:
        made.down()

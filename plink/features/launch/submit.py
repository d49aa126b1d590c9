"""``plink submit``: a launch by a script that waits in Slurm's queue."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plink.errors import PlinkError, UsageError
from plink.features.launch.request import Arguments, JobRequest, Program
from plink.features.launch.run import runner_for
from plink.features.launch.setup import new_job
from plink.model.hosts import render_hosts
from plink.model.run import Submission
from plink.model.storage import write_text
from plink.model.units import typed_seconds
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import print_json, say
from runners.job.result import new_id
from runners.launchers import slurm_batch

if TYPE_CHECKING:
    from runners.job.job import Job


@takes(
    JobRequest,
    only="hosts_file order algo launcher_args backend env python workdir interface timeout_s settings "
    "accept_new_host_keys log_dir tail dry_run as_json",
)
def submit(options: JobRequest, program: Program, args: Arguments = None) -> None:
    """Submit a job to Slurm (sbatch): `plink launch --runner slurm` with today's hosts and order.

    --dry-run shows the script.

    Example: plink submit --launcher-args "-A team -t 2:00:00" train.py --epochs 3
    """
    setup = new_job(program, args or [], options, "slurm")
    runner_for(setup.hosts, setup.request)  # for what it refuses; and sbatch is asked from inside a lab, as srun is
    job, hosts = setup.job, setup.hosts
    folder = (workspace.BATCH / new_id()).absolute()
    # Commands are for every user of a host to read.
    launcher = ["plink.cli.submitted", str(folder / "env.json")] if job.env else ["plink"]
    # What the folder's plink.toml says when the queue gets to it is not what was submitted.
    command = [
        sys.executable,
        "-m",
        *launcher,
        "--config",
        os.devnull,
        "launch",
        *_launch_arguments(job, options, folder),
    ]
    script = slurm_batch.batch_script(hosts, job.launcher_args, command)
    files = {
        "hosts.txt": render_hosts(hosts),
        "order.txt": "".join(f"{name}\n" for name in hosts.names),
        **({"env.json": json.dumps(job.env)} if job.env else {}),
        "job.sh": script,
    }
    _check_utf8(script)
    if options.dry_run:
        print(script, end="")
        return
    workspace.prepare()
    try:
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(mode=0o700)
        for name, text in files.items():
            write_text(folder / name, text)
            (folder / name).chmod(0o700 if name == "job.sh" else 0o600)
    except OSError as error:
        raise PlinkError(f"cannot write {folder}: {error.strerror}") from None
    job_id = slurm_batch.submit(folder / "job.sh")
    if options.as_json:
        print_json(Submission(job_id=job_id, script=str(folder / "job.sh")).to_json())
    else:
        print(f"submitted as job {job_id}")
        say(f"`squeue --job {job_id}` shows its state; its output goes to slurm-{job_id}.out")


def _check_utf8(script: str) -> None:
    try:
        script.encode()
    except UnicodeEncodeError as error:
        line = script[: error.start].count("\n")
        word = ascii(script.split("\n")[line][-60:])
        raise UsageError(f"{word} is not UTF-8, and a batch script is text; put it into a file") from None


def _launch_arguments(job: "Job", options: JobRequest, folder: Path) -> list[str]:
    """Return the launch as it would be typed, without the variables of ``--env``."""
    values = {
        "--hosts": str(folder / "hosts.txt"),
        "--order": str(folder / "order.txt"),
        "--workdir": job.workdirs[0],
        "--python": options.python,
        "--interface": job.interface,
        "--timeout": None if options.timeout_s is None else typed_seconds(options.timeout_s),
        "--log-dir": None if options.log_dir is None else str(options.log_dir.absolute()),
        "--tail": None if options.tail is None else str(options.tail),
    }
    words = [f"{name}={value}" for name, value in values.items() if value is not None]
    words += [f"--set={setting}" for setting in options.settings.typed]
    words += [f"--launcher-args={shlex.join(job.launcher_args)}"] if job.launcher_args else []
    return ["--runner=slurm", *words, "--", job.program, *job.args]

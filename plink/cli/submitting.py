"""``plink launch --submit``: the same launch, by a script that waits in Slurm's queue."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plink.cli.screen import print_json, say
from plink.errors import PlinkError, UsageError
from plink.model.hosts import render_hosts
from plink.model.storage import write_text
from plink.records import workspace
from runners.job.result import new_id

if TYPE_CHECKING:
    from plink.cli.launching import Asked
    from runners.job.job import Job


def submit(job: "Job", asked: "Asked", timeout: str | None) -> None:
    """Write the script, with hosts and order as they are now, and hand it to sbatch; a rehearsal shows it only.

    :raises PlinkError: when Slurm does not take it. :raises UsageError: for what cannot stand in a script.
    """
    from runners.launchers import slurm_batch

    folder = (workspace.BATCH / new_id()).absolute()
    # Commands are for every user of a host to read.
    start = ["plink.cli.submitted", str(folder / "env.json")] if job.env else ["plink"]
    command = [sys.executable, "-m", *start, "launch", *_words(job, asked, timeout, folder)]
    script = slurm_batch.batch_script(asked.hosts, job.launcher_args, command)
    files = {
        "hosts.txt": render_hosts(asked.hosts),
        "order.txt": "".join(f"{name}\n" for name in asked.hosts.names),
        **({"env.json": json.dumps(job.env)} if job.env else {}),
        "job.sh": script,
    }
    _refuse_bytes(script)
    if asked.dry_run:
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
    number = slurm_batch.submit(folder / "job.sh")
    if asked.as_json:
        print_json({"schema": "plink.submission/1", "job_id": number, "script": str(folder / "job.sh")})
    else:
        print(f"submitted as job {number}")
        say(f"`squeue --job {number}` tells whether it runs; it prints into slurm-{number}.out")


def _refuse_bytes(script: str) -> None:
    try:
        script.encode()
    except UnicodeEncodeError as error:
        line = script[: error.start].count("\n")
        word = ascii(script.split("\n")[line][-60:])
        raise UsageError(f"--submit: {word} is not UTF-8, and a batch script is text; put it into a file") from None


def _words(job: "Job", asked: "Asked", timeout: str | None, folder: Path) -> list[str]:
    """This launch again, as it would be typed, without the variables of ``--env``."""
    values = {
        "--hosts": str(folder / "hosts.txt"),
        "--order": str(folder / "order.txt"),
        "--workdir": job.workdirs[0],
        "--python": asked.python,
        "--interface": job.interface,
        "--master-port": str(job.master_port) if job.master_port else None,
        "--timeout": timeout,
        "--log-dir": None if asked.log_dir is None else str(asked.log_dir.absolute()),
        "--tail": None if asked.tail is None else str(asked.tail),
    }
    given = [f"{name}={value}" for name, value in values.items() if value is not None]
    given += [f"--launcher-args={shlex.join(job.launcher_args)}"] if job.launcher_args else []
    given += ["--mixed-versions"] if job.mixed_versions else []
    return ["--runner=slurm", *given, "--", job.program, *job.args]

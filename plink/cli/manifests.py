"""``plink launch --runner kubernetes``: the objects of a job are written, and nothing is started."""

import time
from dataclasses import dataclass, fields
from pathlib import Path

from plink.cli.launching import Asked, rehearse
from plink.cli.screen import say
from plink.errors import UsageError
from plink.model.storage import STANDARD, write_text
from runners.job.job import Job
from runners.job.result import new_id
from runners.job.runner import Watch
from runners.kubernetes.settings import JOB, PodSettings, parse_resources
from runners.kubernetes.writer import ObjectWriter


@dataclass(frozen=True)
class Wishes:
    """What was typed of the options that this runner alone has; None: nothing."""

    image: str | None
    kind: str | None
    job_name: str | None
    namespace: str | None
    resources: list[str] | None
    output: Path | None

    def refuse(self, runner: str) -> None:
        """:raises UsageError: when another runner was given one of them."""
        for field in fields(self):
            if getattr(self, field.name) is not None:
                raise UsageError(f"--{field.name.replace('_', '-')} is for --runner kubernetes, not for {runner}")

    def settings(self) -> PodSettings:
        """:raises UsageError: for what Kubernetes would refuse."""
        return PodSettings(
            self.image or "", self.kind or JOB, self.job_name or "", self.namespace or "",
            parse_resources(self.resources or []),
        )  # fmt: skip


def write(job: Job, asked: Asked, wishes: Wishes) -> None:
    """Write the objects, or show what would be written.

    :raises PlinkError: when the job cannot be expressed, or the file cannot be written.
    """
    for option, value in (("--log-dir", asked.log_dir), ("--tail", asked.tail)):
        if value is not None:
            raise UsageError(f"{option}: --runner kubernetes starts nothing; `kubectl logs` has the ranks' output")
    writer = ObjectWriter(wishes.settings(), json=asked.as_json)
    if asked.dry_run:
        rehearse(writer, job, asked)
        return
    rehearsal = writer.rehearse(job, asked.hosts, Watch(_nothing, _nothing, time.monotonic, run_id=new_id()))
    (name, text), *_ = rehearsal.files.items()
    file = str(wishes.output or STANDARD)
    write_text(file, text)
    typed = f"kubectl apply -f {file if file != STANDARD else '-'}"
    where = f" -n {wishes.namespace}" if wishes.namespace else ""
    pods = f"--max-log-requests={len(asked.hosts) + 1} -l plink-job={Path(name).stem}"
    logs = f"kubectl logs{where} --prefix --tail=-1 {pods}"
    say(f"`{typed}` starts it; `{logs} | grep plink-rank` shows where each rank is")


def _nothing(*arguments: object) -> None:
    """Nothing is started: nobody reports."""

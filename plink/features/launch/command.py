"""``plink launch``."""

import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import PlinkError, UsageError
from plink.features.launch.request import Arguments, JobRequest, Program
from plink.features.launch.run import runner_for
from plink.features.launch.session import show_dry_run, start
from plink.features.launch.setup import new_job
from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.hosts import render_hosts
from plink.model.request import FeatureRequest, Option
from plink.model.run import Submission
from plink.model.storage import STANDARD, write_text
from plink.model.units import typed_seconds
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import print_json, say
from runners.choice import KUBERNETES
from runners.job.placement import new_id
from runners.job.runner import RunContext, RunObserver
from runners.kubernetes.objects import ObjectWriter
from runners.kubernetes.settings import PodSettings, parse_resources
from runners.launchers.slurm import batch_command, batch_script, output_file, step_options, submit_batch

if TYPE_CHECKING:
    from runners.job.runner import Job


_objects = partial(Option, panel="Kubernetes objects")
KINDS = ("job", "jobset", "trainjob", "mpijob", "pytorchjob")


@takes(JobRequest)
def launch(options: JobRequest, program: Program, args: Arguments = None) -> None:
    """Run a program as the ranks of a job, in plink's order, and verify the placement of every rank first.

    Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
    MASTER_ADDR and MASTER_PORT as under torchrun, and GLOO_SOCKET_IFNAME and
    NCCL_SOCKET_IFNAME. The first rank that fails terminates the others. The
    job's record and output are kept in .plink/runs (`plink runs`).

    Example: plink launch --hosts hosts.txt train.py --epochs 3
    """
    if code := start(new_job(program, args or [], options, options.runner or "ssh")):
        raise typer.Exit(code)


@dataclass(frozen=True)
class ManifestsRequest(FeatureRequest):
    """Request for Kubernetes objects that run a job."""

    image: Annotated[str, _objects("Container image; needs python3 and the program.")]
    kind: Annotated[str, _objects("Kind of object that runs the pods.", choices=KINDS)] = "job"
    job_name: Annotated[str | None, _objects("Name of the job; default: from the program and the run.")] = None
    namespace: Annotated[str | None, _objects("Namespace; default: kubectl's.")] = None
    resources: Annotated[
        list[str] | None,
        _objects(
            "Resources of a pod, which runs all ranks of its node: cpu=4, memory=8Gi, nvidia.com/gpu=8.",
            metavar="NAME=QUANTITY,...",
        ),
    ] = None
    output: Annotated[Path | None, _objects("File for the objects; default: stdout.", ("-o", "--output"))] = None


@takes(
    JobRequest,
    ManifestsRequest,
    only="hosts_file order algo env python workdir interface timeout_s settings dry_run as_json",
)
def manifests(options: JobRequest, request: ManifestsRequest, program: Program, args: Arguments = None) -> None:
    """Write Kubernetes objects that run a program as the ranks of a job, in plink's order; start nothing.

    Nothing is contacted: the order is --order's, or follows from what `plink
    probe` measured here. Hosts are node names. `kubectl apply` starts the job; a pod on a node
    outside the order refuses to run.

    Example: plink manifests --hosts hosts.txt --order given --image x/train:1 -o job.yaml train.py
    """
    read = (options.hosts_file, None if options.order is None else Path(options.order))
    workspace.check_output(request.output, None, (*read, workspace.NETWORK, workspace.ORDER))
    pods = PodSettings(
        request.image,
        request.kind,
        request.job_name or "",
        request.namespace or "",
        parse_resources(request.resources or []),
    )
    setup = new_job(program, args or [], options, KUBERNETES)
    slots = {host.slots for host in setup.hosts}
    devices = [f"{name}={quantity}" for name, quantity in pods.resources.items() if "/" in name]
    if len(slots) > 1 and devices:
        say(f"warning: every pod requests {', '.join(devices)}, and hosts have {min(slots)} to {max(slots)} slots")
    writer = ObjectWriter(pods, json=options.as_json)
    context = RunContext(RunObserver(), time.monotonic, host_identities=setup.request.identities)
    preview = writer.dry_run(setup.job, setup.hosts, context)
    ((name, text),) = preview.files.items()
    file = str(request.output or STANDARD)
    if options.dry_run:
        if request.output is not None:
            preview = DryRun(preview.runner, (LaunchCommand(("kubectl", "apply", "-f", file)),), {file: text})
        show_dry_run(preview, options.as_json)
        return
    write_text(file, text)
    namespace_args = f" -n {request.namespace}" if request.namespace else ""
    selection = f"--max-log-requests={len(setup.hosts) + 1} -l plink-job={Path(name).stem}"
    logs = f"kubectl logs{namespace_args} --prefix --tail=-1 {selection}"
    say(f"`kubectl apply -f {file}` starts it; `{logs} | grep plink-rank` shows where each rank is")


@takes(
    JobRequest,
    only="hosts_file order algo launcher_args backend env python workdir interface timeout_s settings "
    "accept_new_host_keys log_dir tail dry_run as_json",
)
def submit(options: JobRequest, program: Program, args: Arguments = None) -> None:
    """Submit a job to Slurm (sbatch): `plink launch --runner slurm` with today's hosts and order.

    --dry-run shows the script, and the other files that it needs.

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
    script = batch_script(hosts, job.launcher_args, command)
    files = {
        "hosts.txt": render_hosts(hosts),
        "order.txt": "".join(f"{name}\n" for name in hosts.names),
        **({"env.json": json.dumps(job.env)} if job.env else {}),
        "job.sh": script,
    }
    _check_utf8(script)
    inputs = sorted(name for name in os.environ if name.startswith("SBATCH_") and name != "SBATCH_WAIT")
    if job.launcher_args and inputs:
        say(f"sbatch takes {', '.join(inputs)} before the options of a script, --launcher-args among them")
    if options.dry_run:
        written = {str(folder / name): text for name, text in files.items()}
        show_dry_run(DryRun("slurm", (LaunchCommand(batch_command(folder / "job.sh")),), written), options.as_json)
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
    job_id, cluster = submit_batch(folder / "job.sh")
    if options.as_json:
        print_json(Submission(job_id=job_id, script=str(folder / "job.sh")).to_json())
    else:
        print(f"submitted as job {job_id}")
        output = output_file(job_id, cluster)
        goes_to = "" if output is None else f"; its output goes to {output}"
        where = f"--clusters={cluster} " if cluster else ""
        say(f"`squeue {where}--job {job_id}` shows its state{goes_to}")


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
    own = step_options(job.launcher_args)
    words += [f"--launcher-args={shlex.join(own)}"] if own else []
    return ["--runner=slurm", *words, "--", job.program, *job.args]

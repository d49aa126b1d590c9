"""``plink manifests``."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from plink.cli.job_options import Arguments, JobOptions, Program, option, takes

_PANEL = "Kubernetes objects"


class ObjectKind(StrEnum):
    """Kind of Kubernetes object that runs the pods."""

    JOB = "job"
    JOB_SET = "jobset"
    TRAIN_JOB = "trainjob"
    MPI_JOB = "mpijob"
    PYTORCH_JOB = "pytorchjob"


@takes(
    "hosts_file", "order", "algo", "env", "python", "workdir", "interface", "timeout", "settings",
    "accept_new_host_keys", "dry_run", "as_json",
)  # fmt: skip
def manifests(
    program: Program,
    options: JobOptions,
    image: Annotated[str, option(_PANEL, "Container image; needs python3 and the program.")],
    args: Arguments = None,
    kind: Annotated[ObjectKind, option(_PANEL, "Kind of object that runs the pods.")] = ObjectKind.JOB,
    job_name: Annotated[str | None, option(_PANEL, "Name of the job; default: from the program and the run.")] = None,
    namespace: Annotated[str | None, option(_PANEL, "Namespace; default: kubectl's.")] = None,
    resources: Annotated[
        list[str] | None,
        option(
            _PANEL,
            "Resources of a pod, which runs all ranks of its node: cpu=4, memory=8Gi, nvidia.com/gpu=8.",
            metavar="NAME=QUANTITY,...",
        ),
    ] = None,
    output: Annotated[Path | None, option(_PANEL, "File for the objects; default: stdout.", "-o", "--output")] = None,
) -> None:
    """Write Kubernetes objects that run a program as the ranks of a job, in plink's order; start nothing.

    Hosts are node names. `kubectl apply` starts the job; a pod on a node
    outside the order refuses to run.

    Example: plink manifests --hosts hosts.txt --order given --image x/train:1 -o job.yaml train.py
    """
    from plink.cli.job_setup import new_job
    from plink.cli.launching import show_dry_run
    from plink.model.storage import STANDARD, write_text
    from plink.records import workspace
    from plink.terminal.screen import say
    from runners.choice import KUBERNETES
    from runners.job.runner import RunContext, RunObserver
    from runners.kubernetes.objects import ObjectWriter
    from runners.kubernetes.settings import PodSettings, parse_resources

    read = (options.hosts_file, None if options.order is None else Path(options.order))
    workspace.check_output(output, None, (*read, workspace.NETWORK, workspace.ORDER))
    pods = PodSettings(image, kind, job_name or "", namespace or "", parse_resources(resources or []))
    setup = new_job(program, args or [], options, KUBERNETES)
    writer = ObjectWriter(pods, json=options.as_json)
    context = RunContext(RunObserver(), time.monotonic, host_identities=setup.request.identities)
    preview = writer.dry_run(setup.job, setup.hosts, context)
    if options.dry_run:
        show_dry_run(preview, options.as_json)
        return
    ((name, text),) = preview.files.items()
    file = str(output or STANDARD)
    write_text(file, text)
    namespace_args = f" -n {namespace}" if namespace else ""
    selection = f"--max-log-requests={len(setup.hosts) + 1} -l plink-job={Path(name).stem}"
    logs = f"kubectl logs{namespace_args} --prefix --tail=-1 {selection}"
    say(f"`kubectl apply -f {file}` starts it; `{logs} | grep plink-rank` shows where each rank is")

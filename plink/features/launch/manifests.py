"""``plink manifests``."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from plink.features.launch.request import Arguments, JobRequest, Program
from plink.features.launch.session import show_dry_run
from plink.features.launch.setup import new_job
from plink.model.request import FeatureRequest, Option
from plink.model.storage import STANDARD, write_text
from plink.records import workspace
from plink.terminal.options import takes
from plink.terminal.screen import say
from runners.choice import KUBERNETES
from runners.job.runner import RunContext, RunObserver
from runners.kubernetes.objects import ObjectWriter
from runners.kubernetes.settings import PodSettings, parse_resources

_PANEL = "Kubernetes objects"


KINDS = ("job", "jobset", "trainjob", "mpijob", "pytorchjob")


@dataclass(frozen=True)
class ManifestsRequest(FeatureRequest):
    """Request for Kubernetes objects that run a job."""

    image: Annotated[str, Option("Container image; needs python3 and the program.", panel=_PANEL)]
    kind: Annotated[str, Option("Kind of object that runs the pods.", choices=KINDS, panel=_PANEL)] = "job"
    job_name: Annotated[str | None, Option("Name of the job; default: from the program and the run.", panel=_PANEL)] = (
        None
    )
    namespace: Annotated[str | None, Option("Namespace; default: kubectl's.", panel=_PANEL)] = None
    resources: Annotated[
        list[str] | None,
        Option(
            "Resources of a pod, which runs all ranks of its node: cpu=4, memory=8Gi, nvidia.com/gpu=8.",
            metavar="NAME=QUANTITY,...",
            panel=_PANEL,
        ),
    ] = None
    output: Annotated[
        Path | None, Option("File for the objects; default: stdout.", ("-o", "--output"), panel=_PANEL)
    ] = None


@takes(
    JobRequest,
    ManifestsRequest,
    only="hosts_file order algo env python workdir interface timeout_s settings accept_new_host_keys dry_run as_json",
)
def manifests(options: JobRequest, request: ManifestsRequest, program: Program, args: Arguments = None) -> None:
    """Write Kubernetes objects that run a program as the ranks of a job, in plink's order; start nothing.

    Hosts are node names. `kubectl apply` starts the job; a pod on a node
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
    writer = ObjectWriter(pods, json=options.as_json)
    context = RunContext(RunObserver(), time.monotonic, host_identities=setup.request.identities)
    preview = writer.dry_run(setup.job, setup.hosts, context)
    if options.dry_run:
        show_dry_run(preview, options.as_json)
        return
    ((name, text),) = preview.files.items()
    file = str(request.output or STANDARD)
    write_text(file, text)
    namespace_args = f" -n {request.namespace}" if request.namespace else ""
    selection = f"--max-log-requests={len(setup.hosts) + 1} -l plink-job={Path(name).stem}"
    logs = f"kubectl logs{namespace_args} --prefix --tail=-1 {selection}"
    say(f"`kubectl apply -f {file}` starts it; `{logs} | grep plink-rank` shows where each rank is")

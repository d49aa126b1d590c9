"""``plink launch``."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import UsageError
from plink.records import workspace

if TYPE_CHECKING:
    from plink.cli.job_order import JobOrder, Sources
    from plink.model.hosts import Hosts


_KUBERNETES = "With --runner kubernetes"
_ELASTIC = "With --backend agileml"

_ORDER = "Which hosts, in which order"
_RUN = "How the program runs"
_SHOWN = "What is shown and kept"
_GAIN = "What the order gains"


def launch(
    program: Annotated[
        str | None, typer.Argument(metavar="PROGRAM", help="A .py file or a command.", show_default=False)
    ] = None,
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments.")] = None,
    hosts_file: Annotated[
        Path | None,
        typer.Option("--hosts", rich_help_panel=_ORDER, help="Hosts file; default: the hosts of .plink/network.json."),
    ] = None,
    order_file: Annotated[
        Path | None,
        typer.Option(
            "--order", rich_help_panel=_ORDER, help="An order, or names one a line; default .plink/order.json."
        ),
    ] = None,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan", rich_help_panel=_ORDER, help="What `plink plan` wrote: order, and environment of the ranks."
        ),
    ] = None,
    as_given: Annotated[
        bool, typer.Option("--given", rich_help_panel=_ORDER, help="Ranks as the hosts stand in the hosts file.")
    ] = False,
    algo: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ORDER,
            help="The collective to order for, as in `plink reorder`; default: the last, or ring.",
        ),
    ] = None,
    max_age: Annotated[
        str,
        typer.Option(rich_help_panel=_ORDER, help="How old a network file may be before hosts are probed anew (2h)."),
    ] = "24h",
    runner: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_RUN,
            help="What starts the ranks: ssh (default), local, torchrun, mpirun, mpich, slurm, kubernetes (manifests).",
        ),
    ] = None,
    launcher_args: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", rich_help_panel=_RUN, help="Added to mpirun's or srun's command, split as a shell would."
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_RUN,
            help="Let PyTorch's all-reduces go by 2lha, ring, flat, ..., or auto: the cheapest for each size; agileml: "
            "an elastic parameter server on reliable and transient hosts.",
        ),
    ] = None,
    autotune: Annotated[
        bool,
        typer.Option(
            "--autotune",
            rich_help_panel=_RUN,
            help="With --backend 2lha or flat: move work between ranks when the network changes.",
        ),
    ] = False,
    autotune_every: Annotated[
        str | None, typer.Option(rich_help_panel=_RUN, help="How often --autotune looks (500ms, 10s); default 2s.")
    ] = None,
    autotune_change: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=0.99, rich_help_panel=_RUN, help="The share of throughput that it looks into; default 0.2."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", rich_help_panel=_RUN, help="Added to every rank's environment."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(rich_help_panel=_RUN, help="Interpreter for .py files; default: this one's path, else python3."),
    ] = None,
    workdir: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_RUN, help="Folder on the hosts to run in; default: this one's path, else the home."
        ),
    ] = None,
    sync: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=_RUN, help="Copy this folder to hosts that lack it, and run in the copy."
        ),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_RUN, help="For Gloo and NCCL (eth0, or eth0,eth1); default: what leads to the others."
        ),
    ] = None,
    master_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, rich_help_panel=_RUN, help="Of the rendezvous on rank 0's host; 0: any free one."
        ),
    ] = 0,
    timeout: Annotated[
        str | None,
        typer.Option(rich_help_panel=_RUN, help="End the job when it takes longer (2h), with the stacks of its ranks."),
    ] = None,
    mixed_versions: Annotated[
        bool,
        typer.Option(
            "--mixed-versions", rich_help_panel=_RUN, help="Run it where hosts differ in Python or PyTorch, too."
        ),
    ] = False,
    log_dir: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_SHOWN, help="Where each rank's output is kept; default: in the run's folder."),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            min=0, rich_help_panel=_SHOWN, help="Show only the last so many lines of each rank, when all is over."
        ),
    ] = None,
    ab: Annotated[
        int | None,
        typer.Option(
            "--ab",
            min=1,
            metavar="N",
            rich_help_panel=_GAIN,
            help="Run the given order and plink's N times each: what is gained?",
        ),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_GAIN,
            help="With --ab: where the program reports how it did: 'loss: ([0-9.]+)', or a key of a JSON line.",
        ),
    ] = None,
    higher_is_better: Annotated[
        bool, typer.Option("--higher-is-better", rich_help_panel=_GAIN, help="The figure is a rate, not a time.")
    ] = False,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1, max=65536, rich_help_panel=_ORDER, help="With --runner local: how many ranks; default one a core."
        ),
    ] = None,
    again: Annotated[
        str | None,
        typer.Option(
            metavar="ID", rich_help_panel=_ORDER, help="Run that run again: same program, hosts, order, environment."
        ),
    ] = None,
    accept_new_host_keys: Annotated[
        bool,
        typer.Option(
            "--accept-new-host-keys", rich_help_panel=_RUN, help="Note unknown SSH host keys instead of refusing them."
        ),
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="Of the pods; needs python3 and the program.", rich_help_panel=_KUBERNETES)
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="job (default), mpijob or pytorchjob.", rich_help_panel=_KUBERNETES)
    ] = None,
    job_name: Annotated[
        str | None, typer.Option(help="Default: of the program and the run.", rich_help_panel=_KUBERNETES)
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Default: the one that kubectl uses.", rich_help_panel=_KUBERNETES)
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=QUANTITY,...",
            help="Of a pod, which has all ranks of its node: cpu=4,memory=8Gi,nvidia.com/gpu=8.",
            rich_help_panel=_KUBERNETES,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for the objects; default: stdout.", rich_help_panel=_KUBERNETES),
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Transient hosts to a reliable one over which stage 2 and stage 3 begin (1:15), or auto.",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    slack: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Clocks that a worker may be ahead of the slowest (SSP); default: none may (BSP).",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    most_hosts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="That the job will ever have: half as many partitions; default: twice.",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="Folder that the reliable hosts share, for checkpoints.",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="How often (10m); default 60s.", rich_help_panel=_ELASTIC)
    ] = None,
    restore: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on from the latest checkpoint in there.", rich_help_panel=_ELASTIC),
    ] = None,
    notices: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[=URL]",
            help="Ask this provider's metadata service on every host: aws, gcp or azure.",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    notice: Annotated[
        str | None,
        typer.Option(help="What SIGTERM means to a host: taken away in (30s).", rich_help_panel=_ELASTIC),
    ] = None,
    silence: Annotated[
        str | None,
        typer.Option(help="After which a host is taken for lost; default 1.6s.", rich_help_panel=_ELASTIC),
    ] = None,
    host_rate: Annotated[
        str | None,
        typer.Option(
            help="What a host carries in either direction (10gbit): for --thresholds auto, and for what gets away "
            "before a host is taken.",
            rich_help_panel=_ELASTIC,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", rich_help_panel=_SHOWN, help="Do all but start the program, and say what would be started."
        ),
    ] = False,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            rich_help_panel=_RUN,
            help="With --runner slurm: queue it by sbatch (--dry-run shows the script).",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=_SHOWN,
            help="Print the run (or the objects) as JSON; the ranks' output goes to stderr.",
        ),
    ] = False,
) -> None:
    """Run a program as the ranks of a job, in plink's order, and prove that every rank is where it should be.

    Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
    MASTER_ADDR and MASTER_PORT as under torchrun, and GLOO_SOCKET_IFNAME and
    NCCL_SOCKET_IFNAME. The first rank that fails ends the others. What was
    run, the proof and the output stay in .plink/runs (`plink runs`).

    Example: plink launch --hosts hosts.txt train.py --epochs 3
    """
    from plink.api.connecting import connector_for
    from plink.cli.ab import Trial, compare
    from plink.cli.again import recalled
    from plink.cli.elastic_options import AGILEML, Elastic, refuse_with_agileml
    from plink.cli.job_order import Sources, job_order
    from plink.cli.launch_options import named_values, refuse_together, split_words
    from plink.cli.launching import Asked, check_runs, start
    from plink.cli.manifests import Wishes, write
    from plink.model.storage import check_folder
    from plink.model.units import parse_duration, parse_limit
    from runners.choice import KUBERNETES, runner_named
    from runners.job.job import Job

    if log_dir is not None:
        check_folder(log_dir)
    elastic = Elastic(
        thresholds, slack, most_hosts, checkpoints, checkpoint_every, restore, notices, notice, silence, host_rate
    )
    if backend == AGILEML:
        refuse_with_agileml(
            runner, order=order_file, plan=plan_file, given=as_given or None, algo=algo, again=again, ab=ab,
            autotune=autotune or None, submit=submit or None, tail=tail, launcher_args=launcher_args,
        )  # fmt: skip
        if program is None:
            raise UsageError("PROGRAM is missing (`plink launch --help` tells more)")
        from plink.cli import elastic as elastic_job

        asked_for = elastic_job.Asked(
            runner or "ssh", hosts_file, slots, python, log_dir, dry_run, as_json, accept_new_host_keys, elastic
        )
        job = Job(
            program=program, args=tuple(args or ()),
            workdirs=(workdir,) if workdir else ("." if runner == KUBERNETES else os.getcwd(), "~"),
            env=named_values(env or []), timeout_s=parse_limit(timeout) if timeout else None,
            interface=interface, master_port=master_port, mixed_versions=mixed_versions, sync=sync,
        )  # fmt: skip
        if code := elastic_job.run(program, tuple(args or ()), job, asked_for):
            raise typer.Exit(code)
        return
    if elastic.typed:
        raise UsageError(f"options of an elastic job go with --backend {AGILEML}")
    last = None
    if again is not None:
        if program is not None or python is not None or any((hosts_file, order_file, plan_file, as_given, workdir)):
            raise UsageError(
                f"--again {again}: takes program, hosts, order, folder and interpreter from that run; leave them away"
            )
        last = recalled(again)
        python, sync = last.python, sync or last.job.sync
    runner = runner or (last.runner if last else "ssh")
    refuse_together(
        runner, sync=sync, workdir=workdir, ab=ab, figure=figure or higher_is_better or None, again=again,
        dry_run=dry_run or None, given=as_given or None, slots=slots, submit=submit or None,
        launcher_args=launcher_args, backend=backend, autotune=autotune or None,
        tuning=autotune_every or autotune_change,
    )  # fmt: skip
    in_pods = runner == KUBERNETES  # where nothing of this machine's folders and interpreters holds
    wishes = Wishes(image, kind, job_name, namespace, resources, output)
    if not in_pods:
        wishes.refuse(runner)
    workspace.check_output(output, None, (hosts_file, order_file, plan_file, workspace.NETWORK, workspace.ORDER))
    # Refused before hosts are probed, which takes long.
    settings, extra_words = named_values(env or []), split_words(launcher_args)
    timeout_s = parse_limit(timeout) if timeout else None
    every_s = parse_duration(autotune_every or "2s") if autotune else None
    if in_pods:
        wishes.settings()
    if figure is not None:
        from plink.cli.figures import figure_from

        figure_from(figure)
    if backend is not None:
        from plink.cli.aggregating import backend_for, check_backend

        check_backend(backend, every_s)
    sources = Sources(hosts_file, order_file, plan_file, as_given, parse_duration(max_age), algo, accept_new_host_keys)
    if last is not None:
        found, job = last.order, last.job
    elif program is None:
        raise UsageError("PROGRAM is missing (`plink launch --help` tells more)")
    else:
        job = Job(
            program=program,
            args=tuple(args or ()),
            workdirs=(workdir,) if workdir else (".",) if in_pods else (os.getcwd(), "~"),
            pythons=(python,) if python else ("python3",) if in_pods else (sys.executable, "python3"),
            env=settings, timeout_s=timeout_s, interface=interface, mixed_versions=mixed_versions, sync=sync,
            launcher_args=extra_words,
        )  # fmt: skip

        def check(hosts: "Hosts") -> None:
            # Pods have folders of their own, and Slurm may give nodes only when their turn comes.
            if runner not in (KUBERNETES, "slurm"):
                check_runs(runner_named(runner, lambda: connector_for(hosts, accept_new_host_keys)), job, hosts)

        found = _here(sources, slots) if runner == "local" else job_order(sources, check)
        job = replace(job, env=dict(found.environment))
    masters, change = (last.tuned if last else None) or (None, 0.2)
    if backend is not None:
        chosen_backend = backend_for(backend, found.hosts, plan_file, every_s)
        settings, masters = {**chosen_backend.environment, **settings}, chosen_backend.masters
    job = replace(
        job,
        env={**job.env, **settings},
        timeout_s=timeout_s or job.timeout_s,
        interface=interface or job.interface,
        master_port=master_port or job.master_port,
        mixed_versions=mixed_versions or job.mixed_versions,
        sync=sync,
        launcher_args=extra_words or job.launcher_args,
    )
    asked = Asked(
        found.hosts, found.machines, python, log_dir, tail, dry_run, as_json, masters, autotune_change or change
    )
    if in_pods:
        write(job, asked, wishes)
        return
    chosen = runner_named(runner, lambda: connector_for(found.hosts, accept_new_host_keys))
    if submit:
        from plink.cli.submitting import submit as submit_job

        submit_job(job, asked, timeout)
    elif ab is not None:
        compare(chosen, job, asked, found.given, Trial(ab, figure, higher_is_better))
    elif code := start(chosen, job, asked):
        raise typer.Exit(code)


def _here(sources: "Sources", slots: int | None) -> "JobOrder":
    """This machine as the only host."""
    from plink.cli.job_order import JobOrder
    from plink.model.hosts import Host, Hosts

    if any((sources.hosts_file, sources.order_file, sources.plan_file, sources.as_given)):
        raise UsageError("--runner local runs every rank on this machine; leave hosts and orders away (--slots N)")
    hosts = Hosts((Host("localhost", "127.0.0.1", slots=slots or os.cpu_count() or 1),))
    return JobOrder(hosts, hosts, {})

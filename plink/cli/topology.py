"""``plink topology``: where the hosts are in the network, for those who place jobs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from plink.records import workspace
from plink.terminal.screen import say

app = typer.Typer(
    no_args_is_help=True,
    help="Where the hosts are in the network, for those who place jobs.\n\n"
    "Example: plink topology export measured.json -o topology.conf",
)


@app.callback()
def _group() -> None:
    """Keep ``export`` a command of its own: Typer would take it for the whole group."""


@app.command()
def export(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    kind: Annotated[
        Literal["slurm-conf", "slurm-yaml", "topograph", "kubectl"],
        typer.Option(
            "--format",
            help="Slurm's topology.conf or topology.yaml, JSON as of Topograph's graph, or commands that label nodes.",
        ),
    ] = "slurm-conf",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it; default: standard output.")
    ] = None,
) -> None:
    """Write the measured tiers of shared links (racks, then pods) for Slurm, Topograph or Kubernetes.

    Names of hosts must be those of Slurm's or Kubernetes' nodes, or of Topograph's instances.

    Example: plink topology export measured.json -o topology.conf
    """
    from plink.model.storage import STANDARD, write_text
    from plink.model.topology.export import kubectl_commands, slurm_conf, slurm_yaml, switches_of, topograph_json
    from plink.terminal.inputs import network_from

    workspace.check_output(output, None, (network_file or workspace.NETWORK,))
    switches = switches_of(network_from(network_file))
    writers = {
        "slurm-conf": slurm_conf, "slurm-yaml": slurm_yaml, "topograph": topograph_json, "kubectl": kubectl_commands,
    }  # fmt: skip
    text = writers[kind](switches)
    if output is None or str(output) == STANDARD:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    say(f"{len(switches)} switches -> {output}")

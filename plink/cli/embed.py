"""``plink embed``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.errors import PartlyDone
from plink.model.units import format_us
from plink.records import workspace
from plink.terminal.results import write_result
from plink.terminal.screen import progress, say

if TYPE_CHECKING:
    from plink.model.network import Matrix, Network
    from solvers.embedding.embed import Embedding

_MAX_WORST_PAIRS = 3  # pairs that are shown
_MAX_NAMED_HOSTS = 5


def embed(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(help="Dimension of the space; default: chosen by the error on pairs it has not seen.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Power of the distance, 1 to 2; default: the better of 1 and 2.")
    ] = None,
    heights: Annotated[
        bool | None,
        typer.Option(
            "--heights/--no-heights", help="Fit what each host adds to all its distances; default: if better."
        ),
    ] = None,
    loss: Annotated[
        str,
        typer.Option(
            help="Errors count relative to the distance, or absolute, in microseconds: auto takes the better."
        ),
    ] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Draws the starts and the pairs kept out of the fit.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto: a GPU for many hosts, if there is one.")] = "auto",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the embedding as JSON.")] = False,
) -> None:
    """Embed the hosts in a space whose distances are the round trips without their noise.

    Shows the error on held-out pairs, and whether fitted distances are nearer
    to fresh measurements than measured ones (if so, use `--smooth-latencies` of
    other commands). The result is written to .plink/embedding.json.

    Example: plink embed cloud.json
    """
    from plink.api.embedding import EmbedRequest
    from plink.api.embedding import embed as make_embedding
    from plink.api.smoothing import verdict_text
    from plink.model.storage import STANDARD
    from plink.terminal.inputs import network_from

    request = EmbedRequest(dimension, alpha, heights, loss, seed, device)
    request.check()  # refuse before anything is read
    workspace.check_output(output, None if as_json else workspace.EMBEDDING, (network_file or workspace.NETWORK,))
    network = network_from(network_file)
    with progress("fitting") as bars:
        embedding = make_embedding(network, request, progress=lambda what, done, total: bars[what](done, total))
    write_result(embedding, "embedding", workspace.EMBEDDING, output, as_json)
    lines = (*_lines(network, embedding.embedding), verdict_text(embedding.verdict))
    if str(output) == STANDARD:
        for line in lines:
            say(line)
    elif not as_json:
        print("\n".join(lines))
    if embedding.left_out:
        names = ", ".join(embedding.left_out[:_MAX_NAMED_HOSTS]) + (
            ", ..." if len(embedding.left_out) > _MAX_NAMED_HOSTS else ""
        )
        raise PartlyDone(f"nothing was measured of {len(embedding.left_out)} hosts, they are left out: {names}")


def _lines(network: "Network", embedding: "Embedding") -> list[str]:
    setting = embedding.setting
    embedded_hosts = len(network.hosts) - len(embedding.left_out)
    parts = [
        f"{embedded_hosts} hosts in {setting.dimension} dimension{'s' if setting.dimension > 1 else ''}",
        f"alpha {setting.alpha:g}",
        "heights" if setting.heights else "no heights",
        f"{'relative' if setting.relative else 'absolute'} errors",
    ]
    selected = f" (the best of {embedding.tried} settings)" if embedding.tried > 1 else ""
    lines = [
        f"{', '.join(parts)}{selected}",
        f"on pairs it had not seen it is {embedding.held_out_error:.1%} off"
        f"{' by near hosts, which predict unmeasured pairs' if embedding.unmeasured_by == 'neighbours' else ''}; "
        f"{embedding.triangle_violations:.1%} of the measured detours are shorter than the straight way",
    ]
    worst_pairs = [
        f"{network.hosts.names[i]} - {network.hosts.names[j]} ({format_us(measured)}, fitted {format_us(fitted)})"
        for i, j, measured, fitted in _worst_pairs(network.rtt_us, embedding.fitted_us)
    ]
    return [*lines, f"farthest from the fit: {', '.join(worst_pairs)}"] if worst_pairs else lines


def _worst_pairs(measured: "Matrix", fitted_us: "Matrix") -> list[tuple[int, int, float, float]]:
    """Return the pairs whose measurement differs most from the fit, by ratio: (i, j, measured, fitted)."""
    import numpy as np

    i, j = np.nonzero(np.triu(np.isfinite(measured) & np.isfinite(fitted_us) & (measured > 0) & (fitted_us > 0), 1))
    off = np.abs(np.log(fitted_us[i, j] / measured[i, j]))
    worst = np.argsort(-off, kind="stable")[:_MAX_WORST_PAIRS]
    return [(int(i[k]), int(j[k]), float(measured[i[k], j[k]]), float(fitted_us[i[k], j[k]])) for k in worst]

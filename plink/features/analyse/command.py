"""``plink embed`` and ``plink cluster``."""

from collections.abc import Sequence

import plink
from plink.errors import PartlyDone
from plink.features.analyse.request import ClusterRequest, EmbedRequest
from plink.features.analyse.show import embedding_lines, print_groups
from plink.model.storage import STANDARD
from plink.model.units import numbered
from plink.records import workspace
from plink.terminal.inputs import network_from
from plink.terminal.options import Json, NetworkFile, OutputFile, takes
from plink.terminal.screen import progress, say, write_result

_MAX_NAMED_HOSTS = 5


@takes(EmbedRequest)
def embed(
    request: EmbedRequest, network_file: NetworkFile = None, output: OutputFile = None, as_json: Json = False
) -> None:
    """Embed the hosts in a space whose distances are the round trips without their noise.

    Shows the error on held-out pairs, and whether fitted distances are nearer
    to fresh measurements than measured ones (if so, use `--smooth-latencies` of
    other commands). The result is written to .plink/embedding.json.

    Example: plink embed cloud.json
    """
    from plink.features.order.smoothing import verdict_text

    workspace.check_output(output, None if as_json else workspace.EMBEDDING, (network_file or workspace.NETWORK,))
    network = network_from(network_file)
    with progress("fitting") as bars:
        result = plink.embed(network, request, progress=lambda what, done, total: bars[what](done, total))
    write_result(result, "embedding", workspace.EMBEDDING, output, as_json)
    for line in (*embedding_lines(result), verdict_text(result.verdict)):
        if str(output) == STANDARD:
            say(line)
        elif not as_json:
            print(line)
    _refuse_left_out(result.left_out)


@takes(ClusterRequest)
def cluster(
    request: ClusterRequest, network_file: NetworkFile = None, output: OutputFile = None, as_json: Json = False
) -> None:
    """Cluster hosts near each other into balanced groups for hierarchical aggregation.

    Shows the gain over random groups, how well repeated runs agree, and the
    natural tiers (machines, racks, zones). The result is written to
    .plink/groups.json; see docs/analyse.md.

    Example: plink cluster cloud.json --elasticity 1.5
    """
    workspace.check_output(output, None if as_json else workspace.GROUPS, (network_file or workspace.NETWORK,))
    network = network_from(network_file)
    with progress("fitting", "clustering") as bars:
        result = plink.cluster(network, request, progress=lambda what, done, total: bars[what](done, total))
    if not write_result(result, "groups", workspace.GROUPS, output, as_json):
        print_groups(result)
    _refuse_left_out(result.left_out)


def _refuse_left_out(names: Sequence[str]) -> None:
    """Name hosts of which nothing was measured.

    :raises PartlyDone: where there are any.
    """
    if names:
        shown = ", ".join(names[:_MAX_NAMED_HOSTS]) + (", ..." if len(names) > _MAX_NAMED_HOSTS else "")
        left_out = numbered(len(names), "host, it is", "hosts, they are")
        raise PartlyDone(f"nothing was measured of {left_out} left out: {shown}")

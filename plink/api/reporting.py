"""A page about a network, one file that opens offline."""

from plink.api.facts import facts_of
from plink.api.host_map import fitted_map, map_of
from plink.api.report_request import ReportRequest
from plink.errors import InputError, UsageError
from plink.model.network import Network
from plink.report.facts import Facts, Map
from plink.report.page import page


def render_report(network: Network, request: ReportRequest | None = None) -> str:
    """Draw the network as a page: HTML that needs no other file.

    :raises UsageError: for a single host. :raises NoAnswer: when no round trip was measured.
    :raises InputError: when the order, the groups or the embedding are not of these hosts.
    """
    wanted = request or ReportRequest()
    if wanted.seed < 0:
        raise UsageError(f"--seed {wanted.seed}: cannot be negative")
    embedding = wanted.embedding
    if embedding is not None and embedding.network.hosts.names != network.hosts.names:
        raise InputError("embedding", "was made of other hosts")

    def place(known: Facts) -> tuple[Map | None, str]:
        return fitted_map(network, known, wanted.seed) if embedding is None else (map_of(embedding.embedding), "")

    return page(facts_of(network, wanted, place))

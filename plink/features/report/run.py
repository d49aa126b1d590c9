"""Render a report on a network: one HTML file that opens offline."""

from plink.errors import InputError, UsageError
from plink.features.report.gather import ReportRequest, report_data_of
from plink.features.report.host_map import fitted_map, map_of
from plink.model.network import Network
from plink.report.page import page
from plink.report.report_data import HostMap, ReportData


def render_report(network: Network, request: ReportRequest | None = None) -> str:
    """Render the network as a page: HTML that needs no other file.

    :raises UsageError: for a single host. :raises NoAnswer: when no round trip was measured.
    :raises InputError: when the order, the groups or the embedding are not of these hosts.
    """
    request = request or ReportRequest()
    if request.seed < 0:
        raise UsageError(f"--seed {request.seed}: cannot be negative")
    embedding = request.embedding
    if embedding is not None and embedding.network != network.fingerprint():
        raise InputError("embedding", "was made of other hosts")

    def place(data: ReportData) -> tuple[HostMap | None, str]:
        if embedding is None:
            return fitted_map(network, data, request.seed)
        return map_of(network, data.groups.of, embedding, "embedding"), ""

    return page(report_data_of(network, request, place))

"""Describe what `plink probe` would do (``--dry-run``): connections, rounds, traffic and its duration."""

from collections.abc import Iterator

from plink.features.measure.bandwidth_time import bandwidth_rounds, round_seconds
from plink.features.measure.request import ProbeRequest
from plink.features.measure.run import settings_of
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.units import format_bytes, format_duration, format_time
from probes.host_flows import FlowSettings
from probes.methods import MIN_COUNT, ProbeSettings
from probes.shared_links import SharedLinkSettings

_MAX_LISTED = 32  # hosts
_PROBE_WIRE_BYTES = 154  # bytes: a probe or its answer has 112, in an Ethernet frame more


def dry_run_lines(hosts: Hosts, request: ProbeRequest, network: Network | None = None) -> Iterator[str]:
    """Yield the lines of the dry run.

    :param network: of an earlier probe of these hosts, with shared links.
    """
    n, method, settings = len(hosts), request.method, settings_of(request)
    adaptive = request.adaptive(n)  # of round trips only; bandwidths are those of all pairs
    pairs, rounds = n * (n - 1) // 2, n - 1 + n % 2
    yield f"connect to {n} hosts over SSH and start an agent on each, from memory"
    if method != "iperf3":
        pairs_text = f"about a tenth of {pairs} pairs" if adaptive else f"{pairs} pairs in {rounds} rounds"
        yield f"measure {pairs_text} by {method}, {_probes(method, settings, 0 if adaptive else pairs)}"
    if method == "iperf3":
        yield _bandwidth(request, settings, hosts, network)
    if request.host_rates and method != "iperf3":
        flows = FlowSettings()
        yield (
            f"measure what every host sends and receives: with {min(flows.rounds, n - 1)} partners, one way, the "
            f"other, and both, TCP flows of {format_time(flows.seconds)} or {format_bytes(flows.max_bytes)} at most; "
            "hosts that met slower ones then meet the fastest; --no-host-rates omits this"
        )
    if request.shared_links and method != "iperf3":
        yield (
            "measure the capacity that groups of hosts share, if there are groups: many TCP flows at once out of "
            f"and into each, {format_time(SharedLinkSettings().seconds)} a run; --no-shared-links omits this"
        )
    if request.bandwidth and method != "iperf3":
        yield _bandwidth(request, settings, hosts, network)
    for host in hosts.members[:_MAX_LISTED]:
        user, port = f"{host.user}@" if host.user else "", f" -p {host.port}" if host.port else ""
        yield f"  ssh {user}{host.address}{port}  # {host.name}"
    if n > _MAX_LISTED:
        yield f"  ... and {n - _MAX_LISTED} more hosts"


def _probes(method: str, settings: ProbeSettings, pairs: int) -> str:
    """Describe the probes of a pair: methods other than STAMP send fewer where each costs more."""
    if method != "stamp":
        return f"{settings.count} probes a pair at most"
    counts, most = str(settings.count), ""
    if settings.precision is not None:
        counts, most = f"{MIN_COUNT} to {settings.count}", "at most "
    total = f": {most}{format_bytes(pairs * settings.count * 2 * _PROBE_WIRE_BYTES)}" if pairs else ""
    return f"{counts} probes a pair{total}"


def _bandwidth(request: ProbeRequest, settings: ProbeSettings, hosts: Hosts, network: Network | None) -> str:
    """Describe the bandwidth tests: more rounds where shared links, of an earlier file, carry few flows at a time."""
    n = len(hosts)
    pairs, rounds = n * (n - 1) // 2, n - 1 + n % 2
    by_iperf3 = request.bandwidth_method == "iperf3"
    if network is not None:
        rounds = bandwidth_rounds(hosts.names, network.shared_links, settings.seed)
    streams = "" if settings.streams == 1 else f" with {settings.streams} streams"
    test = "an iperf3 test" if by_iperf3 else "a TCP flow"
    begins = f"measure the bandwidth of {pairs} pairs in {rounds} rounds, {test} of"
    if settings.bandwidth_bytes is not None:
        total = format_bytes(2 * pairs * settings.bandwidth_bytes)
        return f"{begins} {format_bytes(settings.bandwidth_bytes)} each way{streams}: {total}"
    seconds = max(1.0, settings.bandwidth_s) if by_iperf3 else settings.bandwidth_s
    # iperf3 runs a second uncounted
    round_s = 2 * (seconds + 1.1) if by_iperf3 else round_seconds(seconds, request.host_rates)
    if network is not None:
        limits = ", by the shared links of the file"
    else:
        limits = ", longer where groups of hosts share links that carry few flows at a time"
    return (
        f"{begins} {format_time(seconds)} each way{streams}, as fast as the network is: "
        f"{format_duration(rounds * round_s)}{limits}"
    )

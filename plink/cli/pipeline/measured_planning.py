"""``plink pipeline plan --network``: a plan for hosts whose network was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.errors import UsageError

if TYPE_CHECKING:
    from plink.cli.screen import Advance
    from plink.model.pipeline.plan import PipelinePlan
    from plink.model.pipeline.profile import ModelProfile


def check_even_options(
    network: Path | None, memory: list[str] | None, compare: bool, others: Mapping[str, Any]
) -> None:
    """Refuse options of measured networks without one, and those of even hosts with one; ``others``: by name.

    :raises UsageError: naming the option.
    """
    if network is None:
        if memory or compare:
            raise UsageError(f"{'--memory' if memory else '--compare'} goes with --network")
        return
    misplaced = [name for name, value in others.items() if value is not None]
    if misplaced:
        raise UsageError(f"{misplaced[0]} is for hosts that are alike; omit it with --network")


def plan_measured_hosts(
    profile: "ModelProfile", network_file: Path, options: Mapping[str, Any], bar: "Advance"
) -> "PipelinePlan":
    """Return the plan; ``options``: of the command, by the request's names, ``hosts`` a file and ``gbps`` text."""
    from plink.api.pipeline_placement import MeasuredPipelineRequest, plan_on_network
    from plink.model.hosts import read_hosts
    from plink.model.network import read_network

    gbps = options["gbps"]
    try:
        rate = None if gbps is None else float(gbps)
    except ValueError:
        rate = 0.0
    if rate is not None and not 0 < rate < 1e7:
        raise UsageError(
            f"--gbps {gbps[:40]}: with --network, one rate in Gbit/s, for hosts whose rates nobody measured"
        )
    hosts = options["hosts"]
    request = MeasuredPipelineRequest(
        **{**options, "gbps": rate, "hosts": None if hosts is None else read_hosts(Path(hosts))}
    )
    request.check()
    return plan_on_network(profile, read_network(network_file), request, bar)

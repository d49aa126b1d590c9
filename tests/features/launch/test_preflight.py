"""Preflight of a job's network: what is run again, what is warned of, and what a strict one refuses."""

import logging
from collections.abc import Sequence

import pytest

from plink.errors import PlinkError
from plink.features.launch.run import PreflightRequest, check_network
from runners.job.runner import Flow, FlowResults
from tests.solvers.diagnosis.test_ring_check import HOST_GBPS, NAMES, network

RING = tuple(NAMES)


class Flows:
    """Flows with these rates in each run, or HOST_GBPS; keeps what was run."""

    def __init__(self, *runs: dict[Flow, float | str]) -> None:
        self.rates, self.runs = list(runs), list[Sequence[Flow]]()

    def __call__(self, flows: Sequence[Flow]) -> FlowResults:
        self.runs.append(flows)
        rates = self.rates.pop(0) if self.rates else {}
        return {flow: rates.get(flow, HOST_GBPS) for flow in flows}


def of_host(host: int, rate: float | str) -> dict[Flow, float | str]:
    """The two flows of a host."""
    return {(NAMES[host - 1], NAMES[host]): rate, (NAMES[host], NAMES[host + 1]): rate}


def test_one_flow_a_host_and_silence_where_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    flows = Flows()
    check_network(flows, PreflightRequest(network(), RING, strict=True))
    (run,) = flows.runs
    assert list(run) == list(zip(RING, (*RING[1:], RING[0]), strict=True))
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


def test_a_host_that_stays_slow_is_named(caplog: pytest.LogCaptureFixture) -> None:
    flows = Flows(of_host(5, 0.02), of_host(5, 0.025))
    check_network(flows, PreflightRequest(network(), RING))
    assert [set(run) for run in flows.runs[1:]] == [set(of_host(5, 0))]
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert all(word in line for word in (NAMES[5], "25 Mbit/s", "200 Mbit/s"))
    with pytest.raises(PlinkError, match=f"{NAMES[5]}.*25 Mbit/s.*nothing was run"):
        check_network(Flows(of_host(5, 0.02), of_host(5, 0.025)), PreflightRequest(network(), RING, strict=True))


def test_a_host_that_was_busy_for_a_moment_is_not() -> None:
    check_network(Flows(of_host(5, 0.02)), PreflightRequest(network(), RING, strict=True))
    check_network(Flows(of_host(5, "the flow ended early")), PreflightRequest(network(), RING, strict=True))


@pytest.mark.parametrize("closed", [[5], range(len(NAMES))], ids=["one flow", "all flows"])
def test_flows_that_do_not_come_through_are_a_line(closed: Sequence[int], caplog: pytest.LogCaptureFixture) -> None:
    def flows() -> Flows:
        reasons: dict[Flow, float | str] = {(NAMES[k], NAMES[(k + 1) % len(NAMES)]): "timed out" for k in closed}
        return Flows(reasons, reasons)

    check_network(flows(), PreflightRequest(network(), RING))
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "no flow came through" in line
    assert "timed out" in line
    with pytest.raises(PlinkError, match="no flow came through"):
        check_network(flows(), PreflightRequest(network(), RING, strict=True))


def test_one_host_has_no_ring() -> None:
    flows = Flows()
    check_network(flows, PreflightRequest(network(), RING[:1]))
    assert flows.runs == []

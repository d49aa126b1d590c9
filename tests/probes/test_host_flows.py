"""Flows between rotating partners: who meets whom, what agents are told, and what is recorded."""

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from plink.transport import flows
from probes.host_flows import FlowSettings, exchange_flows, partner_rounds
from probes.session import ProbeSession
from tests.probes import fake_fleet
from tests.probes.fake_fleet import Behaviour, FakeFleet, session_of

TOKENS = [bytes([number] * 32).hex() for number in range(2)]
WAIT_S = 60.0


def racks(hosts: int, per_rack: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """20 us within racks, 60 us between them."""
    rack = np.arange(hosts) // per_rack
    rtt = np.where(rack[:, None] == rack, 20.0, 60.0)
    np.fill_diagonal(rtt, 0.0)
    return rtt


@pytest.mark.parametrize("hosts", [2, 3, 5, 16, 100])
def test_round_robin_pairs_are_disjoint_and_unique(hosts: int) -> None:
    rounds = partner_rounds(racks(hosts, 4), FlowSettings(rounds=3))
    for pairs in rounds:
        assert len(set(itertools.chain(*pairs))) == 2 * len(pairs)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met))
    assert len(rounds[0]) == hosts // 2


@pytest.mark.parametrize("hosts", [2, 3, 5, 9, 31])
def test_every_host_has_partners(hosts: int) -> None:
    """Also of an odd number, where one host waits in each round: perhaps the same one."""
    for seed in range(20):
        rounds = partner_rounds(racks(hosts, 3), FlowSettings(rounds=2, seed=seed))
        partners = [sum(host in pair for pairs in rounds for pair in pairs) for host in range(hosts)]
        assert min(partners) >= min(2, hosts - 1)
        assert len(rounds) <= 4


def test_partners_are_of_the_same_rack_where_possible() -> None:
    for seed in range(10):
        rounds = partner_rounds(racks(16, 4), FlowSettings(rounds=2, seed=seed))
        assert all(a // 4 == b // 4 for pairs in rounds for a, b in pairs)
        assert all(len(pairs) == 8 for pairs in rounds)


def test_unmeasured_round_trips_are_far() -> None:
    rtt = racks(8, 4)
    rtt[0, 1:] = rtt[1:, 0] = np.nan
    assert sum(map(len, partner_rounds(rtt, FlowSettings()))) >= 7


def rates(gbps: dict[str, float]) -> Behaviour:
    """Agents that receive at these rates."""
    return fake_fleet.flows(lambda host, body: gbps[host])


def exchanged(fleet: FakeFleet, hosts: int, pairs: list[tuple[int, int]]) -> tuple[ProbeSession, Any, Any]:
    """The session, the rows and the errors of one round."""
    session, errors = session_of(fleet, hosts), dict[tuple[int, int], str]()
    return session, exchange_flows(session, pairs, FlowSettings(), errors), errors


def test_each_pair_is_measured_one_way_then_the_other_then_both() -> None:
    fleet = FakeFleet(rates({"h0": 1.0, "h1": 2.0}))
    _, rows, errors = exchanged(fleet, 2, [(0, 1)])
    assert [(row.source, row.target, row.gbps, row.both_ways) for row in rows] == [
        ("h0", "h1", 2.0, False), ("h1", "h0", 1.0, False), ("h0", "h1", 2.0, True), ("h1", "h0", 1.0, True),
    ]  # fmt: skip
    assert errors == {}
    tokens = [body["receive_token"] for _, _, body in fleet.sent if "receive_token" in body]
    assert len(tokens) == len(set(tokens)) == 4
    assert {body["max_bytes"] for _, _, body in fleet.sent if body["method"] == "flow_exchange"} == {64_000_000}


def test_all_pairs_of_a_round_run_at_the_same_time() -> None:
    fleet = FakeFleet(rates({f"h{host}": 1.0 for host in range(8)}))
    _, rows, _ = exchanged(fleet, 8, [(0, 1), (2, 3), (4, 5), (6, 7)])
    assert len(rows) == 16
    assert fleet.now < 2.0


def test_dead_host_costs_its_own_pair_only() -> None:
    fleet = FakeFleet(rates({f"h{host}": 1.0 for host in range(4)}))
    fleet.lose("h1", 0.2)
    _, rows, errors = exchanged(fleet, 4, [(0, 1), (2, 3)])
    assert {row.source for row in rows} == {"h2", "h3"}
    assert set(errors) <= {(0, 1), (1, 0)}
    assert errors
    assert all("h1" in reason for reason in errors.values())


@pytest.mark.parametrize("answer", [{}, {"gbps": "fast"}, {"gbps": -1.0}, {"gbps": float("nan")}, {"error": "refused"}])
def test_answer_without_a_rate_is_an_error(answer: dict[str, Any]) -> None:
    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        return 0.1, {"port": 1} if body["method"] == "flow_listen" else answer

    _, rows, errors = exchanged(FakeFleet(behave), 2, [(0, 1)])
    assert rows == []
    assert errors[0, 1] == answer.get("error", "no rate was reported")


def ends(seconds: float, max_bytes: int | None, both: bool) -> list[dict[str, Any]]:
    """What two ends on loopback report: the first sends to the second, or each to the other."""
    results: list[dict[str, Any]] = [{}, {}]
    with flows.listen("127.0.0.1") as first, flows.listen("127.0.0.1") as second:
        ports = [first.getsockname()[1], second.getsockname()[1]]
        limits = {"seconds": seconds, **({} if max_bytes is None else {"max_bytes": max_bytes})}
        requests = [{"send_token": TOKENS[0], "peer": ["127.0.0.1", ports[1]]}, {"receive_token": TOKENS[0]}]
        if both:
            requests[0] |= {"receive_token": TOKENS[1]}
            requests[1] |= {"send_token": TOKENS[1], "peer": ["127.0.0.1", ports[0]]}

        def run(end: int) -> None:
            results[end] = flows.exchange((first, second)[end], {**requests[end], **limits})

        threads = [threading.Thread(target=run, args=(end,)) for end in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    return results


def test_flows_both_ways_are_counted_at_both_ends() -> None:
    first, second = ends(0.2, None, both=True)
    assert first["gbps"] > 0
    assert second["gbps"] > 0


def test_flow_that_ends_by_its_bytes_is_counted() -> None:
    first, second = ends(30.0, 8_000_000, both=False)
    assert second["gbps"] > 0
    assert "error" not in first


def test_sender_that_reaches_nobody_is_an_error() -> None:
    request = {"send_token": TOKENS[0], "peer": ["127.0.0.1", 9], "seconds": 0.1}
    assert "no flow to" in flows.exchange(None, request)["error"]

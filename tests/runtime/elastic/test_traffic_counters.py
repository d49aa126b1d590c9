"""What a process has carried, over connections that are there and that were."""

import pytest

from plink.elastic import Table
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.transport import records
from plink.runtime.elastic.transport.records import TrafficAccount, TrafficCounters
from tests.runtime.elastic.stores import store, wait_for


class Wire:
    """A connection that has carried so much."""

    def __init__(self, sent: int, received: int, accepted: bool) -> None:
        self.sent, self.received, self.accepted = sent, received, accepted


def test_a_connection_that_has_ended_counts_once() -> None:
    account = TrafficAccount()
    wires = [Wire(1, 2, False), Wire(10, 20, False)]
    for wire in wires:
        account.add(wire)
    account.end(wires[0])
    account.end(wires[0])
    wires[0].sent += 100  # of no account any more
    assert account.total() == TrafficCounters(11, 22)


def test_the_connections_of_a_store_are_in_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them in one process: what one end has sent the other has received. Whoever sends counts it when it has
    gone, which may be after the other end has it; what other tests left open may end now, so the account is new."""
    layout, account = Layout((Table("n", 4, 1024, "float64"),), 1), TrafficAccount()
    monkeypatch.setattr(records, "TRAFFIC", account)
    with store(layout) as run:
        run.open(1)
        run.client(0).read("n", range(4))
        assert account.total().client_received >= 4 * 1024 * 8
        wait_for(lambda: account.total().server_sent == account.total().client_received)
        wait_for(lambda: account.total().client_sent == account.total().server_received)
    assert account.total().client_received >= 4 * 1024 * 8

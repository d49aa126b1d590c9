"""An order as the files that launchers read: the order is kept, and every rank has its line."""

import json

import pytest

from plink.errors import UsageError
from plink.hosts import Host, Hosts, parse_hosts
from plink.order import Order, order_from_json
from runners.hostfiles import FORMATS, render

ORDER = Order("ring", ("c", "a", "b"), cost=3.0, seed=1, details={"model": "latency"})
HOSTS = Hosts((Host("c", "10.0.0.3"), Host("a", "10.0.0.1", slots=2), Host("b", "b")))


def test_an_order_is_what_plink_reads_back() -> None:
    assert order_from_json(json.loads(render("order", HOSTS, ORDER)), "o") == ORDER


def test_hosts_are_names_one_a_line() -> None:
    text = render("hosts", HOSTS, ORDER)
    assert text == "c\na\nb\n"
    assert parse_hosts(text, "h").names == ["c", "a", "b"]


def test_open_mpi_gets_addresses_one_a_rank() -> None:
    """For its sequential mapper, the only one that keeps the order of the lines."""
    assert render("openmpi", HOSTS, ORDER) == "10.0.0.3\n10.0.0.1\n10.0.0.1\nb\n"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_ends_its_last_line(name: str) -> None:
    assert render(name, HOSTS, ORDER).endswith("\n")


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="--format slrum: there are order, hosts, openmpi"):
        render("slrum", HOSTS, ORDER)

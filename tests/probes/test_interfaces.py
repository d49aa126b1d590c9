"""Kernels' routes say which interface leads to whom, and what is on one switch."""

import itertools
import random

from msgspec import structs

from plink.model.document import UNSET
from plink.model.network_file import InterfacesEntry
from probes.agent.routes import routes_to
from probes.interfaces import interfaces_from_routes, use_one_of_several, with_rates_of
from runners.lab.blueprint import Blueprint, LabSettings, draw
from solvers.ordering.interfaces import BCube, Rails, recognise

Routes = dict[int, dict[str, tuple[str | None, str | None]]]


def bcube_routes(blueprint: Blueprint) -> Routes:
    """Routes of each host: by way of the neighbour with the lowest differing digit, as a BCube's hosts have them."""
    by_digits = {place.digits: place for place in blueprint.places}
    routes: Routes = {}
    for host, place in enumerate(blueprint.places):
        table: dict[str, tuple[str | None, str | None]] = {place.address: (None, None)}
        for peer in blueprint.places:
            differing = [level for level in range(len(place.digits)) if peer.digits[level] != place.digits[level]]
            if differing:
                level = differing[0]
                by = by_digits[place.digits[:level] + peer.digits[level : level + 1] + place.digits[level + 1 :]]
                table[peer.address] = (f"eth{level}", None if by is peer else by.address)
        routes[host] = table
    return routes


def test_a_bcube_is_read_from_routes() -> None:
    blueprint = draw(LabSettings("t", topology="bcube", base=3, levels=2, seed=5))
    main = {host: place.address for host, place in enumerate(blueprint.places)}
    owners = {address: host for host, address in main.items()}
    own = {host: {address: "host0"} for host, address in main.items()}
    result = interfaces_from_routes(9, main, owners, bcube_routes(blueprint), own)
    assert result is not None
    assert result.names == [["eth0", "eth1"]] * 9
    switches = [[(host, interface) for host, interface in switch] for switch in result.switches]
    shape = recognise(9, switches)
    assert isinstance(shape, BCube)
    assert (shape.base, shape.levels) == (3, 2)
    for i, j in itertools.permutations(range(9), 2):
        differing = [a != b for a, b in zip(blueprint.places[i].digits, blueprint.places[j].digits, strict=True)]
        relay = result.relays[i][j]
        assert (relay is None) == (sum(differing) == 1)
        assert result.used[i][j] == differing.index(True)
        if relay is not None:
            assert result.relays[i][relay] is None


def test_rails_are_read_from_routes_to_all_addresses() -> None:
    blueprint = draw(LabSettings("t", topology="rails", hosts_per_rack=4, rails=2, seed=5))
    main = {host: place.address for host, place in enumerate(blueprint.places)}
    owners = {place.on_rail(rail): host for host, place in enumerate(blueprint.places) for rail in range(2)}
    own = {
        host: {place.on_rail(rail): f"eth{rail}" for rail in range(2)} for host, place in enumerate(blueprint.places)
    }
    routes: Routes = {
        host: {place.on_rail(rail): (f"eth{rail}", None) for place in blueprint.places for rail in range(2)}
        for host in range(4)
    }
    result = interfaces_from_routes(4, main, owners, routes, own)
    assert result is not None
    shape = recognise(4, [[(host, interface) for host, interface in switch] for switch in result.switches])
    assert isinstance(shape, Rails)
    assert shape.interfaces.shape == (4, 2)


def test_hosts_of_one_interface_are_not_described() -> None:
    """Whether neighbours are on the link or behind a router."""
    addresses = {host: f"10.0.0.{host + 1}" for host in range(3)}
    owners = {address: host for host, address in addresses.items()}
    for gateway in (None, "10.0.0.254"):
        routes: Routes = {host: dict.fromkeys(owners, ("eth0", gateway)) for host in range(3)}
        own = {host: {address: "eth0"} for host, address in addresses.items()}
        assert interfaces_from_routes(3, addresses, owners, routes, own) is None


def test_a_host_that_did_not_answer_is_left_out() -> None:
    blueprint = draw(LabSettings("t", topology="bcube", base=3, levels=2, seed=5))
    main = {host: place.address for host, place in enumerate(blueprint.places)}
    owners = {address: host for host, address in main.items()}
    routes = bcube_routes(blueprint)
    missing = random.Random(1).randrange(9)
    del routes[missing]
    own = {host: {address: "host0"} for host, address in main.items()}
    result = interfaces_from_routes(9, main, owners, routes, own)
    assert result is not None
    assert result.names[missing] == []
    assert all(host != missing for switch in result.switches for host, _ in switch)


def test_routes_of_the_kernel() -> None:
    """Its own addresses, and what is no address, have none; the answers are in the order of the questions."""
    answers = routes_to(["127.0.0.1", "not an address", "127.0.0.2", "::1", "10.0.0.300"])
    assert answers == [(None, None)] * 5


def test_unused_interfaces_are_reported() -> None:
    """Addresses on two interfaces that all are reached by the default route; not so where they have a route each."""
    owners = {f"10.{rail}.0.{host}": host for host in range(3) for rail in range(2)}
    own = {host: {f"10.{rail}.0.{host}": f"eth{rail}" for rail in range(2)} for host in range(3)}
    routes: Routes = {host: dict.fromkeys(owners, ("eth0", "10.0.0.254")) for host in range(3)}
    main = {host: f"10.0.0.{host}" for host in range(3)}
    assert interfaces_from_routes(3, main, owners, routes, own) is None
    assert use_one_of_several(owners, routes, own)
    single = {host: {f"10.0.0.{host}": "eth0", "172.17.0.1": "docker0"} for host in range(3)}
    assert not use_one_of_several(owners, routes, single)


def test_rates_of_a_run_that_resumes_are_kept_for_the_same_interfaces() -> None:
    blueprint = draw(LabSettings("t", topology="bcube", base=2, levels=2, seed=5))
    main = {host: place.address for host, place in enumerate(blueprint.places)}
    owners = {address: host for host, address in main.items()}
    own = {host: {address: "host0"} for host, address in main.items()}

    def entry() -> InterfacesEntry:
        result = interfaces_from_routes(4, main, owners, bcube_routes(blueprint), own)
        assert result is not None
        return result

    earlier = entry()
    earlier = structs.replace(earlier, out_gbps=[[1.0, 2.0]] * 4, in_gbps=[[1.0, 2.0]] * 4)
    assert with_rates_of(earlier, entry()).out_gbps == [[1.0, 2.0]] * 4
    assert with_rates_of(None, entry()).out_gbps is UNSET
    failed = structs.replace(earlier, errors=[[None, "no flow"], *[[None, None]] * 3])
    assert with_rates_of(failed, entry()) == failed
    earlier = structs.replace(earlier, switches=earlier.switches[1:])
    assert with_rates_of(earlier, entry()).out_gbps is UNSET

"""A lab as drawn: addresses of its own, nothing that gives a rack away, and the same drawing for the same seed."""

import ipaddress
import itertools
import json
import statistics
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import InputError, UsageError
from plink.model.hosts import parse_hosts, render_hosts
from runners.lab.blueprint import Blueprint, LabSettings, draw, from_json, is_lab_address

SETTINGS = st.builds(
    LabSettings,
    name=st.just("t"),
    racks=st.integers(1, 8),
    hosts_per_rack=st.integers(1, 8),
    seed=st.integers(0, 2**31),
)


@settings(max_examples=25)
@given(SETTINGS)
def test_every_address_is_its_own_and_of_the_labs(settings: LabSettings) -> None:
    """Hosts, gateways and both ends of every uplink (one a rack and one for the controller)."""
    blueprint = draw(settings)
    addresses = [place.address for place in blueprint.places]
    addresses += [blueprint.gateway(rack) for rack in range(settings.racks)]
    addresses += [end for link in range(settings.racks + 1) for end in blueprint.uplink(link)]
    assert len(set(addresses)) == len(addresses)
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network("198.18.0.0/15") for address in addresses)


def test_racks_are_in_pods() -> None:
    """Six racks in three pods, whose uplinks come after those of the racks and the controller."""
    blueprint = draw(LabSettings("t", racks=6, hosts_per_rack=1, pods=3))
    assert blueprint.pods == ["pod0", "pod1", "pod2"]
    assert [blueprint.above(rack) for rack in range(6)] == ["pod0", "pod0", "pod1", "pod1", "pod2", "pod2"]
    assert len({end for link in range(6 + 1 + 3) for end in blueprint.uplink(link)}) == 20
    for place in blueprint.places:
        assert blueprint.truth().to_json()["positions"][place.name] == [blueprint.above(place.rack), place.rack]
    assert draw(LabSettings("t", racks=6)).above(5) == "core"


def test_the_largest_labs_fit() -> None:
    for racks, per_rack in ((64, 8), (1, 512)):
        blueprint = draw(LabSettings("t", racks, per_rack))
        assert len({place.address for place in blueprint.places}) == 512
        assert all(is_lab_address(end) for link in range(racks + 1) for end in blueprint.uplink(link))


@given(SETTINGS)
def test_every_rack_has_its_hosts_each_at_a_port(settings: LabSettings) -> None:
    blueprint = draw(settings)
    for rack in range(settings.racks):
        assert sorted(place.port for place in blueprint.in_rack(rack)) == list(range(settings.hosts_per_rack))
    assert len({place.name for place in blueprint.places}) == settings.racks * settings.hosts_per_rack


@given(SETTINGS)
def test_the_same_seed_draws_the_same(settings: LabSettings) -> None:
    assert draw(settings) == draw(settings)


def neighbours_in_one_rack(racks: list[int]) -> int:
    """How many hosts stand beside one of their own rack."""
    return sum(a == b for a, b in itertools.pairwise(racks))


def test_neither_name_nor_address_gives_a_rack_away() -> None:
    """Over 200 labs of 4 x 4, neighbours by name or address share a rack as often as chance has it: 3 of 15 pairs."""
    by_name, by_address = [], []
    for seed in range(200):
        places = draw(LabSettings("t", seed=seed)).places
        by_name.append(neighbours_in_one_rack([place.rack for place in places]))
        numerically = sorted(places, key=lambda place: int(ipaddress.ip_address(place.address)))
        by_address.append(neighbours_in_one_rack([place.rack for place in numerically]))
    assert statistics.mean(by_name) == pytest.approx(3, abs=0.4)
    assert statistics.mean(by_address) == pytest.approx(3, abs=0.4)


def test_hosts_file_holds_names_and_addresses_only() -> None:
    blueprint = draw(LabSettings("t", racks=2, hosts_per_rack=2))
    text = render_hosts(blueprint.hosts())
    assert parse_hosts(text, "h") == blueprint.hosts()
    assert "rack" not in text
    assert text.startswith("# plink-lab: t\n")
    (first, *_), place = blueprint.hosts(), blueprint.places[0]
    assert (first.name, first.address, first.slots, first.user) == (place.name, place.address, 1, "root")


@given(SETTINGS)
def test_a_blueprint_is_kept_in_a_file(settings: LabSettings) -> None:
    blueprint = draw(settings)
    again: Blueprint = from_json(json.loads(json.dumps(asdict(blueprint))), "lab.json")
    assert again == blueprint


def test_labs_side_by_side_have_namespaces_of_their_own() -> None:
    """Also where one name is the beginning of another."""
    item, other = draw(LabSettings("a")), draw(LabSettings("a-1"))
    assert item.namespace("core") == "plink.a.core"
    assert not other.namespace("core").startswith("plink.a.")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("racks", 65, "1 to 64 racks"),
        ("hosts_per_rack", 129, "1 to 512 hosts"),
        ("mtu", 1279, "1280 to 65535"),
        ("uplink_delay_us", 1_000_001, "at most 1s"),
        ("pods", 3, "--pods 3: 4 racks cannot be divided evenly between them"),
        ("pods", -1, "--pods -1"),
    ],
)
def test_a_lab_that_cannot_be_is_refused(field: str, value: int, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        LabSettings("t", **{field: value})


def test_a_name_that_cannot_be_one_of_a_namespace_is_refused() -> None:
    for name in ("", "A", "a b", "../a", "a.b", "-a", "x" * 17, "$(id)"):
        with pytest.raises(InputError, match=r"--name: .* cannot be a lab's name"):
            LabSettings(name)


def test_lab_addresses_are_recognised() -> None:
    inside = {"198.18.0.0": True, "198.19.255.255": True, "198.17.255.255": False, "198.20.0.0": False,
              "node-1": False, "::1": False}  # fmt: skip
    assert {address: is_lab_address(address) for address in inside} == inside


@settings(max_examples=25)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 2**31))
def test_bcube_has_every_combination_of_digits(base: int, levels: int, seed: int) -> None:
    blueprint = draw(LabSettings("t", topology="bcube", base=base, levels=levels, seed=seed))
    assert sorted(place.digits for place in blueprint.places) == list(itertools.product(range(base), repeat=levels))
    assert len(blueprint.switches) == levels * base ** (levels - 1)
    for place, other in itertools.combinations(blueprint.places, 2):
        differing = sum(a != b for a, b in zip(place.digits, other.digits, strict=True))
        shared = set(blueprint.switches_of(place)) & set(blueprint.switches_of(other))
        assert len(shared) == (differing == 1)
    assert blueprint.truth().to_json()["digits"] == {place.name: list(place.digits) for place in blueprint.places}
    assert from_json(json.loads(json.dumps(asdict(blueprint))), "lab.json") == blueprint


def test_rails_give_each_host_an_address_per_rail() -> None:
    blueprint = draw(LabSettings("t", topology="rails", hosts_per_rack=5, rails=3))
    addresses = [place.on_rail(rail) for place in blueprint.places for rail in range(3)]
    assert len(set(addresses)) == 15
    assert all(is_lab_address(address) for address in addresses)
    assert blueprint.switches == ["rail0", "rail1", "rail2"]


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"topology": "torus"}, "--topology"),
        ({"topology": "bcube", "base": 1}, "--base"),
        ({"topology": "bcube", "base": 8, "levels": 4}, "--base"),
        ({"topology": "bcube", "levels": 7, "base": 2}, "--levels"),
        ({"topology": "rails", "rails": 0}, "--rails"),
        ({"topology": "bcube", "pods": 2}, "--pods"),
    ],
)
def test_impossible_topologies_are_refused(wrong: dict[str, object], option: str) -> None:
    with pytest.raises(UsageError, match=option):
        LabSettings("t", **wrong)  # type: ignore[arg-type]

"""Two files side by side: whose rows are whose, and what of a pair can be compared."""

from typing import Any

import numpy as np

from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from solvers.changes.noise import align, otherwise
from tests.networks import details_from
from tests.solvers.changes.files import even, flat, named


def found_at(*addresses: str, machines: Any = None) -> Network:
    """Hosts a, b, ... at addresses of a hosts file."""
    hosts = Hosts(tuple(Host("abcdef"[k], address) for k, address in enumerate(addresses)))
    return Network(
        hosts, flat(len(addresses)), None, details_from({} if machines is None else {"machines": machines}), "a file"
    )


def test_a_host_moved_where_both_files_know_an_address_and_it_is_another_one() -> None:
    old = found_at("10.0.0.1", "10.0.0.2", "c", "10.0.0.4")
    new = found_at("10.0.0.1", "10.0.9.2", "10.0.0.3", "d")
    assert align(old, new).moved == ("b",)
    assert align(new, old).moved == ("b",)


def test_what_a_machine_says_of_its_address_goes_before_the_hosts_file() -> None:
    old = found_at("10.0.0.1", "10.0.0.2", "10.0.0.3")
    message = [{"hostname": "a", "address": "10.9.9.9"}, None, {"hostname": "c"}]
    assert align(old, found_at("10.0.0.1", "10.0.0.2", "10.0.0.3", machines=message)).moved == ("a",)
    assert align(old, found_at("10.0.0.1", "10.0.0.2", "10.0.0.3", machines=message[:2])).moved == ()


def test_machine_output_is_matched_by_position() -> None:
    machines = [{"hostname": "h", "address": f"10.0.0.{k}"} for k in range(3)]
    old, new = found_at("a", "b", "c", machines=machines), found_at("a", "b", "c", machines=machines[::-1])
    assert align(old, new).moved == ("a", "c")


def ways(old: list[list[float | None]], new: list[list[float | None]], *words: str) -> tuple[list[list[int]], str]:
    n = len(old)
    files = (named("abcd"[:n], methods=list(words), method_used=used) for used in (old, new))
    mask, message = otherwise(align(*files), "methods", "method_used")
    return np.argwhere(mask).tolist(), message


def test_pairs_with_different_methods_are_found() -> None:
    """Number 0 is the unknown one here, and a missing number stands for it."""
    old = even(3, 1, x01=2, x02=0, x10=1, x12=float("nan"))
    new = even(3, 1, x01=1, x02=1, x10=0, x12=2)
    assert ways(old, new, "", "stamp", "icmp") == ([[0, 1]], "icmp -> stamp")
    assert ways(old, old, "", "stamp", "icmp") == ([], "")


def test_a_file_that_does_not_say_how_it_measured_differs_from_none() -> None:
    says: dict[str, Any] = {"methods": ["", "a", "b"], "method_used": even(2, 1)}
    other = says | {"method_used": even(2, 2)}
    assert otherwise(align(named("ab", **says), named("ab", **other)), "methods", "method_used")[0].all()
    for key, value in (("methods", UNSET), ("method_used", None)):
        for item in (align(named("ab", **says), named("ab", **(other | {key: value}))),
                    align(named("ab", **(says | {key: value})), named("ab", **other))):  # fmt: skip
            mask, message = otherwise(item, "methods", "method_used")
            assert mask.shape == (2, 2)
            assert not mask.any()
            assert message == ""

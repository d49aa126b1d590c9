"""Two files side by side: whose rows are whose, and what of a pair can be compared."""

from typing import Any

import numpy as np
import pytest

from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network
from solvers.changes.noise import align, otherwise
from tests.networks import details_from
from tests.solvers.changes.files import even, flat, named


def numbered(n: int) -> Matrix:
    """Round trips that tell of which rows and columns they are: 10 i + j."""
    i, j = np.indices((n, n))
    return np.asarray((10.0 * i + j) * (i != j))


def test_rows_and_columns_follow_the_old_file_s_order() -> None:
    old, new = named("abcd", numbered(4)), named("xdba", numbered(4))
    result = align(old, new)
    assert (result.names, result.gone, result.come) == (("a", "b", "d"), ("c",), ("x",))
    assert result.old.latency()[0].tolist() == pytest.approx([np.nan, 1, 3], nan_ok=True)
    assert result.new.latency()[0].tolist() == pytest.approx([np.nan, 32, 31], nan_ok=True)


def test_a_round_trip_of_nothing_is_none_and_the_file_keeps_its_own() -> None:
    rows = flat(3)
    rows[0, 1] = rows[1, 0] = 0.0
    latency = align(named("abc", rows), named("abc")).old.latency()
    assert np.isfinite(latency).tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert rows[0, 0] == 0


def test_halves_and_other_matrices_are_cut_and_arranged_alike() -> None:
    halves = [numbered(3).tolist(), (2 * numbered(3)).tolist()]
    side = align(named("ca"), named("abc", hops=numbered(3).tolist(), halves_us=halves)).new
    first, second = side.halves() or (None, None)
    for result, times in ((side.detail("hops"), 1), (first, 1), (second, 2)):
        assert result is not None
        assert result.tolist() == [[0, 20 * times], [2 * times, 0]]
    assert side.detail("loss_forward") is None
    assert align(named("ca"), named("abc")).new.halves() is None


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
    mask, _ = otherwise(align(named("ab", **says), named("ab", **other)), "methods", "method_used")
    assert mask.tolist() == [[False, True], [True, False]]
    for key, value in (("methods", UNSET), ("method_used", None)):
        for item in (align(named("ab", **says), named("ab", **(other | {key: value}))),
                    align(named("ab", **(says | {key: value})), named("ab", **other))):  # fmt: skip
            mask, message = otherwise(item, "methods", "method_used")
            assert mask.shape == (2, 2)
            assert not mask.any()
            assert message == ""


def test_a_pair_that_was_not_measured_has_no_other_clock() -> None:
    """A probe without an answer is noted by the clock of the program."""
    rows = flat(2)
    rows[0, 1] = np.nan
    old, new = (
        named("ab", each, clocks=["", name], clock_used=even(2, 1))
        for each, name in ((flat(2), "kernel"), (rows, "user"))
    )
    mask, message = otherwise(align(old, new), "clocks", "clock_used")
    assert (mask.tolist(), message) == ([[False, False], [True, False]], "kernel -> user")

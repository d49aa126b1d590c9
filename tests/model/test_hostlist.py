"""Slurm's host lists: against lists written out by hand, and against how Slurm folds names."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.hostlist import expand_hostlist, fold_hostlist, shortened_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", "node1"),
        ("node[1-4,7,09-12]", "node1 node2 node3 node4 node7 node09 node10 node11 node12"),
        ("n[008-011]", "n008 n009 n010 n011"),
        ("n[99-101]", "n99 n100 n101"),
        ("r[1-2]n[0,05]-ib.x", "r1n0-ib.x r1n05-ib.x r2n0-ib.x r2n05-ib.x"),
        ("tux[0-3,12,18-20]", "tux0 tux1 tux2 tux3 tux12 tux18 tux19 tux20"),  # topology.conf(5)
    ],
)
def test_host_lists_expand_to_names(text: str, names: str) -> None:
    assert expand_hostlist(text, "t") == names.split()


PIECE = st.tuples(st.integers(0, 200), st.integers(0, 12), st.integers(1, 5))


@given(
    prefix=st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    suffix=st.from_regex(r"(-[a-z]{1,5})?", fullmatch=True),
    pieces=st.lists(PIECE, min_size=1, max_size=5),
)
def test_a_folded_list_unfolds(prefix: str, suffix: str, pieces: list[tuple[int, int, int]]) -> None:
    folded = ",".join(f"{low:0{width}d}-{low + more:0{width}d}" for low, more, width in pieces)
    wide = [(low, more, max(width, len(str(low)))) for low, more, width in pieces]
    names = [f"{prefix}{low + k:0{width}d}{suffix}" for low, more, width in wide for k in range(more + 1)]
    assert expand_hostlist(f"{prefix}[{folded}]{suffix}", "t") == names


@given(st.text(st.sampled_from("an019[]-, x"), max_size=30))
def test_any_text_is_names_or_one_error(text: str) -> None:
    with suppress(InputError):  # any other exception fails
        names = expand_hostlist(text, "t")
        assert names
        assert all(name and not set(name) & set("[], ") for name in names)


@pytest.mark.parametrize("text", ["n[0-65535],m", "n" + "[0-9]" * 1000])
def test_more_names_than_a_file_may_hold_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(InputError, match="makes more than 65536 hosts"):
        expand_hostlist(text, "t")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("node1 node2 node3 node9", "node[1-3,9]"),
        ("node09 node10 node1", "node[09-10],node1"),
        ("a1.lab a2.lab b", "a[1-2].lab,b"),
        ("10.0.0.1 10.0.0.3 10.0.0.2", "10.0.0.[1-3]"),
    ],
)
def test_names_are_folded(names: str, text: str) -> None:
    assert fold_hostlist(names.split()) == text


@given(st.lists(st.from_regex(r"[a-z]{1,2}[0-9]{0,3}(\.[a-z])?", fullmatch=True), min_size=1, unique=True))
def test_folded_names_expand_to_the_same(names: list[str]) -> None:
    assert sorted(expand_hostlist(fold_hostlist(names), "t")) == sorted(names)


def test_long_list_is_cut_between_names_and_says_how_many_there_are() -> None:
    names = [f"node{k}" for k in range(100, 300, 2)]
    assert shortened_hostlist(names[:3]) == fold_hostlist(names[:3])
    text = shortened_hostlist(names, ", ", 40)
    assert len(text) < 70
    assert text.startswith("node[100,102,104,")
    assert "100" in text.partition("...")[2]

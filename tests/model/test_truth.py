"""Where hosts are, read from whatever says so; what says nothing is refused by name."""

import json
from pathlib import Path

import pytest

from plink.errors import InputError
from plink.model.hosts import Host, Hosts
from plink.model.truth import read_truth

HOSTS = Hosts(tuple(Host(name, name) for name in ("n1", "n2", "n3")))


def written(folder: Path, content: object) -> Path:
    path = folder / "truth"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"schema": "plink.truth/1", "racks": {"n1": 0, "n2": 1}}, [("0",), ("1",), None]),
        ({"schema": "plink.truth/1", "positions": {"n3": ["west", 4], "n1": "east"}}, [("east",), None, ("west", "4")]),
        ({"schema": "plink.groups/1", "groups": [["n1", "n3"], ["n2"]]}, [("0",), ("1",), ("0",)]),
        ("n1, n2 # a rack\n\nn3\n", [("0",), ("0",), ("1",)]),
        ("n1 n2\n", [("0",), ("0",), None]),
        ("n1 r1\nn2 r2\n", [("r1",), ("r2",), None]),
        ("SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\nSwitchName=top Switches=s[1-2]\n",
         [("top", "s1"), ("top", "s1"), ("top", "s2")]),
    ],
    ids=["racks", "positions", "groups", "lines", "pair", "columns", "slurm"],
)  # fmt: skip
def test_positions(content: object, expected: list[tuple[str, ...] | None], tmp_path: Path) -> None:
    assert read_truth(written(tmp_path, content), HOSTS) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"schema": "plink.truth/1"}, "positions: is missing"),
        ({"schema": "plink.truth/1", "racks": {"n1": None}}, "racks.n1: expected"),
        ({"schema": "plink.truth/1", "positions": {"n1": [True]}}, "positions.n1"),
        ({"schema": "plink.truth/1", "racks": {"x": 0}}, "none of the hosts"),
        ({"schema": "plink.order/1"}, "known are"),
        ("x y\n", "none of the hosts"),
    ],
)
def test_what_says_nothing_is_refused(content: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_truth(written(tmp_path, content), HOSTS)

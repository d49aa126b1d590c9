"""Files of groups: one a line or JSON, and what is refused and where."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.groups import Agreement, Groups, GroupTier, RandomGroups, read_groups

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
GROUPS = st.lists(st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=5)


def read(folder: Path, text: str) -> list[list[str]]:
    (folder / "groups.txt").write_text(text)
    return read_groups(folder / "groups.txt")


def test_a_line_a_group(tmp_path: Path) -> None:
    text = "# racks\n\na b,c  # the first\n\t\n   d\t, e,\n#\nf"
    assert read(tmp_path, text) == [["a", "b", "c"], ["d", "e"], ["f"]]


@settings(max_examples=30)
@given(GROUPS, st.sampled_from([" ", ",", ", ", "\t"]))
def test_both_forms_say_the_same(tmp_path_factory: pytest.TempPathFactory, groups: list[list[str]], sep: str) -> None:
    folder = tmp_path_factory.mktemp("groups")
    (folder / "lines").write_text("".join(f"{sep.join(group)}\n" for group in groups))
    (folder / "json").write_text(json.dumps({"schema": "plink.groups/1", "groups": groups}))
    assert read_groups(folder / "lines") == read_groups(folder / "json") == groups


def test_json_may_say_more_and_be_compressed(tmp_path: Path) -> None:
    document = {"schema": "plink.groups/1", "groups": [["a"], ["b", "c"]], "tiers": [1, 2]}
    assert read(tmp_path, "\n  " + json.dumps(document, indent=1)) == [["a"], ["b", "c"]]
    with gzip.open(tmp_path / "groups.json.gz", "wt") as file:
        json.dump(document, file)
    assert read_groups(tmp_path / "groups.json.gz") == [["a"], ["b", "c"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"groups\.txt: no groups: write one a line"),
        ("a b\n\nc d$e\n", r"groups\.txt:3: 'd\$e' cannot be a host name"),
        ('{"groups": [["a"], ["b", 3]]}', r"groups\.txt: groups\[1\]\[1\]: expected a host name"),
        ('{"groups": [["a"], "bc"]}', r"groups\.txt: groups\[1\]: expected a list"),
        ('{"groups": [["a"]', r"groups\.txt:1: not JSON"),
    ],
)
def test_what_is_no_list_of_groups_is_refused_where_it_is(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_groups_round_trip(tmp_path: Path) -> None:
    tier = GroupTier(groups=(("a", "b"), ("c",)), within_us=20.5, next_us=None, ratio=4.2, confidence=0.97)
    groups = Groups(
        network="sha256:0",
        groups=(("a", "b"), ("c",)),
        k=2,
        elasticity=1.5,
        method="k-means",
        cohesion_us=20.5,
        across_us=90.0,
        random=RandomGroups(cohesion_us=44.0, across_us=None),
        agreement=Agreement(ami=0.8, runs=10),
        tiers=(tier,),
        left_out=("d",),
        seed=3,
    )
    groups.write(tmp_path / "groups.json")
    assert read_groups(tmp_path / "groups.json") == [["a", "b"], ["c"]]
    document = json.loads((tmp_path / "groups.json").read_text())
    assert (document["schema"], document["k"], document["left_out"]) == ("plink.groups/1", 2, ["d"])
    assert document["agreement"] == {"ami": 0.8, "runs": 10}
    assert document["tiers"] == [
        {"groups": [["a", "b"], ["c"]], "within_us": 20.5, "next_us": None, "ratio": 4.2, "confidence": 0.97}
    ]

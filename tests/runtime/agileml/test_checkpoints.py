"""Which checkpoint is the latest, and which are kept."""

from pathlib import Path

import pytest

from plink.runtime.agileml.checkpoints import keep, latest


def written(folder: Path, *clocks: int) -> None:
    """Checkpoints of some clocks."""
    for clock in clocks:
        (folder / f"clock-{clock}").mkdir()
        (folder / f"clock-{clock}" / "partition-0").write_bytes(b"x")


def names(folder: Path) -> list[str]:
    """What is there."""
    return sorted(path.name for path in folder.iterdir())


def test_the_latest_and_the_one_before_are_kept(tmp_path: Path) -> None:
    written(tmp_path, 9, 10, 100)
    keep(tmp_path, {"clock": 100, "partitions": 1}, "job")
    assert latest(tmp_path) == {"clock": 100, "partitions": 1}
    assert names(tmp_path) == ["clock-10", "clock-100", "latest.json"]


def test_one_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    written(tmp_path, 1, 2, 3, 8)
    (tmp_path / "clock-x").mkdir()
    keep(tmp_path, {"clock": 3, "partitions": 1}, "job")
    assert names(tmp_path) == ["clock-2", "clock-3", "clock-8", "clock-x", "latest.json"]


def test_after_a_roll_back_an_earlier_one_may_be_the_latest(tmp_path: Path) -> None:
    written(tmp_path, 5, 7)
    keep(tmp_path, {"clock": 7, "partitions": 1}, "job")
    keep(tmp_path, {"clock": 5, "partitions": 1}, "job")
    assert latest(tmp_path) == {"clock": 5, "partitions": 1}


def test_whose_it_is(tmp_path: Path) -> None:
    """One that another job left in the folder is none of this one's; whoever goes on from it is asked for it."""
    written(tmp_path, 7)
    keep(tmp_path, {"clock": 7, "partitions": 1}, "yesterday's")
    assert latest(tmp_path, "today's") is None
    assert latest(tmp_path, "yesterday's") == latest(tmp_path) == {"clock": 7, "partitions": 1}


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"clock": "7"}', '{"clock": 7}', '{"clock": 7, "partitions": true}', "\udcff"]
)
def test_there_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "latest.json").write_bytes(text.encode(errors="surrogateescape"))
    assert latest(tmp_path) is None

"""``python -m tools.retired_words``: retired words in names and messages, and public classes that share a name."""

from pathlib import Path

import pytest

from tools.retired_words import ALONE, ANYWHERE, problems_in, shared_class_names, words_of


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("next_seat = 1\n", "seat"),
        ("def rehearse() -> None: ...\n", "rehearse"),
        ("call(why=1)\n", "why"),
        ("print('no such errand')\n", "errand"),
        ("import json as found\n", "found"),
        ("print('hosts that have settled')\n", "settled"),
    ],
)
def test_retired_words_are_reported(source: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("module.py").write_text(source, encoding="utf-8")
    (line,) = problems_in("module.py")
    assert line.startswith("module.py:1: ")
    assert repr(word) in line or word in line


def test_at_most_40_words() -> None:
    assert len(ANYWHERE) + len(ALONE) <= 40


def test_words_within_words_and_docstrings_are_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("module.py").write_text('"""An errand."""\nspace, github, found_it = 1, 2, 3\n', encoding="utf-8")
    assert list(problems_in("module.py")) == []
    assert words_of("NextSeats") == ["next", "seat"]


def test_public_classes_of_one_name_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private classes and those of tests may share names."""
    monkeypatch.chdir(tmp_path)
    paths = ["plink/a.py", "solvers/b.py", "tests/c.py"]
    for path in paths:
        Path(path).parent.mkdir()
        Path(path).write_text("class Twice: ...\nclass _Own: ...\n", encoding="utf-8")
    (line,) = shared_class_names(paths)
    assert line.startswith("plink/a.py:1: class 'Twice' is also in solvers/b.py:1")

"""``python -m tools.retired_words``: retired words in names and messages are reported, docstrings are not."""

from pathlib import Path

import pytest

from tools.retired_words import problems_in


def test_a_retired_word_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("module.py").write_text('"""An errand."""\nspace, found_it, next_seat = 1, 2, 3\n', encoding="utf-8")
    (line,) = problems_in("module.py")
    assert line.startswith("module.py:2: ")
    assert "seat" in line

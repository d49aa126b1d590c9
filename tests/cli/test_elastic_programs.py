"""The examples of elastic jobs in one process: what they keep is named as their data name it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import elastic_lda, elastic_mlr


def _docword(folder: Path) -> list[str]:
    (folder / "docword.txt").write_text("3\n4\n5\n1 1 9\n1 2 9\n2 3 9\n2 4 9\n3 3 9\n")
    (folder / "vocab.txt").write_text("tree\nleaf\nnet\nlink\n")
    return ["--docword", str(folder / "docword.txt"), "--words", str(folder / "vocab.txt"), "--topics", "2"]


def _libsvm(folder: Path) -> list[str]:
    (folder / "some").write_text("-1 1:1\n+3 2:1\n-1 1:2\n+3 2:2\n")
    return ["--libsvm", str(folder / "some"), "--batches", "1"]


@pytest.mark.parametrize(
    ("module", "data", "key", "names"),
    [(elastic_lda, _docword, "words", ["tree", "leaf", "net", "link"]), (elastic_mlr, _libsvm, "labels", [-1, 3])],
)
def test_names_of_the_data_are_kept(
    module: Any, data: Callable[[Path], list[str]], key: str, names: list[Any], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = [*data(tmp_path), "--shards", "2", "--clocks", "9", "--workers", "1", "--save", str(tmp_path / "kept.npz")]
    monkeypatch.setattr("sys.argv", ["program", *words])
    module.main()
    with np.load(tmp_path / "kept.npz") as file:
        assert file[key].tolist() == names
    printed = capsys.readouterr().out
    assert f"saved in {tmp_path}/kept.npz" in printed
    assert ("tree" in printed and "leaf" in printed) or "1.0000 right" in printed

"""Where a program's result goes: known before the work whether it can, and written whole."""

from pathlib import Path

import numpy as np
import pytest

from examples import elastic_mf
from plink.elastic import save_arrays, train
from plink.elastic.app import check_app, unwritable
from plink.errors import InputError, PlinkError


def test_a_path_from_here_and_nothing_left_of_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unwritable("kept") is None
    assert list(tmp_path.iterdir()) == []
    assert save_arrays("kept", a=np.arange(3)) == tmp_path / "kept"  # under that very name
    with np.load(tmp_path / "kept") as file:
        assert file["a"].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    assert unwritable("kept") is None


def test_unwritable_result_file_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that is stands there in full: it is another host's."""
    monkeypatch.chdir(tmp_path)
    assert unwritable("no/kept") == f"{tmp_path}/no/kept: there is no folder {tmp_path}/no"
    assert unwritable(".") == f"{tmp_path}: is a folder; name a file in it"
    assert unwritable("/proc/kept") == "cannot write /proc/kept: No such file or directory"
    with pytest.raises(PlinkError, match="cannot write"):
        save_arrays("no/kept", a=1)


def test_a_job_in_one_process_is_refused_too() -> None:
    app, _ = elastic_mf.make(["--count=100", "--save=/nowhere/kept.npz"])
    with pytest.raises(PlinkError, match="there is no folder /nowhere"):
        train(app)


def test_it_is_a_path() -> None:
    app, _ = elastic_mf.make(["--count=100"])
    app.result_file = 3  # type: ignore[assignment]
    with pytest.raises(InputError, match="result_file is 3, which must be a path or None"):
        check_app(app)

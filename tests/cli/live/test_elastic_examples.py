"""The examples as elastic jobs: what they keep and print at the end is what the same program finds in one process."""

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from examples import elastic_lda, elastic_torch
from plink.elastic import train
from tests.conftest import plink

EXAMPLES = Path(__file__).parents[3] / "examples"
LDA = ("--documents", "150", "--vocabulary", "100", "--length", "30", "--topics", "4", "--shards", "6", "--clocks=12")
TORCH = ("--items", "300", "--side", "8", "--classes", "3", "--batches", "2", "--shards", "6", "--clocks", "12")


def launched(folder: Path, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A job of one reliable and two transient hosts, which serve: stage 2."""
    return plink(
        "elastic", "run", "--runner", "local", "--slots", "3", "--timeout", "100s",
        str(EXAMPLES / name), *words, cwd=folder,
    )  # fmt: skip


def run_example(folder: Path, name: str, *words: str) -> tuple[dict[str, Any], list[str]]:
    """What the file has in the end, named as seen from the folder, and what the program printed."""
    done = launched(folder, name, *words, "--save", "kept.npz")
    assert done.returncode == 0, done.stderr
    assert "stage 2" in done.stderr
    printed = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
    assert printed[-1] == f"saved in {folder}/kept.npz"
    assert sorted(path.name for path in folder.iterdir()) == [".plink", "kept.npz"]
    if name == "elastic_torch.py":
        return torch.load(folder / "kept.npz"), printed[:-1]
    with np.load(folder / "kept.npz") as file:
        return dict(file), printed[:-1]


def test_topics(tmp_path: Path) -> None:
    result, printed = run_example(tmp_path, "elastic_lda.py", *LDA)
    app, _ = elastic_lda.make([*LDA])
    words = train(app, workers=3).tables["words"]
    assert (result["counts"] == words.T).all()
    np.testing.assert_allclose(result["topics"].sum(axis=1), 1)
    likely = (words.T + app.beta) / (words.sum(axis=0)[:, None] + app.beta * app.data.vocabulary)
    np.testing.assert_allclose(result["topics"], likely)
    assert (result["alpha"], result["beta"], result["words"].size) == (app.alpha, app.beta, 0)
    assert len(printed) == 4
    for line in printed:
        topic, top = re.fullmatch(r"topic (\d) \(\d+\.\d% of the tokens\): ((?:\d+ ?){8})", line).groups()  # type: ignore[union-attr]
        counts = result["counts"][int(topic)]
        assert [counts[int(word)] for word in top.split()] == sorted(counts, reverse=True)[:8]


def test_a_network(tmp_path: Path) -> None:
    result, printed = run_example(tmp_path, "elastic_torch.py", *TORCH)
    app, _ = elastic_torch.make([*TORCH])
    model = app.trained(train(app, workers=3).tables)
    for name, values in model.state_dict().items():
        np.testing.assert_allclose(result[name], values, rtol=1e-2, atol=1e-3)
    right = re.fullmatch(r"(0\.\d{4}) of the images held out are classified correctly", printed[0])
    assert right is not None
    assert float(right[1]) == pytest.approx(app.right(model), abs=0.05)


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    done = launched(tmp_path, "elastic_mlr.py", "--clocks", "1000000", "--save", "nowhere/kept.npz")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"plink: error: local-0: what is learnt could not be kept: {tmp_path}/nowhere/kept.npz: there is no folder "
        f"{tmp_path}/nowhere"
    )
    assert "iteration" not in done.stderr

"""The three programs of the thesis find what their data were made of, with any number of workers."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from examples import elastic_lda, elastic_mf, elastic_mlr
from plink.elastic import App, StoppingCriterion, TrainingResult, train
from plink.errors import InputError
from tests.runtime.elastic.stepping import train_disturbed

ROOT = Path(__file__).parents[3]


def factors(clocks: int = 30) -> elastic_mf.MatrixFactorisation:
    data = elastic_mf.made(users=200, movies=80, ratings=8000, rank=4, noise=0.3, seed=1)
    return elastic_mf.MatrixFactorisation(data, 4, StoppingCriterion(clocks=clocks), shards=4, seed=2)


def classes(clocks: int = 40) -> elastic_mlr.LogisticRegression:
    data = elastic_mlr.made(items=3000, features=20, classes=5, apart=2.0, seed=1)
    return elastic_mlr.LogisticRegression(data, StoppingCriterion(clocks=clocks), shards=4, batches=4, seed=2)


def topics(clocks: int = 40) -> elastic_lda.TopicModel:
    data = elastic_lda.made(documents=300, vocabulary=200, length=40, topics=5, seed=1)
    return elastic_lda.TopicModel(data, 5, StoppingCriterion(clocks=clocks), shards=4, seed=2)


PROGRAMS: dict[str, Callable[[int], App[Any]]] = {"factors": factors, "classes": classes, "topics": topics}
WORKERS = 1, 3


def alike(item: TrainingResult, other: TrainingResult) -> None:
    for name, values in item.tables.items():
        if values.dtype.kind == "i":
            assert (other.tables[name] == values).all(), name
        else:
            np.testing.assert_allclose(other.tables[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(other.objectives, item.objectives, rtol=1e-4)


@pytest.mark.parametrize("make", [factors, classes, topics])
def test_four_workers_find_what_one_finds(make: Callable[[int], App[Any]]) -> None:
    alike(train(make(8)), train(make(8), workers=4, servers=2))


def test_neither_moving_shards_nor_a_roll_back_changes_it() -> None:
    """Topics keep most between clocks: a topic for each word of each shard."""
    tables, ended = train_disturbed(topics(8), [[3], [0, 1, 2]], {5: 3})
    undisturbed = train(topics(8))
    alike(undisturbed, TrainingResult(tables, undisturbed.objectives, ended))


def test_factors_explain_all_but_the_noise() -> None:
    app = factors()
    trained = train(app, workers=2)
    # 4 factors of 280 users and movies fit away 14 % of the noise of 8000 ratings.
    assert 0.85 * app.data.floor < (2 * trained.objectives[-1]) ** 0.5 < 1.02 * app.data.floor
    assert (2 * trained.objectives[0]) ** 0.5 > 2 * app.data.floor


def test_classes_are_separated_near_the_optimum() -> None:
    app = classes()
    trained = train(app, workers=2)
    right = (elastic_mlr.probabilities(trained.tables["weights"], app.data.x).argmax(axis=1) == app.data.y).mean()
    assert right > app.data.best - 0.02
    assert trained.objectives[0] > 1.5 * trained.objectives[-1]


@pytest.mark.extended
def test_topics_are_found() -> None:
    app = topics()
    trained, start = train(app, workers=2), train(topics(1))
    assert start.objectives[0] > app.data.floor + 0.3
    assert trained.objectives[-1] < app.data.floor + 0.1 * abs(start.objectives[0])
    assert trained.objectives[-1] - app.data.floor < 0.5 * (start.objectives[0] - app.data.floor)
    result, truth = trained.tables["words"].T.astype(float), app.data.truth
    assert truth is not None
    result /= np.linalg.norm(result, axis=1, keepdims=True)
    cosines = result @ (truth / np.linalg.norm(truth, axis=1, keepdims=True)).T
    assert cosines[linear_sum_assignment(-cosines)].min() > 0.9


def test_counts_of_topics_agree_with_the_tokens() -> None:
    data = elastic_lda.made(documents=50, vocabulary=60, length=30, topics=4, seed=3)
    app = elastic_lda.TopicModel(data, 4, StoppingCriterion(clocks=6), shards=4, batches=3)
    tables = train(app, workers=3).tables
    assert tables["words"].min() >= 0
    assert (tables["words"].sum(axis=1) == np.bincount(data.word, minlength=60)).all()
    assert (tables["words"].sum(axis=0) == tables["topics"][0]).all()
    values = np.bincount(tables["tokens"].reshape(-1), minlength=5)
    assert (values[1:] == tables["topics"][0]).all()
    assert values[1:].sum() == len(data.doc)


def test_ratings_of_movielens(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n7,50,4.5,1\n3,10,0.5,2\n7,10,3,3\n")
    (tmp_path / "ratings.dat").write_text("7::50::4.5::1\n3::10::0.5::2\n7::10::3::3\n")
    for name in ("ratings.csv", "ratings.dat"):
        result = elastic_mf.read_ratings(str(tmp_path / name))
        assert (result.users, result.movies) == (2, 2)
        assert (result.user.tolist(), result.movie.tolist()) == ([1, 0, 1], [1, 0, 0])
        assert result.stars.tolist() == [4.5, 0.5, 3]


def test_libsvm(tmp_path: Path) -> None:
    (tmp_path / "some").write_text("-1 1:0.5 4:2\n\n+1 2:1 # a remark\n-1\n")
    result = elastic_mlr.read_libsvm(str(tmp_path / "some"))
    assert result.x.toarray().tolist() == [[0.5, 0, 0, 2], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert (result.y.tolist(), result.classes) == ([0, 1, 0], 2)
    dense = elastic_mlr.Labelled(result.x.toarray(), result.y, result.classes)
    stop = StoppingCriterion(clocks=4)
    alike(*(train(elastic_mlr.LogisticRegression(data, stop, shards=2, batches=1)) for data in (result, dense)))


def test_bags_of_words(tmp_path: Path) -> None:
    (tmp_path / "docword.txt").write_text("3\n5\n3\n3 1 2\n1 5 1\n3 4 1\n")
    result = elastic_lda.read_docword(str(tmp_path / "docword.txt"))
    assert (result.doc.tolist(), result.word.tolist()) == ([0, 2, 2, 2], [4, 0, 0, 3])
    assert (result.documents, result.vocabulary) == (3, 5)
    train(elastic_lda.TopicModel(result, 2, StoppingCriterion(clocks=2), shards=4))  # shards without a document, too


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (elastic_mf.read_ratings, "userId,movieId,rating,timestamp\n1,2,3,4\n1,two,3,4\n", "line 3: no user,movie"),
        (elastic_mf.read_ratings, "1::2::nan::4\n", "line 1: "),
        (elastic_mf.read_ratings, "1,2\n", "line 1: "),
        (elastic_mf.read_ratings, "", "it has no ratings"),
        (elastic_mlr.read_libsvm, "1 1:2\n1 3:1 2:1\n", "line 2: no label and rising"),
        (elastic_mlr.read_libsvm, "1 0:2\n", "line 1: "),
        (elastic_mlr.read_libsvm, "1 1:inf\n", "line 1: "),
        (elastic_mlr.read_libsvm, "x 1:1\n", "line 1: "),
        (elastic_mlr.read_libsvm, "\n", "it has no data"),
        (elastic_lda.read_docword, "1\nx\n", "line 2: no number"),
        (elastic_lda.read_docword, "1\n1\n1\n1 1\n", "line 4: no document, word and count"),
        (elastic_lda.read_docword, "1\n1\n1\n1 2 1\n", "line 4: word 2, of which there are 1"),
        (elastic_lda.read_docword, "1\n1\n1\n2 1 1\n", "line 4: document 2, of which there are 1"),
        (elastic_lda.read_docword, "1\n1\n2\n1 1 1\n", "1 lines, its heading says 2"),
        (elastic_lda.read_docword, "1\n", "its heading says nothing"),
    ],
)
def test_a_bad_line_is_named(read: Callable[[str], object], text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text(text)
    with pytest.raises(InputError, match=expected) as error:
        read(str(tmp_path / "data"))
    assert str(error.value).startswith(str(tmp_path / "data"))


@pytest.mark.parametrize("read", [elastic_mf.read_ratings, elastic_mlr.read_libsvm, elastic_lda.read_docword])
def test_a_file_that_is_not_there_or_no_text(read: Callable[[str], object], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "data", tmp_path / "none"):
        with pytest.raises(InputError, match=str(path)):
            read(str(path))


def test_a_program_runs_from_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "examples/elastic_lda.py", "--documents=20", "--vocabulary=30", "--topics=2", "--clocks=2",
         "--length=9", "--shards=2"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("nats a token") == 2
    assert "the global batch stays the same" in done.stderr

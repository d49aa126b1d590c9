"""What a program may ask for, and what is said of its mistakes."""

import contextlib
import sys
from typing import Any

import numpy as np
import pytest

from plink.elastic import AppError, Objective, Params, StoppingCriterion, Table, train
from plink.elastic.app import check_app
from plink.errors import InputError, PlinkError, UsageError
from plink.runtime.elastic.worker.progress import job_layout
from tests.runtime.elastic.small_app import Means


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "the job would never end"),
        ({"clocks": 0}, "0 clocks"),
        ({"seconds": 0}, "0 seconds"),
        ({"seconds": float("nan")}, "nan seconds"),
        ({"patience": 0}, "must be 1 to 16"),
        ({"patience": 17}, "must be 1 to 16"),
        ({"clocks": 1, "tolerance": -1}, "tolerance of -1"),
    ],
)
def test_a_stopping_criterion_that_cannot_be(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        StoppingCriterion(**arguments)


def test_convergence_is_when_the_last_iterations_brought_nothing() -> None:
    stop = StoppingCriterion(patience=2, tolerance=0.01)
    assert not stop.converged([5.0, 4.0])
    assert not stop.converged([5.0, 4.0, 3.0])
    assert not stop.converged([4.0, 3.99, 3.9])
    assert stop.converged([4.0, 3.99, 3.97])
    assert stop.converged([4.0, 5.0, 6.0])
    assert not StoppingCriterion(clocks=1).converged([1.0, 1.0, 1.0])
    assert StoppingCriterion(patience=1).converged([-4.0, -4.0])
    assert not StoppingCriterion(patience=1, tolerance=0.01).converged([-4.0, -4.1])


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("shards", 0, "shards is 0"),
        ("shards", 2.5, "shards is 2.5"),
        ("batches", -1, "batches is -1"),
        ("grains", 0, "grains is 0"),
        ("grains", 2, r"give part\(items, grain\)"),
        ("seed", -1, "the seed is -1"),
        ("stop", 10, "stop is 10"),
        ("tables", ("m",), "one of the tables is 'm'"),
        ("tables", (Table("plink.stop", 1, 1),), "plink's own"),
        ("tables", (Table("m", 1, 1), Table("m", 1, 1)), "app Means: tables must have names of their own: m, m$"),
        ("tables", (), "there are none"),
    ],
)
def test_an_app_that_cannot_be(attribute: str, value: object, expected: str) -> None:
    app = Means()
    setattr(app, attribute, value)
    with pytest.raises(InputError, match=expected):
        job_layout(app, 2)


def test_an_app_that_forgot_something() -> None:
    app = Means()
    del app.stop
    with pytest.raises(InputError, match=r"app Means: it gives no 'stop'"):
        check_app(app)


class Wrong(Means):
    """Makes the mistake it is told, at shard 3 and clock 2."""

    def __init__(self, mistake: str) -> None:
        super().__init__(shards=4)
        self.mistake = mistake

    def load(self, shard: int) -> Any:
        if self.mistake == "load raises":
            raise OSError("no such disk")
        if self.mistake == "load exits":
            sys.exit("no data")
        if self.mistake == "batches":
            return [1, 2, 3]
        if self.mistake == "file":
            raise InputError("data.txt, line 7", "three numbers")
        return super().load(shard)

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Any:
        if self.mistake == "initial raises":
            raise KeyError(table)
        if self.mistake == "initial shape":
            return np.zeros(3)
        return None

    def process(self, items: Any, params: Params) -> Any:
        if (params.shard, params.clock) == (3, 2):
            match self.mistake:
                case "shape":
                    params.update("m", [0], np.zeros((3, 1)))
                case "nan":
                    params.update("m", [0], [[0.0, np.nan, 0.0]])
                case "infinite":
                    params.update("m", [0], [[0.0, np.inf, 0.0]])
                case "rows":
                    params.update("m", [1], np.zeros((1, 3)))
                case "read rows":
                    params.read("m", [-1])
                case "table":
                    params.read("w", [0])
                case "type":
                    params.update("n", [0], [[0.5]])
                case "swallowed":
                    with contextlib.suppress(PlinkError):
                        params.update("m", [7], np.zeros((1, 3)))
                case "raises":
                    raise ZeroDivisionError("by\nnothing")
                case "exits":
                    sys.exit(3)
                case "score":
                    return 3.0
                case "score negative":
                    return Objective(1.0, -1)
                case "score nan":
                    return Objective(float("nan"), 1)
                case "score text":
                    return Objective("a\nb", 1)  # type: ignore[arg-type]
                case "score huge":
                    return Objective(1e300, 1e-300)
                case "score array":
                    return Objective(1.0, np.ones(2))  # type: ignore[arg-type]
        return super().process(items, params)


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        ("shape", r"update of table 'm': shape \(3, 1\), which must be \(1, 3\)"),
        ("nan", r"update of table 'm': it has infinities or numbers that are none \(NaN\)"),
        ("infinite", "update of table 'm': it has infinities"),
        ("rows", "table 'm': rows 1 to 1, it has 1"),
        ("read rows", "table 'm': rows -1 to -1, it has 1"),
        ("table", "table 'w': there is none of that name"),
        ("type", "update of table 'n': type float64, the table has int64"),
        ("swallowed", "table 'm': rows 7 to 7"),
        ("raises", r"raised ZeroDivisionError: by nothing \(.*test_app.py:\d+\)"),
        ("exits", r"raised SystemExit: 3 \(.*test_app.py:\d+\)"),
        ("score negative", "its weight must be 0 or above"),
        ("score", "returned float, which must be an Objective or None"),
        ("score nan", "an objective must be finite"),
        ("score huge", "an objective must be finite"),
        ("score text", r"returned Objective\(.*\): an objective and its weight must be numbers"),
        ("score array", "an objective and its weight must be numbers"),
    ],
)
def test_a_mistake_in_process_names_shard_and_clock(mistake: str, expected: str) -> None:
    with pytest.raises(AppError, match=expected) as error:
        train(Wrong(mistake))
    assert "process() of shard 3 at clock 2" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        ("load raises", r"app Wrong: load\(0\) raised OSError: no such disk \(.*test_app.py:\d+\)"),
        ("load exits", r"app Wrong: load\(0\) raised SystemExit: no data \(.*test_app.py:\d+\)"),
        ("batches", r"app Wrong: load\(0\) gave 3 mini-batches, not 2"),
        ("initial raises", r"app Wrong: initial\('m'\) raised KeyError: 'm'"),
        ("initial shape", r"app Wrong: initial\('m'\): update of table 'm': shape \(3,\)"),
    ],
)
def test_a_mistake_outside_of_process(mistake: str, expected: str) -> None:
    with pytest.raises(AppError, match=expected):
        train(Wrong(mistake))


def test_a_bad_file_is_not_called_a_mistake_of_the_program() -> None:
    with pytest.raises(InputError, match=r"^data.txt, line 7: three numbers"):
        train(Wrong("file"))


@pytest.mark.parametrize("wrong", [0, -1, 1.5])
def test_workers_are_a_whole_number(wrong: Any) -> None:
    with pytest.raises(UsageError, match="workers"):
        train(Wrong("none"), workers=wrong)


@pytest.mark.parametrize(("name", "rows", "width"), [("m", 2.5, 1), ("m", True, 1), ("m", 3, (2, 2)), ("\udce4", 3, 1)])
def test_table_of_wrong_types_is_refused(name: str, rows: Any, width: Any) -> None:
    with pytest.raises(InputError):
        Table(name, rows, width)

"""A user's program from its file, and what is said of one that is none."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.errors import InputError
from plink.runtime.elastic.node import load_app

APP = """
from plink.elastic import App, StoppingCriterion, Table

class Mine(App):
    tables, shards, stop = (Table("m", 4, 1),), 2, StoppingCriterion(clocks=3)
    def load(self, shard): return [shard]
    def process(self, items, params): return None
"""


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    """What a program leaves in this process."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("plink_app", None)


def written(folder: Path, text: str, name: str = "program.py") -> str:
    """A program."""
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("made", ["Mine()", "(Mine(), 'more')"])
def test_a_program(tmp_path: Path, made: str) -> None:
    (tmp_path / "beside.py").write_text("import plink_app\nSEED = 5\n")
    text = f"{APP}\ndef make(arguments):\n    import beside\n    app = Mine()\n    Mine.seed = beside.SEED\n"
    app = load_app(written(tmp_path, f"{text}    Mine.arguments = arguments\n    return {made}\n"), ["--a", "1"])
    assert (app.name, app.shards, app.seed) == ("Mine", 2, 5)
    assert app.arguments == ["--a", "1"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "it has no function make: def make(arguments): return MyApp(...)"),
        ("make = 3", "it has no function make"),
        ("def make(arguments): return 7", "make() gave int, which is no App"),
        ("def make(arguments): return ()", "make() gave tuple, which is no App"),
        ("def make(arguments): return None", "make() gave NoneType, which is no App"),
        ("import there_is_none", "ModuleNotFoundError: No module named 'there_is_none'"),
        ("def make(arguments):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def make(:", "SyntaxError"),
        (f"{APP}\nMine.shards = 0\ndef make(arguments): return Mine()", "app Mine: shards is 0"),
    ],
)
def test_one_that_is_none(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_app(written(tmp_path, text), [])
    assert expected in str(caught.value)


def test_where_it_went_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, "\n\n\ndef make(arguments):\n    return 1 / 0\n")
    with pytest.raises(InputError, match="line 5: ZeroDivisionError"):
        load_app(path, [])
    path = written(tmp_path, "\n\n\nraise ValueError('no')\n")
    with pytest.raises(InputError, match="line 4: ValueError: no"):
        load_app(path, [])


def test_no_file_and_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file on this host"):
        load_app(str(tmp_path / "none.py"), [])
    with pytest.raises(InputError, match=r"a \.py file was expected"):
        load_app(written(tmp_path, APP, "program.txt"), [])


def test_a_program_may_end_by_itself(tmp_path: Path) -> None:
    """As one whose arguments are wrong does."""
    text = "import argparse\ndef make(arguments):\n    argparse.ArgumentParser().parse_args(arguments)\n"
    with pytest.raises(SystemExit):
        load_app(written(tmp_path, text), ["--what"])

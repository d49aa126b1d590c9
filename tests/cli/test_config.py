"""Defaults of options from a file, and how much is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import network, refusal, write
from tests.conftest import typed


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a network."""
    write(tmp_path / "n.json", network())
    return tmp_path


@pytest.mark.parametrize("name", ["plink.toml", "pyproject.toml", "other.toml"])
def test_options_that_are_not_typed_are_taken_from_a_file(name: str, here: Path) -> None:
    prefix = "tool.plink." if name == "pyproject.toml" else ""
    lines = [
        f"[{prefix}reorder]",
        'algo = "tree"', 'set = ["fan-out=3"]', "moves = 7", "json = true", f"[{prefix}runs.show]",
        "json = true",
    ]  # fmt: skip
    (here / name).write_text("\n".join(lines))
    words = ("--config", name) if name == "other.toml" else ()

    def ordered(*typed_words: str) -> Any:
        return json.loads(typed(*words, "reorder", "n.json", *typed_words, cwd=here).stdout)

    found = ordered()
    assert (found["algo"], found["options"], found["seed"]) == ("tree", {"fan_out": 3}, 0)
    assert ordered("--set", "fan-out=2")["options"] == {"fan_out": 2}  # what is typed stands for all of the file's list


def test_own_file_before_the_project_s(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.plink.cost]\nnosuch = 1\n")
    assert "pyproject.toml:2: plink cost has no option --nosuch" in refusal(typed("cost", "n.json", cwd=here))
    (here / "plink.toml").write_text("[cost]\nrandom = 3\n")
    done = typed("cost", "n.json", cwd=here)
    assert "random orders (3)" in done.stdout
    assert "plink: defaults from plink.toml" in done.stderr
    assert "defaults" not in typed("show", "n.json", cwd=here).stderr
    (here / "plink.toml").unlink()
    (here / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.other]\n')
    assert typed("cost", "n.json", cwd=here).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cost]\n\nrandmo = 3\n", "plink.toml:3: plink cost has no option --randmo; did you mean random?"),
        ("[cots]\nrandom = 3\n", "plink.toml:1: there is no command cots; did you mean cost?"),
        ("random = 3\n", "plink.toml:1: there is no command random"),
        ("[cost]\nresume = true\n", "plink.toml:2: plink cost has no option --resume"),
        ("[cost]\ndenoise = 3\n", "plink.toml:2: denoise: true or false was expected"),
        ("[cost]\nrandom = true\n", "plink.toml:2: random: one value was expected"),
        ('[cost]\nrandom = "many"\n', "plink.toml:2: Invalid value for '--random'"),
        ("[cost]\nrandom = -1\n", "plink.toml:2: Invalid value for '--random'"),
        ("[cost]\nset = [[1]]\n", "plink.toml:2: set: a list of values was expected"),
        ('[cost]\nmodel = ["latency"]\n', "plink.toml:2: model: one value was expected"),
        ("[cost]\nrandom\n", "plink.toml: is no TOML"),
        ("\0", "plink.toml: is no TOML"),
        ("[cost]\nquiet = true\n", "plink.toml:2: plink cost has no option --quiet"),
        ("cost = 3\n", "plink.toml:1: cost: a table was expected, [cost]"),
        ("[runs.nosuch]\n", "plink.toml:1: plink runs has no option --nosuch"),
    ],
)
def test_a_file_that_says_what_cannot_be(text: str, said: str, here: Path) -> None:
    (here / "plink.toml").write_text(text)
    assert said in refusal(typed("cost", "n.json", cwd=here))


def test_a_value_that_is_typed_wrong_is_not_blamed_on_the_file(here: Path) -> None:
    (here / "plink.toml").write_text("[cost]\nrandom = 3\n")
    assert "plink.toml" not in refusal(typed("cost", "n.json", "--random", "x", cwd=here))


def test_files_that_cannot_be_trusted(here: Path) -> None:
    """Unless they are named."""
    file = here / "plink.toml"
    file.write_text("[cost]\nrandom = 3\n")
    for mode in (0o666, 0o664):
        file.chmod(mode)
        assert "others may write plink.toml here" in refusal(typed("cost", "n.json", cwd=here), 1)
    assert typed("--config", "plink.toml", "cost", "n.json", cwd=here).returncode == 0
    assert "cannot read nosuch" in refusal(typed("--config", "nosuch", "cost", "n.json", cwd=here), 1)
    file.write_text("[probe]\naccept-new-host-keys = true\n")
    file.chmod(0o644)
    assert "plink.toml:2: accept-new-host-keys: type it" in refusal(typed("cost", "n.json", cwd=here))
    assert typed("--config", "plink.toml", "cost", "n.json", cwd=here).returncode == 0


def test_help_is_there_whatever_a_file_says(here: Path) -> None:
    (here / "plink.toml").write_text("[nosuch]\n")
    for words in (("cost", "--help"), ("lab", "up", "-h"), ("--help",)):
        assert typed(*words, cwd=here).returncode == 0
    (here / "plink.toml").unlink()
    (here / "pyproject.toml").write_text("what others = [ wrote\n")
    assert typed("cost", "n.json", cwd=here).returncode == 0


def test_verbose_and_quiet(here: Path) -> None:
    plain, more, less = (typed("reorder", "n.json", *words, cwd=here) for words in ((), ("-v",), ("-q",)))
    assert "plink: order -> .plink/order.json" in plain.stderr
    assert set(plain.stderr.splitlines()) < set(more.stderr.splitlines())
    assert (less.returncode, less.stdout, less.stderr) == (0, "", "")
    assert typed("-q", "reorder", "n.json", cwd=here).stderr == ""
    assert set(typed("-v", "reorder", "n.json", cwd=here).stderr.splitlines()) > set(plain.stderr.splitlines())
    assert refusal(typed("reorder", "nosuch.json", "-q", cwd=here)) == "nosuch.json: no such file"


@pytest.mark.parametrize("words", [("cost", "nosuch.json", "--debug"), ("--debug", "cost", "nosuch.json")])
def test_where_an_error_came_from(words: tuple[str, ...], here: Path) -> None:
    said = typed(*words, cwd=here).stderr
    assert said.startswith("Traceback")
    assert said.splitlines()[-1] == "plink: error: nosuch.json: no such file"
    assert typed("cost", "nosuch.json", cwd=here).stderr == "plink: error: nosuch.json: no such file\n"


def test_a_program_keeps_its_own_options(here: Path) -> None:
    done = typed("launch", "--runner", "local", "--slots", "1", "-q", "sh", "-c", "echo $0", "-q", cwd=here)
    assert (done.stdout, done.stderr) == ("[0] -q\n", "")

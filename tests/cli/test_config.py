"""Defaults of options from a file, and how much is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from plink.cli.app import command
from plink.cli.config import defaults_from
from plink.errors import InputError
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
        'algo = "tree"', 'set = ["fan-out=3"]', "max-moves = 7", "json = true", f"[{prefix}runs.show]",
        "json = true",
    ]  # fmt: skip
    (here / name).write_text("\n".join(lines))
    words = ("--config", name) if name == "other.toml" else ()

    def ordered(*typed_words: str) -> Any:
        return json.loads(typed(*words, "reorder", "n.json", *typed_words, cwd=here).stdout)

    document = ordered()
    assert (document["algo"], document["options"], document["seed"]) == ("tree", {"fan_out": 3}, 0)
    assert ordered("--set", "fan-out=2")["options"] == {"fan_out": 2}  # what is typed stands for all of the file's list


def test_own_file_before_the_project_s(here: Path) -> None:
    (here / "pyproject.toml").write_text("[tool.plink.cost]\nnosuch = 1\n")
    assert "pyproject.toml:2: plink cost has no option --nosuch" in refusal(typed("cost", "n.json", cwd=here))
    (here / "plink.toml").write_text("[cost]\nrandom = 3\n")
    done = typed("cost", "n.json", cwd=here)
    assert "random orders (3)" in done.stdout
    assert "plink: defaults from plink.toml" in done.stderr
    assert "defaults" not in typed("report", "n.json", "--terminal", cwd=here).stderr
    (here / "plink.toml").unlink()
    for text in ('[project]\nname = "x"\n[tool.other]\n', 'tool = "plink"\n'):
        (here / "pyproject.toml").write_text(text)
        assert typed("cost", "n.json", cwd=here).returncode == 0
    (here / "pyproject.toml").write_text("[tool]\nother = 1\nplink = 3\n")
    assert refusal(typed("cost", "n.json", cwd=here)) == "pyproject.toml:3: plink: a table was expected, [tool.plink]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cost]\n\nrandmo = 3\n", "plink.toml:3: plink cost has no option --randmo; did you mean random?"),
        ("[cots]\nrandom = 3\n", "plink.toml:1: there is no command cots; did you mean cost?"),
        ("random = 3\n", "plink.toml:1: there is no command random"),
        ("[cost]\nresume = true\n", "plink.toml:2: plink cost has no option --resume"),
        ("[cost]\nsmooth-latencies = 3\n", "plink.toml:2: smooth-latencies: true or false was expected"),
        ("[cost]\nrandom = true\n", "plink.toml:2: random: one value was expected"),
        ('[cost]\nrandom = "many"\n', "plink.toml:2: Invalid value for '--random'"),
        ("[cost]\nrandom = -1\n", "plink.toml:2: --random -1: it takes 0 to 100000"),
        ("[cost]\nset = [[1]]\n", "plink.toml:2: set: a list of values was expected"),
        ('[cost]\nmodel = ["latency"]\n', "plink.toml:2: model: one value was expected"),
        ("[cost]\nrandom\n", "plink.toml: is no TOML"),
        ("\0", "plink.toml: is no TOML"),
        ("[cost]\nquiet = true\n", "plink.toml:2: plink cost has no option --quiet"),
        ("cost = 3\n", "plink.toml:1: cost: a table was expected, [cost]"),
        ("[runs.nosuch]\n", "plink.toml:1: plink runs has no option --nosuch"),
        ("\ncost.randmo = 3\n", "plink.toml:2: plink cost has no option --randmo"),
        ('\n"runs" . show.jsn = 3\n', "plink.toml:2: plink runs show has no option --jsn"),
        ("\n[runs]\nshow.json = 3\n", "plink.toml:3: json: true or false was expected"),
        ("\ncost = {random = true}\n", "plink.toml:2: random: one value was expected"),
        ('[cost]\nalgo = "nosuch"\n', "plink.toml:2: --algo nosuch: "),
        ('[cost]\nsize = "much"\n', "plink.toml:2: --size: 'much' is not a size"),
        ('[cost]\nset = ["base=2"]\n', "plink.toml:2: --set base=2: ring has no option base"),
    ],
)
def test_a_file_that_says_what_cannot_be(text: str, message: str, here: Path) -> None:
    (here / "plink.toml").write_text(text)
    assert message in refusal(typed("-q", "cost", "n.json", cwd=here))


def test_a_value_that_is_typed_wrong_is_not_blamed_on_the_file(here: Path) -> None:
    (here / "plink.toml").write_text("[cost]\nrandom = 3\n")
    assert "plink.toml" not in refusal(typed("cost", "n.json", "--random", "x", cwd=here))
    assert "plink.toml" not in refusal(typed("-q", "cost", "n.json", "--algo", "nosuch", cwd=here))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[reorder]\nmax-moves = 7\n", "reorder n.json --time-limit 0.1"),
        ("[reorder]\ntime-limit = 3600\n", "reorder n.json --max-moves 7"),
        ('[reorder]\nalgo = "bcube"\nset = ["base=2"]\n', "reorder n.json --algo ring"),
        ("[reorder]\njson = true\n", "reorder n.json --format openmpi"),
        ('[reorder]\nformat = "openmpi"\n', "reorder n.json --json"),
        ('[reorder]\ntopology = "gone.json"\n', "reorder n.json"),
        (
            '[launch]\nhosts = "gone.txt"\norder = "gone.json"\n',
            "--config plink.toml launch --runner local --slots 1 true",
        ),
        (
            '[launch]\nsync = "."\nworkdir = "/gone"\n',
            "--config plink.toml launch --runner local --slots 1 --workdir / true",
        ),
        (
            '[launch]\nbackend = "2lha"\nautotune = true\n',
            "launch --runner local --slots 2 --backend flat --no-autotune true",
        ),
    ],
)
def test_typed_options_win_over_those_they_exclude(text: str, words: str, here: Path) -> None:
    (here / "plink.toml").write_text(text)
    done = typed(*words.split(), cwd=here)
    assert done.returncode == 0, done.stderr


def test_options_of_a_file_exclude_each_other(here: Path) -> None:
    (here / "plink.toml").write_text("[reorder]\ntime-limit = 1\nmax-moves = 7\n")
    assert refusal(typed("-q", "reorder", "n.json", cwd=here)).startswith(
        "plink.toml:3: --max-moves replaces the time limit"
    )
    (here / "plink.toml").write_text('[launch]\nrunner = "local"\nhosts = "hosts.txt"\n')
    assert refusal(typed("-q", "--config", "plink.toml", "launch", "true", cwd=here)).startswith(
        "plink.toml:2: --runner local runs every rank on"
    )


def test_a_typed_flag_undoes_that_of_a_file(here: Path) -> None:
    (here / "plink.toml").write_text("[report]\njson = true\n")
    assert typed("report", "n.json", "--terminal", cwd=here).stdout.startswith("{")
    for words in (
        ("report", "--terminal", "n.json", "--no-json"),
        ("--config", "/dev/null", "report", "--terminal", "n.json"),
    ):
        assert not typed(*words, cwd=here).stdout.startswith("{")
    (here / "plink.toml").unlink()
    assert not typed("report", "n.json", "--terminal", "--no-json", cwd=here).stdout.startswith("{")
    assert "--no-json" not in typed("report", "--help", cwd=here).stdout


def test_files_that_cannot_be_trusted(here: Path) -> None:
    """Unless they are named."""
    file = here / "plink.toml"
    file.write_text("[cost]\nrandom = 3\n")
    for mode in (0o666, 0o664):
        file.chmod(mode)
        assert "others may write plink.toml" in refusal(typed("cost", "n.json", cwd=here), 1)
    assert typed("--config", "plink.toml", "cost", "n.json", cwd=here).returncode == 0
    assert "cannot read nosuch" in refusal(typed("--config", "nosuch", "cost", "n.json", cwd=here), 1)


@pytest.mark.parametrize(
    ("table", "option"),
    [
        ("probe", "accept-new-host-keys = true"), ("launch", 'python = "./evil"'), ("launch", 'env = ["LD_PRELOAD=x"]'),
        ("launch", 'hosts = "hosts.txt"'), ("launch", 'order = "plan.json"'), ("compare", 'launcher-args = "--x y"'),
        ("submit", 'workdir = "evil"'), ("runs.rerun", 'sync = "evil"'), ("manifests", 'image = "evil"'),
        ("launch", 'pipeline = "plan.json"'), ("elastic.run", 'spot = "market.toml"'), ("reflector", 'listen = "::"'),
        ("spot.drive", "budget = 1000000"), ("elastic.run", "per-hour = 100"),
    ],
)  # fmt: skip
def test_file_of_a_clone_chooses_no_program_host_or_money(
    table: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, whole_command_line = option.split()[0], command()
    monkeypatch.chdir(tmp_path)
    for name, prefix in (("plink.toml", ""), ("pyproject.toml", "tool.plink.")):
        Path(name).write_text(f"[{prefix}{table}]\n{option}\n")
        with pytest.raises(InputError, match=f"{name}:2: {key} .*--config {name}"):
            defaults_from(None, lambda: whole_command_line)
        assert defaults_from(Path(name), lambda: whole_command_line)
        Path(name).unlink()


def test_the_user_s_own_file_may_choose_programs(here: Path) -> None:
    own = here / "settings" / "plink" / "plink.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[launch]\npython = "python3"\n[report]\njson = true\n')

    def shown(folder: str) -> str:
        return typed("report", "n.json", "--terminal", cwd=here, XDG_CONFIG_HOME=folder, HOME="/nosuch").stdout

    assert shown(str(here / "settings")).startswith("{")
    assert not shown("settings").startswith("{")  # which may have come with a clone
    (here / "plink.toml").write_text("[report]\njson = false\n")
    assert not shown(str(here / "settings")).startswith("{")


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
    message = typed(*words, cwd=here).stderr
    assert message.startswith("Traceback")
    assert message.splitlines()[-1] == "plink: error: nosuch.json: no such file"
    assert typed("cost", "nosuch.json", cwd=here).stderr == "plink: error: nosuch.json: no such file\n"


def test_a_program_keeps_its_own_options(here: Path) -> None:
    done = typed("launch", "--runner", "local", "--slots", "1", "-q", "sh", "-c", "echo $0", "-q", cwd=here)
    assert (done.stdout, done.stderr) == ("[0] -q\n", "")

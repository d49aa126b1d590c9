"""Help is quick because it imports nothing heavy, and every page begins with what one types."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plink
from plink.cli.app import COMMANDS, GROUPS
from tests.conftest import typed as typed_here

# What takes a quarter of a second and more to import; NumPy and msgspec take less together.
HEAVY = {"torch", "z3", "scapy", "paramiko", "scipy", "sklearn", "matplotlib", "numba"}


def pages() -> list[list[str]]:
    """The words of every command and subcommand, found in the command line itself."""
    from plink.cli.app import command

    pages_: list[list[str]] = []

    def visit(node: object, words: list[str]) -> None:
        pages_.append(words)
        for name, child in getattr(node, "commands", {}).items():
            visit(child, [*words, name])

    visit(command(), [])
    return pages_


PAGES = pages()


def test_every_command_is_found() -> None:
    """So that the tests below cannot be empty by mistake."""
    assert [] in PAGES
    assert {"probe", "reorder", "launch", "demo", "lab"} <= {words[0] for words in PAGES if words}
    assert ["lab", "heal"] in PAGES


# What is loaded for each page beyond what was loaded before it.
LOADED = """
import contextlib, io, json, sys
from plink.cli.entry import run
for words in json.loads(sys.argv[1]):
    before, page = set(sys.modules), io.StringIO()
    with contextlib.redirect_stdout(page):
        assert run([*words, "--help"]) == 0, words
    assert "Usage: plink" in page.getvalue() and "Example" in page.getvalue(), words
    loaded = set(sys.modules) - (before if words else set())
    print(json.dumps([words, sorted({name.partition(".")[0] for name in loaded})]))
"""


def test_help_imports_nothing_heavy() -> None:
    """All pages, one after the other, in one process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(PAGES)], capture_output=True, text=True, check=True,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    pages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [words for words, _ in pages] == PAGES
    assert "plink" in pages[0][1]
    assert [words for words, loaded in pages if set(loaded) & HEAVY] == []


def test_main_help_imports_no_command_and_a_command_only_its_own() -> None:
    code = "import sys; from plink.cli.entry import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    loaded: dict[str, set[str]] = {}
    for words in (["--help"], ["--version"], ["cost", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        homes = set(COMMANDS.values())
        loaded[words[0]] = {name.removeprefix("plink.features.") for name in done.stderr.split()} & homes
    assert loaded == {"--help": set(), "--version": set(), "cost": {"cost.command"}}


def test_a_common_order_needs_no_exact_solver_and_no_simulator(tmp_path: Path) -> None:
    hosts = [{"name": f"h{k}"} for k in range(12)]
    latency_us = [[0 if i == j else 50 + abs(i - j) * 7 % 11 for j in range(12)] for i in range(12)]
    network = {"schema": "plink.network/1", "hosts": hosts, "latency_us": latency_us}
    (tmp_path / "n.json").write_text(json.dumps(network))
    code = "import sys; from plink.cli.entry import run; assert run(sys.argv[1:]) == 0; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "reorder", "n.json", "-o", "o.json", "--max-moves", "100"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert not loaded & {"z3", "ortools", "torch", "sklearn", "matplotlib", "scapy", "solvers.ordering.exact"}
    assert not [name for name in loaded if name.startswith("solvers.simulation")]


def test_summaries_are_those_of_the_commands() -> None:
    """What the list says of a command, read from its source, is how its own page begins."""
    from plink.cli.app import COMMANDS, command

    def summaries(requested: str | None) -> dict[str, str]:
        commands = command(requested).commands
        return {name: " ".join(each.help.partition("\n\n")[0].split()) for name, each in commands.items()}

    listed, own = summaries("none of them"), summaries(None)
    assert listed == own
    assert list(COMMANDS) == list(own)


def test_examples_can_be_typed() -> None:
    """Every page has one, of this very command (or of one under it), and all of its options exist."""
    for words in PAGES:
        check_example(words)


def check_example(words: list[str]) -> None:
    """Parse the example of one page."""
    from plink.cli.app import command

    top = node = command()
    for word in words:
        node = node.commands[word]
    examples = re.findall(r"Example: (.+)", " ".join((node.help or "").split()))
    assert examples, words
    typed = [part.split(">")[0].split() for part in examples[0].split("&&")]
    for line in typed:
        line = line[1:] if line[0] == "sudo" else line
        assert line[0] == "plink"
        target, rest = top, line[1:]
        while rest and rest[0] in getattr(target, "commands", {}):
            target, rest = target.commands[rest[0]], rest[1:]
        with target.make_context(" ".join(line), list(rest), resilient_parsing=False) as context:
            assert context.command is target
    if words:
        assert " ".join(words) in examples[0]


def test_pages_of_80_columns_are_whole_and_say_what_a_value_is() -> None:
    """No name is cut, and no type of Python's is shown."""
    from plink.cli.app import command

    for words in PAGES:
        node = command()
        for word in words:
            node = node.commands[word]
        page = typed_here(*words, "--help", cwd=Path.cwd(), COLUMNS="80").stdout
        boxed = "\n".join(line for line in page.splitlines() if line.startswith("│"))
        for kind in ("<str>", "<int", "<float", "<path>", "<bool>", "<list", "922337", "1000000.0"):
            assert kind not in boxed, (words, kind)
        assert "…" not in page
        for option in (entry for entry in node.params if entry.param_type_name == "option" and not entry.hidden):
            for name in (*option.opts, *option.secondary_opts, *filter(None, [option.metavar])):
                assert re.search(rf"(^|\s){re.escape(name)}(\s|$)", page, re.MULTILINE), name


def test_help_is_shown_as_it_is_written() -> None:
    """Rich takes a word in brackets for a style, and a word between colons for a picture, and leaves both out."""
    from plink.cli.app import command

    for words in PAGES:
        node = command()
        for word in words:
            node = node.commands[word]
        page = re.sub(r"[│\s]", "", typed_here(*words, "--help", cwd=Path.cwd(), COLUMNS="4000").stdout)
        texts = [node.help or "", *(entry.help or "" for entry in node.params if not getattr(entry, "hidden", False))]
        assert [text for text in texts if re.sub(r"\s", "", text) not in page] == [], words


def test_many_options_are_in_panels() -> None:
    """More than a dozen without a heading are not read."""
    from plink.cli.app import command

    def visit(node: Any, name: str) -> None:
        options = [entry for entry in node.params if entry.param_type_name == "option"]
        assert sum(entry.rich_help_panel is None for entry in options) <= 12, name
        for word, child in getattr(node, "commands", {}).items():
            visit(child, f"{name} {word}")

    visit(command(), "plink")


def test_command_list_is_grouped_without_examples() -> None:
    page = typed_here("--help", cwd=Path.cwd(), COLUMNS="80").stdout
    _, *panels = re.split(r"^╭─ ", page.split("Verbosity", 1)[1], flags=re.MULTILINE)
    titles = [panel.partition(" ─")[0] for panel in panels]
    names = [re.findall(r"^│ ([a-z]+) ", panel, re.MULTILINE) for panel in panels]
    assert dict(zip(titles, names, strict=True)) == {title: list(commands) for title, commands in GROUPS.items()}
    assert {name for row in names for name in row} == {words[0] for words in PAGES if words}
    listed = "".join(panels)
    assert "Example" not in listed
    assert "…" not in listed


def test_short_and_bare_forms_show_help() -> None:
    for words in ([], ["lab", "up"]):
        short, long = (typed_here(*words, flag, cwd=Path.cwd()) for flag in ("-h", "--help"))
        assert short.returncode == 0
        assert short.stdout == long.stdout != ""
    for words in ([], ["lab"]):
        bare = run(*words)
        assert bare.returncode == 2
        assert "Usage: plink" in bare.stdout + bare.stderr
        assert "error" not in bare.stderr


def test_the_version_is_the_package_s() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"plink {plink.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["reorder", "--colour"], "No such option: --colour"),
        (["reorder", "--time-limit", "soon"], "--time-limit"),
        (["launch"], "PROGRAM"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(words: list[str], message: str) -> None:
    done = typed_here(*words, cwd=Path.cwd())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("plink: error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert "--help`" in done.stderr


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """The installed command where there is one beside this interpreter, not ``python -m plink``."""
    installed = os.path.join(os.path.dirname(sys.executable), "plink")
    command = [installed] if os.access(installed, os.X_OK) else [sys.executable, "-m", "plink"]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )

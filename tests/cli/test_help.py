"""Help is quick because it imports nothing heavy, and every page begins with what one types."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plink
from tests.conftest import typed as typed_here

HEAVY = {"numpy", "torch", "z3", "scapy", "paramiko", "scipy", "sklearn", "matplotlib"}
OURS = {"probes", "solvers", "runners"}


def pages() -> list[list[str]]:
    """The words of every command and subcommand, found in the command line itself."""
    from plink.cli.app import command

    found: list[list[str]] = []

    def visit(node: object, words: list[str]) -> None:
        found.append(words)
        for name, child in getattr(node, "commands", {}).items():
            visit(child, [*words, name])

    visit(command(), [])
    return found


PAGES = pages()


def test_every_command_is_found() -> None:
    """So that the tests below cannot be empty by mistake."""
    assert [] in PAGES
    assert {"probe", "reorder", "launch", "demo", "lab"} <= {words[0] for words in PAGES if words}
    assert ["lab", "heal"] in PAGES


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "plink", *words, "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0
    assert "Usage: plink" in done.stdout
    assert "Example" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "plink" in imported
    assert imported & HEAVY == set()
    assert imported & OURS == set()


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_examples_can_be_typed(words: list[str]) -> None:
    """Every page has one, of this very command (or of one under it), and all of its options exist."""
    from plink.cli.app import command

    top = node = command()
    for word in words:
        node = node.commands[word]
    found = re.findall(r"Example: (.+)", " ".join((node.help or "").split()))
    assert found, words
    typed = [part.split(">")[0].split() for part in found[0].split("&&")]
    for line in typed:
        line = line[1:] if line[0] == "sudo" else line
        assert line[0] == "plink"
        target, rest = top, line[1:]
        while rest and rest[0] in getattr(target, "commands", {}):
            target, rest = target.commands[rest[0]], rest[1:]
        with target.make_context(" ".join(line), list(rest), resilient_parsing=False) as context:
            assert context.command is target
    if words:
        assert " ".join(words) in found[0]


def test_pages_say_what_a_value_is_not_how_it_is_kept() -> None:
    for words in PAGES:
        page = typed_here(*words, "--help", cwd=Path.cwd(), COLUMNS="80").stdout
        boxed = "\n".join(line for line in page.splitlines() if line.startswith("│"))
        for kind in ("<str>", "<int", "<float", "<path>", "<bool>", "<list", "922337", "1000000.0"):
            assert kind not in boxed, (words, kind)


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_no_name_is_cut_on_a_screen_of_80_columns(words: list[str]) -> None:
    from plink.cli.app import command

    node = command()
    for word in words:
        node = node.commands[word]
    page = typed_here(*words, "--help", cwd=Path.cwd(), COLUMNS="80").stdout
    assert "…" not in page
    for option in (entry for entry in node.params if entry.param_type_name == "option" and not entry.hidden):
        for name in (*option.opts, *option.secondary_opts, *filter(None, [option.metavar])):
            assert re.search(rf"(^|\s){re.escape(name)}(\s|$)", page, re.MULTILINE), name


def test_many_options_stand_in_panels() -> None:
    """More than a dozen without a heading are not read."""
    from plink.cli.app import command

    def visit(node: Any, name: str) -> None:
        options = [entry for entry in node.params if entry.param_type_name == "option"]
        assert sum(entry.rich_help_panel is None for entry in options) <= 12, name
        for word, child in getattr(node, "commands", {}).items():
            visit(child, f"{name} {word}")

    visit(command(), "plink")


def test_commands_are_listed_from_measuring_to_running_without_their_examples() -> None:
    page = typed_here("--help", cwd=Path.cwd(), COLUMNS="80").stdout
    listed = page.split("Commands", 1)[1]
    names = re.findall(r"^│ ([a-z]+) ", listed, re.MULTILINE)
    assert set(names) == {words[0] for words in PAGES if words}
    some = ["probe", "doctor", "diff", "reorder", "plan", "schedule", "launch", "runs", "lab", "info"]
    assert [name for name in names if name in some] == some
    assert "Example" not in listed
    assert "…" not in listed


@pytest.mark.parametrize("words", [["-h"], ["reorder", "-h"], ["lab", "-h"], ["lab", "up", "-h"]])
def test_the_short_form_is_the_same(words: list[str]) -> None:
    short, long = (run(*words[:-1], flag) for flag in ("-h", "--help"))
    assert short.returncode == 0
    assert short.stdout == long.stdout != ""


@pytest.mark.parametrize("words", [[], ["lab"]])
def test_a_bare_command_shows_its_help_and_no_error(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Usage: plink" in done.stdout + done.stderr
    assert "error" not in done.stderr


def test_the_version_is_the_package_s() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"plink {plink.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["lab", "explode"], "No such command 'explode'"),
        (["reorder", "--colour"], "No such option: --colour"),
        (["reorder", "--seed", "x"], "--seed"),
        (["reorder", "--time-limit", "-1"], "--time-limit"),
        (["probe"], "HOSTS"),
        (["launch"], "PROGRAM"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(words: list[str], why: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("plink: error: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert "--help` tells more" in done.stderr


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """The installed command where there is one beside this interpreter, not ``python -m plink``."""
    installed = os.path.join(os.path.dirname(sys.executable), "plink")
    command = [installed] if os.access(installed, os.X_OK) else [sys.executable, "-m", "plink"]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )

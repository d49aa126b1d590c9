"""Help is quick because it imports nothing heavy, and every page begins with what one types."""

import os
import subprocess
import sys

import pytest

import plink

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

"""What a shell is offered: by the protocol that the installed scripts speak, and by the shells themselves."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from plink.cli import values as option_values
from plink.cli.app import command
from runners.lab.blueprint import LabSettings, draw
from tests.cli.test_help import HEAVY
from tests.stand_ins import program


def protocol(line: str) -> dict[str, str]:
    """What bash says of a line with the cursor at its end."""
    words = str(len(line.split(" ")) - 1)
    return {"COMP_WORDS": line, "COMP_CWORD": words, "_PLINK_COMPLETE": "complete_bash"}


def offered(line: str, cwd: Path) -> tuple[list[str], str]:
    """The words that bash is given, and what stood on standard error: the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        for name, value in protocol(line).items():
            patch.setenv(name, value)
        code: object = None
        try:
            command().main(args=[], prog_name="plink", standalone_mode=False)
        except SystemExit as left:
            code = left.code
    assert code == 0
    return out.getvalue().split(), err.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a network, and a run that went over three hosts."""
    (tmp_path / ".plink" / "runs" / "ab12cd34").mkdir(parents=True)
    hosts = [{"name": name} for name in ("gpu-a", "gpu-b", "other")]
    network = {"schema": "plink.network/1", "hosts": hosts[:2], "latency_us": [[0, 5], [5, 0]]}
    (tmp_path / ".plink" / "network.json").write_text(json.dumps(network))
    run = {"schema": "plink.run/1", "started": "2026-01-01T00:00:00Z", "hosts": hosts}
    (tmp_path / ".plink" / "runs" / "ab12cd34" / "run.json").write_text(json.dumps(run))
    (tmp_path / "mine.json").write_text(json.dumps(network | {"hosts": [{"name": "x1"}, {"name": "x2"}]}))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plink re", ["reorder", "report", "reflector"]),
        ("plink reorder --ob", ["--objective"]),
        ("plink reorder --algo halv", ["halving-doubling"]),
        ("plink schedule --algo ncc", ["nccl-ring", "nccl-tree"]),
        ("plink reorder --set f", ["fan-out="]),
        ("plink advise --algos ring,2", ["ring,2lha"]),
        ("plink advise --model l", []),
        ("plink pipeline plan --kind g", ["gpipe"]),
        ("plink compare --pairs a", []),
        ("plink launch --backend a", ["auto"]),
        ("plink runs rerun ", ["last", "ab12cd34"]),
        ("plink elastic evict last gpu", ["gpu-a", "gpu-b"]),
        ("plink reorder --pin g", ["gpu-a=", "gpu-b="]),
        ("plink lab kill --name none n", []),
        # Nothing is offered where a file is meant: the shell completes names of files then.
        ("plink report ", []),
        ("plink rubbish x", []),
    ],
)
def test_words_offered(line: str, words: list[str], folder: Path) -> None:
    suggestions, errors = offered(line, folder)
    assert (suggestions, errors) == (words, "")


def test_interfaces_of_a_lab_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its switches, where a link is meant; hosts alone where a host is."""
    monkeypatch.setattr(option_values, "_LABS", tmp_path)
    (tmp_path / "q").mkdir()
    settings = LabSettings("q", topology="bcube", base=2, levels=2)
    (tmp_path / "q" / "lab.json").write_text(json.dumps(asdict(draw(settings))))
    assert offered("plink lab shape --name q node-01/", tmp_path) == (["node-01/eth0", "node-01/eth1"], "")
    assert offered("plink lab cut --name q switch-0", tmp_path) == (["switch-0-0", "switch-0-1"], "")
    assert offered("plink lab kill --name q node-01", tmp_path) == (["node-01"], "")


def test_broken_files_offer_nothing(folder: Path) -> None:
    (folder / ".plink" / "network.json").write_text("{rubbish")
    (folder / ".plink" / "runs" / "ab12cd34" / "run.json").write_text("[]")
    for line in ("plink reorder --pin g", "plink elastic evict last g"):
        assert offered(line, folder) == ([], "")


def test_completion_imports_nothing_heavy(folder: Path) -> None:
    """As a shell starts it. Whatever it is asked for, it is quick for that."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "plink"], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, **protocol("plink elastic evict last g")},
    )  # fmt: skip
    assert done.stdout.split() == ["gpu-a", "gpu-b"]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "plink" in imported
    assert imported & HEAVY == set()


def test_the_words_are_those_that_the_commands_take() -> None:
    """They stand in the module so that nothing has to be imported for them."""

    from plink.features.launch.command import KINDS as OBJECT_KINDS
    from plink.features.launch.request import RUNNERS as LAUNCH_RUNNERS
    from plink.features.launch.request import launch_settings
    from plink.features.order.algorithms import kinds
    from plink.model.schedule import COLLECTIVES
    from runners.choice import NAMES as RUNNERS
    from runners.hostfiles import FORMATS
    from runners.kubernetes.settings import KINDS
    from solvers.costs.by_name import NAMES
    from solvers.schedules.catalogue import ALGORITHMS

    assert option_values.NAMES == NAMES
    assert tuple(ALGORITHMS) == option_values.ALGORITHMS
    assert tuple(FORMATS) == option_values.FORMATS
    values = option_values.VALUES
    assert set(values["--collective"]) == set(COLLECTIVES)
    assert LAUNCH_RUNNERS == RUNNERS
    assert OBJECT_KINDS == KINDS
    for setting, value in zip(values["launch --set"], ("1h", "strict", "1", "yes", "1s", "0.1"), strict=True):
        assert launch_settings([setting + value])
    assert set(values["--set"]) == {f"{name.replace('_', '-')}=" for name in kinds()}


def commands_below(node: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the words of each command, and the command."""
    children = getattr(node, "commands", {})
    for name, child in children.items():
        yield from commands_below(child, (*words, name))
    if not children:
        yield " ".join(words), node


def test_choices_equal_those_of_the_commands() -> None:
    """Of every option with a closed list; an option that takes a number has no words."""
    compared = set()
    for words, node in commands_below(command()):
        for parameter in node.params:
            suggested = option_values.choices(words, parameter)
            annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            accepted = None
            if get_origin(annotation) is Literal:
                accepted = get_args(annotation)
            elif isinstance(annotation, type) and issubclass(annotation, StrEnum):
                accepted = tuple(annotation)
            if suggested:
                assert annotation not in (int, float, bool), (words, parameter.opts)
                assert accepted is None or suggested == accepted, (words, parameter.opts)
                if accepted is not None:
                    compared.add((words, *parameter.opts))
    assert ("topology export", "--format") in compared


def test_every_option_in_the_table_exists() -> None:

    def options(node: object) -> set[str]:
        names = {name for parameter in node.params for name in parameter.opts}  # type: ignore[attr-defined]
        return names.union(*(options(child) for child in getattr(node, "commands", {}).values()))

    for key in option_values.VALUES:
        *words, option = key.split()
        node = command()
        for word in words:
            node = node.commands[word]
        assert option in options(node), key


SHELLS = {
    # Each loads the script that plink prints for it, has a line completed and prints what came of it.
    "bash": """
eval "$(plink --show-completion bash)"
COMP_WORDS=(plink reorder --algo halv); COMP_CWORD=3; COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
_plink_completion plink halv --algo; echo "${COMPREPLY[@]}"
complete -p plink
""",
    "zsh": """
autoload -Uz compinit; compinit -u -d "$HOME/.zcompdump"
eval "$(plink --show-completion zsh)"
_arguments() { print -r -- "$*" }
words=(plink reorder --algo halv); CURRENT=4; _plink_completion
""",
    "fish": """
plink --show-completion fish | source
complete -C 'plink reorder --algo halv'
""",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    bin_folder = program(folder / "bin", "plink", f'exec "{sys.executable}" -m plink "$@"').parent
    flags = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *flags, "-c", SHELLS[shell]], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(folder),
             "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )  # fmt: skip
    assert "halving-doubling" in done.stdout, (done.stdout, done.stderr)
    assert done.stderr == ""
    if shell == "bash":
        assert "-o default" in done.stdout  # names of files where nothing is offered

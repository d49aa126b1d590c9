"""Without root, what needs it is refused in one line that says what to type, before anything is done."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.files import listing, refusal

# The command line of a user who is not root, whoever runs the tests. The lab's name exists nowhere.
AS_USER = "import os, sys; os.geteuid = lambda: 1000; from plink.cli.entry import run; sys.exit(run(sys.argv[1:]))"
LAB = ("--name", "nobody-s-lab")


def plink_as_user(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command line as somebody who is not root."""
    return subprocess.run([sys.executable, "-c", AS_USER, *words], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("demo",),
        ("lab", "up", *LAB),
        ("lab", "status", *LAB),
        ("lab", "exec", *LAB, "node-01", "--", "true"),
    ],
    ids=" ".join,
)
def test_what_needs_root_says_what_to_type(words: tuple[str, ...], tmp_path: Path) -> None:
    message = refusal(plink_as_user(*words, cwd=tmp_path))
    assert "needs root" in message
    assert f"type `sudo -c {' '.join(words)}`" in message  # -c: this test's own way to start it
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("words", [("probe", "hosts.txt"), ("launch", "--hosts", "hosts.txt", "true")])
def test_hosts_of_a_lab_are_reached_by_root_only(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("# plink-lab: nobody-s-lab\na address=198.18.1.1\nb address=198.18.1.2\n")
    done = plink_as_user(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "plink: error: entering a lab needs root" in done.stderr.splitlines()[-1]
    assert list(listing(tmp_path)) == ["hosts.txt"]


def test_a_lab_that_cannot_be_is_refused_before_anything_else(tmp_path: Path) -> None:
    assert "needs root" not in refusal(plink_as_user("lab", "up", "--racks", "0", cwd=tmp_path))

"""`plink lab exec`: a command on a lab host, passed through untouched."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Lab, plink

pytestmark = pytest.mark.lab

SHOW = "import sys; sys.stdout.write(repr(sys.argv[1:]))"


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_commands(small_lab: Lab, code: int, tmp_path: Path) -> None:
    """Also one that plink itself never ends with."""
    host = small_lab.hosts.names[0]
    assert small_lab.plink("exec", host, "--", "sh", "-c", f"exit {code}", cwd=tmp_path).returncode == code


@pytest.mark.parametrize(
    "words",
    [
        ["a b", "it's", '"q"'],
        ["$(id)", "`id`", "$HOME", ";id", "|", "&"],
        ["new\nline", "\t", ""],
        ["--name", "-h", "--"],
    ],
)
def test_arguments_arrive_as_they_were_typed(small_lab: Lab, words: list[str], tmp_path: Path) -> None:
    """No shell reads them and none is taken for an option of plink's or nsenter's."""
    host = small_lab.hosts.names[0]
    done = small_lab.plink("exec", host, "--", sys.executable, "-c", SHOW, *words, cwd=tmp_path)
    assert done.stdout == repr(words), done.stderr


def test_the_name_may_stand_anywhere_before_the_command(small_lab: Lab, tmp_path: Path) -> None:
    host, name = small_lab.hosts.names[0], small_lab.name
    for words in (
        ["--name", name, "exec", host, "hostname"],
        ["exec", host, "--name", name, "--", "hostname"],
        ["exec", host, f"--name={name}", "hostname"],
    ):
        done = plink("lab", *words, cwd=tmp_path)
        assert (done.stdout, done.returncode) == (f"{host}\n", 0), done.stderr


def test_the_only_lab_is_the_default(small_lab: Lab, tmp_path: Path) -> None:
    """Where others are up, too, they are named."""
    done = plink("lab", "status", "--json", cwd=tmp_path)
    if done.returncode == 0:
        assert json.loads(done.stdout)["name"] in (small_lab.name, "lab")
    else:
        assert small_lab.name in done.stderr


def test_it_is_the_host(small_lab: Lab, tmp_path: Path) -> None:
    """Its name, its network, its /etc/hosts; the folder one stands in is the same."""
    for host in small_lab.hosts:
        script = "hostname; ip -o -4 addr show dev eth0; getent hosts node-01; pwd"
        done = small_lab.plink("exec", host.name, "--", "sh", "-c", script, cwd=tmp_path)
        name, interface, first, folder = done.stdout.splitlines()
        assert name == host.name
        assert f"inet {host.address}/32" in interface
        assert first.split()[0].endswith(small_lab.hosts.by_name()["node-01"].address)
        assert folder == str(tmp_path)


def test_a_command_that_is_not_there(small_lab: Lab, tmp_path: Path) -> None:
    """An exit code as a shell gives it, and the name is said; a leading dash makes it no option."""
    host = small_lab.hosts.names[0]
    for command in ("no-such-command", "-x"):
        done = small_lab.plink("exec", host, "--", command, cwd=tmp_path)
        assert done.returncode == 127, done.stderr
        assert command in done.stderr

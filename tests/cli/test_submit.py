"""`plink submit`: what is written for Slurm, and who can read it; sbatch is a stand-in."""

import json
import os
import shlex
import stat
from pathlib import Path

import pytest

from plink.cli.submitted import launch_arguments
from tests.conftest import typed
from tests.stand_ins import program

LAUNCH = ("submit", "--order", "given", "--hosts", "hosts.txt")
SECRET = "hush $(x) 'y'\n"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with an sbatch that takes everything."""
    (tmp_path / "hosts.txt").write_text("a address=192.0.2.1\nb address=192.0.2.2\n")
    for name in ("sbatch", "srun", "salloc", "scancel"):
        program(tmp_path / "bin", name, "echo 7")
    return f"{tmp_path}/bin:{os.environ['PATH']}"


def test_secret_is_in_no_command(tmp_path: Path, path: str) -> None:
    """It lies in a file for its owner alone, as all the folder does, and comes back from there as it was."""
    done = typed(*LAUNCH, "--env", f"SECRET={SECRET}", "train.py", "--", "-x", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / ".plink/batch").iterdir()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder, *folder.iterdir())}
    plain = dict.fromkeys(("env.json", "hosts.txt", "order.txt"), 0o600)
    assert modes == {folder.name: 0o700, "job.sh": 0o700, **plain}
    script = (folder / "job.sh").read_text()
    assert "hush" not in script
    _, _, module, *arguments = shlex.split(script.split("exec ")[1])
    assert module == "plink.cli.submitted"
    again = launch_arguments(arguments)
    assert again[-5:] == [f"--env=SECRET={SECRET}", "--", "train.py", "--", "-x"]
    assert again[:4] == ["--config", "/dev/null", "launch", "--runner=slurm"]


def test_without_variables_it_is_the_command_itself(tmp_path: Path, path: str) -> None:
    done = typed(*LAUNCH, "--dry-run", "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert " -m plink --config /dev/null launch --runner=slurm " in done.stdout
    assert not (tmp_path / ".plink/batch").exists()


def test_dry_run_has_all_that_would_be_written(tmp_path: Path, path: str) -> None:
    """In JSON as text: the script names files that are nowhere yet."""
    words = ("--dry-run", "--env", "A=1", "train.py")
    document = json.loads(typed(*LAUNCH, "--json", *words, cwd=tmp_path, PATH=path).stdout)
    assert (document["schema"], document["runner"]) == ("plink.dry-run/1", "slurm")
    files = {Path(name).name: text for name, text in document["files"].items()}
    assert set(files) == {"hosts.txt", "order.txt", "env.json", "job.sh"}
    assert files["order.txt"] == "a\nb\n"
    assert document["commands"][0]["argv"][:2] == ["sbatch", "--parsable"]
    assert document["commands"][0]["argv"][2] in document["files"]
    shown = typed(*LAUNCH, *words, cwd=tmp_path, PATH=path).stdout
    assert all(f"/{name}\n" in shown for name in files)
    assert "/order.txt\na\nb\n" in shown
    assert not (tmp_path / ".plink/batch").exists()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, path: str, more: tuple[str, ...]) -> None:
    done = typed(*LAUNCH, *more, "train.py", "a\udcff", cwd=tmp_path, PATH=path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "a\\udcff" in line
    assert "is not UTF-8" in line
    assert not (tmp_path / ".plink/batch").exists()


def test_variables_that_are_no_text_come_through(tmp_path: Path) -> None:
    (tmp_path / "env.json").write_text(json.dumps({"A": "\udcff"}))
    assert launch_arguments([str(tmp_path / "env.json"), "launch", "--", "x"]) == [
        "launch",
        "--env=A=\udcff",
        "--",
        "x",
    ]

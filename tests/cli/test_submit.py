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


def test_options_are_those_of_the_submission(tmp_path: Path, path: str) -> None:
    """sbatch's are not typed for the step in it again, which would fail on the nodes; srun's own are not for sbatch."""
    options = "-o out-%j.txt --array=0-1 --exclusive -w other -n 2 --mpi=none"
    done = typed(*LAUNCH, "--dry-run", "--launcher-args", options, "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    script = done.stdout.split("/job.sh\n")[1]
    directives = [shlex.split(line)[1] for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert [word for word in shlex.split(options) if word not in directives] == ["--mpi=none"]
    assert directives.index("--nodelist=a,b") > directives.index("-w")  # sbatch takes the last of two
    assert directives.index("--ntasks=2") > directives.index("-n")
    (command,) = (line for line in script.splitlines() if line.startswith("exec "))
    own = [word for word in shlex.split(command) if word.startswith("--launcher-args")]
    assert own == ["--launcher-args=--mpi=none"]


@pytest.mark.parametrize("option", ["-W", "-HW", "--wait", "--relative=1"])
def test_options_that_would_break_the_job_are_refused(tmp_path: Path, path: str, option: str) -> None:
    done = typed(*LAUNCH, f"--launcher-args={option}", "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--launcher-args {option}: " in line
    assert not (tmp_path / ".plink/batch").exists()


def test_variables_that_win_over_options_are_named(tmp_path: Path, path: str) -> None:
    """And nobody waits for the job."""
    program(tmp_path / "bin", "sbatch", 'echo "7;${SBATCH_WAIT-none}"')
    inputs = {"SBATCH_WAIT": "1", "SBATCH_TIMELIMIT": "7"}
    done = typed(*LAUNCH, "--launcher-args=-t 5", "train.py", cwd=tmp_path, PATH=path, **inputs)
    assert done.returncode == 0, done.stderr
    assert "--clusters=none " in done.stderr
    assert "SBATCH_TIMELIMIT" in done.stderr
    assert "SBATCH_TIMELIMIT" not in typed(*LAUNCH, "train.py", cwd=tmp_path, PATH=path, **inputs).stderr


def test_output_is_where_slurm_says(tmp_path: Path, path: str) -> None:
    program(tmp_path / "bin", "scontrol", "printf 'JobId=7\\n   StdErr=/x\\n   StdOut=/logs/of 7.txt\\n   Power=\\n'")
    done = typed(*LAUNCH, "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(" /logs/of 7.txt\n")


def test_output_file_is_that_of_the_jobs_cluster(tmp_path: Path, path: str) -> None:
    """This cluster may have a job of that number, too."""
    program(tmp_path / "bin", "sbatch", "echo '7;other'")
    program(
        tmp_path / "bin",
        "scontrol",
        'case " $* " in *" --clusters=other "*) echo StdOut=/there;; *) echo StdOut=/here;; esac',
    )
    done = typed(*LAUNCH, "--launcher-args=-M other", "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "7"
    assert "squeue --clusters=other --job 7" in done.stderr
    assert done.stderr.endswith(" /there\n")


@pytest.mark.parametrize("code", [0, 1])
def test_submission_without_a_job_is_an_error(tmp_path: Path, path: str, code: int) -> None:
    """Its reason is sbatch's: --test-only submits nothing and ends well."""
    program(tmp_path / "bin", "sbatch", f"echo 'sbatch: the reason' >&2; exit {code}")
    done = typed(*LAUNCH, "train.py", cwd=tmp_path, PATH=path)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.endswith(": sbatch: the reason")


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

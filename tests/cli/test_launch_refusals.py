"""What `plink launch` refuses before it connects to any host, for what comes then takes long."""

import json
from pathlib import Path

import pytest

from solvers.schedules.catalogue import schedule_for
from tests.cli.files import refusal
from tests.conftest import typed


@pytest.mark.parametrize(("words", "named"), [
    (("--backend", "nosuch"), "--backend nosuch"),
    (("--backend", "nosuch.json"), "nosuch.json"),
    (("--backend", "ring", "--autotune"), "--autotune"),
    (("--backend", "phub"), "role=hub"),
    (("--backend", "phub-2l"), "role=hub"),
    (("--backend", "three.json"), "3 ranks"),
    (("--timeout", "soon"), "soon"),
    (("--runner", "mpirun", "--launcher-args", "'"), "--launcher-args"),
    (("--runner", "slurm", "--launcher-args=-wh1"), "--launcher-args -wh1"),
])  # fmt: skip
def test_bad_options_are_refused_before_probing(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    """No host of the file can be reached: nobody tried."""
    (tmp_path / "hosts.txt").write_text("".join(f"h{k} address=127.0.0.1 port=1\n" for k in range(4)))
    (tmp_path / "three.json").write_text(json.dumps(schedule_for("ring", 3).to_json()))
    message = refusal(typed("launch", "--hosts", "hosts.txt", *words, "true", cwd=tmp_path))
    assert named in message


def test_empty_program_is_refused_before_probing(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("".join(f"h{k} address=127.0.0.1 port=1\n" for k in range(4)))
    for words in (["launch"], ["submit"], ["manifests", "--image", "i", "--order", "given"]):
        assert "--workdir: is empty" in refusal(
            typed(*words, "--hosts", "hosts.txt", "--workdir", "", "true", cwd=tmp_path)
        )
        assert "program ''" in refusal(typed(*words, "--hosts", "hosts.txt", "", cwd=tmp_path))


@pytest.mark.parametrize(("words", "named"), [
    (("--nproc_per_node=4", "t.py"), "slots="),
    (("-np", "4", "t.py"), "slots="),
    (("--hostfile", "h", "t.py"), "--hosts"),
    (("-machinefile", "h", "t.py"), "--hosts"),
    (("--master_port", "29500", "t.py"), "--set master-port="),
    (("--runner", "locla", "t.py"), "did you mean local?"),
    (("--algo", "rnig", "t.py"), "did you mean ring?"),
    (("--backend", "rnig", "t.py"), "did you mean ring?"),
    (("--slots", "0", "t.py"), "it takes 1 to 65536"),
    (("--slots", "four", "t.py"), "a whole number"),
])  # fmt: skip
def test_what_other_launchers_call_it_leads_to_the_option_here(words: tuple[str, ...], named: str) -> None:
    message = refusal(typed("launch", *words, cwd=Path.cwd()))
    assert named in message
    assert "Input should" not in message


def test_options_behind_a_program_that_lacks_them_are_named(tmp_path: Path) -> None:
    """Once, and not where the program has such an option, or where it is marked as the program's."""
    (tmp_path / "plain.py").write_text("print(1)\n")
    (tmp_path / "own.py").write_text("parser.add_argument('--dry_run')\n")

    def hint(*words: str) -> bool:
        done = typed("launch", "--runner", "local", "--dry-run", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return "before the program" in done.stderr

    assert hint("plain.py", "--hosts", "x", "--slots", "2")
    assert not hint("own.py", "--dry-run")
    assert not hint("plain.py", "--", "--slots", "2")
    assert not hint("plain.py", "--epochs", "2")

"""`plink launch` on this machine: a job that takes longer than it may."""

from pathlib import Path

from tests.cli.test_launch_local import local
from tests.conftest import typed


def test_a_job_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import threading\ndef stuck(): threading.Event().wait()\nstuck()\n")
    code, _, err = local(tmp_path, "--slots", "1", "--timeout", "1s", "hangs.py")
    assert code == 124
    assert "stuck" in err
    assert err.splitlines()[-1].startswith("plink: error: the job ran longer than its --timeout")
    assert typed("runs", "show", "last", "--json", cwd=tmp_path).stdout.count('"timed_out": true') == 1

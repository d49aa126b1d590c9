"""An elastic job whose host is a pod, reached through `kubectl exec`."""

import json
import sys
from pathlib import Path

from tests.conftest import plink
from tests.runners.elastic.tally import expected
from tests.runners.test_child_connection import calls
from tests.runtime.torchruns import ROOT

__all__ = ["calls"]


def test_an_elastic_job_in_a_pod(calls: Path, tmp_path: Path) -> None:
    """With the image's Python, in its folder, and nothing of this machine's."""
    program = Path(__file__).parents[1] / "elastic/tally.py"
    (tmp_path / "hosts.txt").write_text("pod-0 address=127.0.0.1 tier=reliable\n")
    python = tmp_path / "bin/python3"  # no link: an environment's Python under another name is the system's
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = plink(
        "elastic", "run", "--runner", "kubernetes", "--hosts", "hosts.txt", "--timeout", "60s",
        str(program), "--out", str(tmp_path / "out.json"), "--shards", "4", "--clocks", "5", cwd=tmp_path,
        PYTHONPATH=str(ROOT),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result, wanted = json.loads((tmp_path / "out.json").read_text()), expected(4, 5)
    assert {key: result[key] for key in wanted} == wanted
    assert calls.read_text().startswith("kubectl exec --stdin --quiet pod-0 -- python3 -c exec(")

"""What `plink check --measure` runs on the hosts: two processes over loopback."""

import json
from pathlib import Path

from plink.runtime.order_timing import packed
from tests.runtime.aggengine.processes import run_ranks

FEW_FILES = """
import resource
from plink.runtime.order_timing import main
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
main()
"""


def test_many_orders_are_not_kept_from_the_files_they_need(tmp_path: Path) -> None:
    """A login has 1,024 open files as a rule, and each order takes some for every other rank."""
    program = tmp_path / "program.py"
    program.write_text(FEW_FILES)
    asked = {"kind": "gloo", "places": [[0, 1], [1, 0]] * 10, "size_bytes": 400, "warm_up": 1, "repeats": 2}
    first, second = run_ranks(program, 2, packed(asked))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    rows = [json.loads(line)["seconds"] for line in first.out.splitlines()]
    assert [len(row) for row in rows] == [20, 20]
    assert min(min(row) for row in rows) > 0
    assert second.out == ""

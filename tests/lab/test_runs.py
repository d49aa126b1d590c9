"""Jobs leave what was asked, the proof, the end and the output behind, and can be run again."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from plink.model.storage import read_document
from tests.cli.files import refusal
from tests.conftest import Lab, plink, typed
from tests.lab.jobs import write_hosts, write_script

pytestmark = pytest.mark.lab
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "run.schema.json"
CODE = """
import os, sys
print("out of", os.environ["RANK"], os.environ["MINE"], sys.argv[1:])
print("err", file=sys.stderr)
sys.exit(4 if os.environ["RANK"] == "3" and os.environ["MINE"] == "bad" else 0)
"""


def listed(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(typed("runs", "--json", cwd=folder).stdout)["runs"]
    return rows


def test_recorded_job_can_be_rerun(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path)
    order = list(reversed(small_lab.hosts.names))
    (tmp_path / "order.txt").write_text("\n".join(order) + "\n")
    script = write_script(tmp_path, CODE)
    words = ("--hosts", "hosts.txt", "--order", "order.txt", "--env", "MINE=[b]good[/b]", script, "a b", "$(c)")
    assert typed("runs", cwd=tmp_path).stdout == "no jobs were run here yet; `plink launch` records them\n"
    done = plink("launch", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = listed(tmp_path)
    assert list(Draft202012Validator(read_document(SCHEMA)).iter_errors(run)) == []
    assert set(run) <= set(read_document(SCHEMA)["properties"])
    assert (run["exit_code"], run["args"], run["env"]) == (0, ["a b", "$(c)"], {"MINE": "[b]good[/b]"})
    logs = tmp_path / str(run["logs"])
    assert (logs / "rank-2.out").read_text() == "out of 2 [b]good[/b] ['a b', '$(c)']\n"
    assert (logs / "rank-2.err").read_text() == "err\n"
    assert len((logs / "all.log").read_text().splitlines()) == 8

    done = plink("runs", "rerun", "last", "--env", "MINE=bad", "--log-dir", "elsewhere", cwd=tmp_path)
    assert done.returncode == 4
    failed, first = listed(tmp_path)
    assert first["id"] == run["id"] != failed["id"]
    assert (failed["exit_code"], failed["args"], failed["hosts"]) == (4, run["args"], run["hosts"])
    assert (tmp_path / "elsewhere" / "rank-0.out").read_text().startswith("out of 0 bad")
    shown = typed("runs", "show", str(failed["id"])[:6], cwd=tmp_path).stdout
    assert "4 hosts; exit code 4 after " in shown
    assert f"rank 3: {order[3]}, found on" in shown
    assert "rank 3 on" in shown
    assert shown.endswith("logs: elsewhere\n")
    table = typed("runs", cwd=tmp_path).stdout
    assert "'a b' '$(c)'" in table


def test_failed_start_reports_the_reason(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path)
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "no-such-program", cwd=tmp_path)
    assert done.returncode != 0
    (run,) = listed(tmp_path)
    assert run["exit_code"] == done.returncode
    assert "no-such-program" in str(run["error"])
    assert list(Draft202012Validator(read_document(SCHEMA)).iter_errors(run)) == []


def test_not_repeatable_run(tmp_path: Path) -> None:
    for words, message in ((("last",), "no run last"), (("x", "train.py"), "unexpected extra argument"), ((), "ID")):
        assert message in refusal(typed("runs", "rerun", *words, cwd=tmp_path))

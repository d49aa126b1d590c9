"""Examples of the reference that stand on what other commands left: a run, an elastic job under way, a lab that is up.
Each test makes that first, and then types these examples as they stand there."""

import json
import os
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell
from tests.lab.waiting import until

_EXAMPLES = [
    typed.line.removeprefix("sudo ")
    for block in blocks(ROOT / "docs" / "reference.md")
    if block.needs == "prepared"
    for typed in block.typed
]
_ELSEWHERE = {"plink demo"}  # tests/lab/test_demo.py; it takes a minute
_JOB = ROOT / "tests" / "runners" / "elastic" / "tally.py"
_SUMS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
over, until = torch.tensor([0.0]), time.monotonic() + 2
while not over:
    dist.all_reduce(torch.ones(200_000))
    over += time.monotonic() > until
    dist.broadcast(over, 0)
dist.destroy_process_group()  # Gloo's threads may abort an interpreter that ends before they do
"""


def _of(*commands: str) -> list[str]:
    """The examples of these commands, in the page's order, each once."""
    return list(dict.fromkeys(line for line in _EXAMPLES if line.split()[1] in commands))


def _type(shell: Shell, line: str) -> str:
    done = shell.run(line)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_every_example_is_typed_here() -> None:
    assert len(_EXAMPLES) > 20
    assert set(_EXAMPLES) == {*_of("runs", "autotune"), *_of("elastic"), *_of("lab"), *_ELSEWHERE}


@pytest.mark.extended
def test_examples_about_a_run(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(_SUMS)
    with Shell(tmp_path, "") as shell:
        _type(
            shell, "plink launch --runner local --slots 2 --backend flat --autotune --set autotune-every=200ms sums.py"
        )
        for line in _of("runs", "autotune"):
            assert _type(shell, line)


@pytest.mark.extended
def test_examples_about_an_elastic_job(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("".join(f"{name} address=127.0.0.1 tier=transient\n" for name in ("h3", "h7")))
    with Shell(tmp_path, "") as shell:
        words = f"{_JOB} --out {tmp_path}/out.json --shards 4 --clocks 100000 --work-s 0.02"
        checkpoint = f"--checkpoint {tmp_path}/kept"
        shell.begin(f"plink elastic run --runner local --slots 2 {checkpoint} {words}", lines=4)
        for line in _of("elastic"):
            until(lambda: _is_ready(shell), 60, "hosts at work")
            assert _type(shell, line)
        assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def _is_ready(shell: Shell) -> bool:
    """Whether all that the job has is at work or gone."""
    done = shell.run("plink elastic status last --json")
    status = json.loads(done.stdout) if done.returncode == 0 else {}
    return bool(status.get("stage")) and all(host["state"] == "there" for host in status["hosts"])


@pytest.mark.lab
def test_examples_about_a_lab(tmp_path: Path) -> None:
    """It is put away last, wherever the page has that."""
    name = f"p{os.getpid()}"
    with Shell(tmp_path, name) as shell:
        try:
            for line in sorted(_of("lab"), key=lambda line: line == "plink lab down"):
                assert _type(shell, line) or ">" in line
            assert "was not up" in _type(shell, "plink lab down")
        finally:
            shell.run("plink lab down")

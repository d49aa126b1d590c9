"""The workflows of docs/ci: they are what GitHub and GitLab take, and their commands do on a lab what they say."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.conftest import Lab

FOLDER = Path(__file__).parents[1] / "docs/ci"
SMALL = {"SIZE": "1MB", "ORDERS": "6", "MIN_SPEARMAN": "0.5"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("github", ("--builtin-schema", "vendor.github-workflows")),
        ("gitlab", ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")),
    ],
)
def test_the_schemas_of_their_makers(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """And a misspelt key is seen, so that the check can fail."""
    check = (str(Path(sys.executable).parent / "check-jsonschema"), *words)
    text = (FOLDER / f"{name}.yml").read_text()
    for content, code in ((text, 0), (text.replace("timeout", "time-out"), 1)):
        (tmp_path / f"{name}.yml").write_text(content)
        done = subprocess.run([*check, str(tmp_path / f"{name}.yml")], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout


class Runner:
    """Runs commands as a CI's runner would, ``plink`` on its path; a baseline stays where a cache would keep it."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self._folder = folder
        self._env = {**os.environ, **SMALL, "PATH": f"{programs or Path(sys.executable).parent}:{os.environ['PATH']}"}

    def shell(self, text: str) -> int:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text], cwd=self._folder, env=self._env, capture_output=True, text=True,
            timeout=400, check=False,
        )  # fmt: skip
        print(done.stderr)
        return done.returncode

    def github(self, workflow: dict[str, Any]) -> dict[str, int]:
        """The exit code of each step that ran; those without ``if`` run while none has failed."""
        codes: dict[str, int] = {}
        (job,) = workflow["jobs"].values()
        for step in job["steps"]:
            if "run" in step and (step.get("if") == "success() || failure()" or not any(codes.values())):
                codes[step["name"]] = self.shell(step["run"])
        return codes

    def gitlab(self, workflow: dict[str, Any]) -> int:
        return self.shell("\n".join(workflow["network"]["script"]))


@pytest.fixture(params=["github", "gitlab"])
def workflow(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    text = (FOLDER / f"{request.param}.yml").read_text()
    return request.param, yaml.safe_load(text)


# Stands in for plink: says what it was asked, and ends as the host does that is down today.
PARTLY = """#!/bin/sh
echo "$@" >> asked
case "$1" in probe) touch today.json; exit 3;; diff) exit 1;; check) exit 4;; esac
"""


def test_a_host_that_is_down_is_compared_and_drawn_and_no_baseline(
    workflow: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """A probe that could not reach every host ends with 3 and leaves what it has: what CI is to tell people."""
    name, workflow_run = workflow
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/plink").write_text(PARTLY)
    (tmp_path / "bin/plink").chmod(0o755)
    (tmp_path / "baseline").mkdir()
    for file in ("network", "check"):
        (tmp_path / f"baseline/{file}.json").write_text("good")
    runner = Runner(tmp_path, tmp_path / "bin")
    failed = any(runner.github(workflow_run).values()) if name == "github" else runner.gitlab(workflow_run) == 1
    assert failed
    requests = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[0] for line in requests] == ["probe", "diff", "doctor", "check", "report"]
    assert "--max-regression baseline/check.json" in requests[3]
    assert [path.read_text() for path in (tmp_path / "baseline").iterdir()] == ["good", "good"]


@pytest.mark.parametrize("code", [1, 4])
def test_networks_are_compared_whatever_the_check_ends_with(
    code: int, workflow: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    """In one rack it ends with 4 every day: the network of the first day is what the second is compared with."""
    name, workflow_run = workflow
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/plink").write_text(
        f'#!/bin/sh\necho "$@" >> asked\ncase "$1" in probe) echo "$$" > today.json;; check) exit {code};; esac\n'
    )
    (tmp_path / "bin/plink").chmod(0o755)
    runner = Runner(tmp_path, tmp_path / "bin")
    for _ in range(2):
        assert any(runner.github(workflow_run).values()) if name == "github" else runner.gitlab(workflow_run) == 1
        assert [path.name for path in (tmp_path / "baseline").iterdir()] == ["network.json"]
        assert (tmp_path / "baseline/network.json").read_text() == (tmp_path / "today.json").read_text()
    commands = [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()]
    assert commands == ["probe", "doctor", "check", "report", "probe", "diff", "doctor", "check", "report"]
    if name == "github":
        (job,) = workflow_run["jobs"].values()
        (save,) = (step for step in job["steps"] if "cache/save" in step.get("uses", ""))
        assert save["if"] == "success() || failure()"
    else:
        assert workflow_run["network"]["cache"]["when"] == "always"


def test_the_check_step_may_be_deleted(workflow: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """As in one rack: the rest is good, day after day."""
    name, workflow_run = workflow
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/plink").write_text('#!/bin/sh\ncase "$1" in probe) echo good > today.json;; esac\n')
    (tmp_path / "bin/plink").chmod(0o755)
    if name == "github":
        (job,) = workflow_run["jobs"].values()
        job["steps"] = [step for step in job["steps"] if "plink check" not in step.get("run", "")]
    else:
        job = workflow_run["network"]
        job["script"] = [line for line in job["script"] if "plink check" not in line]
    runner = Runner(tmp_path, tmp_path / "bin")
    for _ in range(2):
        assert not any(runner.github(workflow_run).values()) if name == "github" else runner.gitlab(workflow_run) == 0
        assert [path.name for path in (tmp_path / "baseline").iterdir()] == ["network.json"]


@pytest.mark.lab
def test_a_good_day_and_a_bad_one(small_lab: Lab, workflow: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """The second day a rack has a quarter of its rate: that is seen, told, and not the next baseline."""
    name, workflow_run = workflow
    (tmp_path / "hosts.txt").write_text(small_lab.hosts_file.read_text())
    runner = Runner(tmp_path)
    if name == "github":
        assert set(runner.github(workflow_run).values()) == {0}
    else:
        assert runner.gitlab(workflow_run) == 0
    cases = ElementTree.parse(tmp_path / "check.xml").getroot()
    assert (cases.get("tests"), cases.get("failures"), cases.get("errors")) == ("1", "0", "0")
    assert (tmp_path / "network.html").read_text().startswith("<!DOCTYPE html>")
    baseline = (tmp_path / "baseline/network.json").read_bytes()
    try:
        assert small_lab.plink("shape", "rack1", "--rate", "50mbit", cwd=tmp_path).returncode == 0
        if name == "github":
            codes = runner.github(workflow_run)
            assert codes["Compare with last time"] == 1
            assert "The network's next baseline" not in codes
        else:
            assert runner.gitlab(workflow_run) == 1
    finally:
        small_lab.plink("heal", cwd=tmp_path)
    assert (tmp_path / "baseline/network.json").read_bytes() == baseline
    assert (tmp_path / "check.xml").exists()

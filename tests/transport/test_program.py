"""An agent program: what travels, and that the one line a remote shell sees is safe to quote."""

import ast
import importlib
import json
import subprocess
import sys

import pytest

from plink.transport.program import BOOTSTRAP, CHANNEL_MODULES, REMOTE_COMMAND, AgentProgram


def test_the_command_is_one_line_in_one_pair_of_single_quotes() -> None:
    assert "'" not in BOOTSTRAP
    assert "\n" not in REMOTE_COMMAND
    assert REMOTE_COMMAND.count("'") == 2
    assert not set("`$!") & set(BOOTSTRAP)  # what csh reads even inside quotes


def test_a_bundle_is_its_length_and_then_that_many_bytes() -> None:
    bundle = AgentProgram(("plink.transport.addresses",)).bundle({"lease_s": 1.5, "name": "zwölf"})
    assert bundle[11:12] == b"\n"
    body = bundle[12:]
    assert int(bundle[:12]) == len(body)
    document = json.loads(body)
    assert [name for name, _ in document["modules"]] == [*CHANNEL_MODULES, "plink.transport.addresses"]
    assert document["settings"] == {"lease_s": 1.5, "name": "zwölf"}


def test_a_bundle_that_is_cut_short_runs_nothing() -> None:
    bundle = AgentProgram(("tests.transport.fleet_agent",)).bundle({"lease_s": 5, "first": "hello"})
    done = subprocess.run([sys.executable, "-c", BOOTSTRAP], input=bundle[:-1], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("probes.session", "PROGRAM"),
        ("runners.job.fleet_runner", "PROGRAM"),
        ("runners.job.fleet_runner", "TORCHRUN_PROGRAM"),
        ("runners.launchers.external_runner", "PROGRAM"),
        ("runners.kubernetes.objects", "POD_PROGRAM"),
        ("runners.kubernetes.objects", "MPI_PROGRAM"),
    ],
)
def test_agents_run_where_nothing_is_installed(module: str, name: str) -> None:
    """``-I -S``: no site-packages, no current folder. Every import must be in the bundle or the standard library, and
    the syntax that of Python 3.8."""
    bundle = getattr(importlib.import_module(module), name).bundle({})
    sources = json.loads(bundle[12:])["modules"]
    for _, source in sources:
        ast.parse(source, feature_version=(3, 8))
    # Import the modules as the bootstrap does; only main() is not called, as it would talk to a controller.
    body = json.dumps({"modules": [*sources, ["last", "def main(**settings): print(settings)"]], "settings": {"a": 1}})
    data = f"{len(body):<11}\n{body}".encode()
    done = subprocess.run([sys.executable, "-I", "-S", "-c", BOOTSTRAP], input=data, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{'a': 1}\n", b"")

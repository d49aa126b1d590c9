"""What a host says of itself before a job: its way to the others, what it would run, and what it lacks."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from plink.transport import addresses
from runners.job import execution_environment as module
from runners.job.execution_environment import resolve_execution
from runners.job.fleet_runner import PROGRAM

# Documentation addresses (RFC 5737): this host is the first, the others are elsewhere.
OWN, OTHER = "192.0.2.1", "192.0.2.2"
NAMES = {"node-01": "127.0.1.1", "node-02": OTHER, "also-here": OWN, "localhost": "127.0.0.1"}


def ask(program: str = "true", *args: str, **more: Any) -> dict[str, Any]:
    """What :func:`resolve_execution` is asked."""
    usual: dict[str, Any] = {"workdirs": ["/"], "pythons": [sys.executable], "peers": [], "interface": None, "port": 0}
    return resolve_execution({**usual, "program": program, "args": list(args), **more})


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host is 192.0.2.1 on eth7, and takes its own name for a loopback address, as Debian does."""

    def resolved(host: str, *_: object, **__: object) -> list[Any]:
        if host not in NAMES and not host[0].isdigit():
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (NAMES.get(host, host), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(addresses, "local_addresses", lambda: [OWN])
    monkeypatch.setattr(addresses, "source_address_for", lambda peer: OWN)
    monkeypatch.setattr(module, "interface_of", {OWN: "eth7", "127.0.0.1": "lo"}.get)
    monkeypatch.setattr(module, "_free_port", lambda *_: 29500)


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    ("peers", "way"),
    [
        (["node-01", "node-02"], ("eth7", OWN)),
        (["node-01", "also-here"], ("eth7", OWN)),  # all are this host: as others would know it
        (["node-01", "127.0.0.3"], ("lo", "127.0.0.1")),
        ([], ("lo", "127.0.0.1")),
    ],
)
def test_the_way_to_the_others_is_that_to_the_first_other(peers: list[str], way: tuple[str, str]) -> None:
    here = ask(peers=peers)
    assert (here["interface"], here["address"], here["problems"]) == (*way, [])


@pytest.mark.usefixtures("network")
def test_others_whose_names_mean_nothing_here() -> None:
    here = ask(peers=["node-01", *(f"nobody-{place}" for place in range(50))])
    assert here["problems"] == ["no route to nobody-0: Name or service not known"]


def test_interpreter_is_in_the_folder_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the report is made; and also where that folder is named from there."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/py").symlink_to(sys.executable)
    (tmp_path / "work/train.py").touch()
    monkeypatch.chdir(tmp_path)
    for folder in (str(tmp_path / "work"), "work"):
        here = ask("train.py", pythons=["./py"], workdirs=[folder])
        assert (here["argv"], here["problems"]) == ([f"{tmp_path}/work/./py", "train.py"], [])
        assert ask("./py", workdirs=[folder])["argv"] == [f"{tmp_path}/work/./py"]
    assert ask("train.py", pythons=["./py"], workdirs=[str(tmp_path)])["problems"] == ["no such program: ./py"]


def test_a_script_of_a_named_interpreter(tmp_path: Path) -> None:
    """`python3 train.py` is asked as much as `train.py` is; `python3 -c` is not, and other programs are not."""
    (tmp_path / "train.py").touch()
    here = ask("python3", "train.py", "--epochs", workdirs=[str(tmp_path)])
    assert here["argv"][1:] == ["train.py", "--epochs"]
    assert here["versions"]["python"]
    assert here["problems"] == []
    assert ask("python3", "missing.py", workdirs=[str(tmp_path)])["problems"] == [
        f"no such file: {tmp_path}/missing.py"
    ]
    assert ask("python3", "-c", "missing.py")["problems"] == []
    assert ask("cat", "missing.py")["problems"] == []


def test_an_interpreter_that_cannot_be_started(tmp_path: Path) -> None:
    """That is told. One that says nothing is left alone: it may need what only the job's environment has."""
    (tmp_path / "train.py").touch()
    for name, text in (("broken", "#!/no/such/interpreter\n"), ("silent", "#!/bin/sh\nexit 3\n")):
        (tmp_path / name).write_text(text)
        os.chmod(tmp_path / name, 0o755)
    result = ask("train.py", pythons=["./broken"], workdirs=[str(tmp_path)])["problems"]
    assert result == [f"cannot start {tmp_path}/./broken: No such file or directory"]
    here = ask("train.py", pythons=["./silent"], workdirs=[str(tmp_path)])
    assert (here["versions"], here["problems"]) == (None, [])


@pytest.mark.parametrize(
    ("says", "versions"),
    [
        ('{"python": "3.9", "torch": null}', {"python": "3.9", "torch": None, "plink": None}),
        ('{"python": "3.9", "torch": 2}', None),
        ("Python 3.9", None),
        ("[" * 100_000, None),
    ],
)
def test_an_interpreter_that_answers_something_else(says: str, versions: object, tmp_path: Path) -> None:
    """It may be any program: what it says is not the agent's own word, whose form the controller checks."""
    (tmp_path / "train.py").touch()
    (tmp_path / "said").write_text(says)
    (tmp_path / "other").write_text(f"#!/bin/sh\nexec cat {tmp_path}/said\n")
    os.chmod(tmp_path / "other", 0o755)
    here = ask("train.py", pythons=["./other"], workdirs=[str(tmp_path)])
    assert (here["versions"], here["problems"]) == (versions, [])
    assert PROGRAM.checked({"type": "set_up", **here}).problems == []

"""Bad hosts files and hosts that cannot be had: one line that names them, and nothing is left behind."""

import socket
from pathlib import Path

import pytest

from tests.cli.files import listing, refusal
from tests.conftest import typed
from tests.ports import closed_port

__all__ = ["closed_port"]
BAD = [
    ("", "hosts.txt: no hosts in it"),
    ("a slots=2\nb\na\n", "hosts.txt:3: host 'a' is listed twice (first on line 1)"),
    ("a\nb colour=red\n", "hosts.txt:2: unknown key 'colour'"),
    ("a\n$(touch${IFS}gotcha)\n", "hosts.txt:2: "),
    ("a\n-oProxyCommand=x\n", "hosts.txt:2: "),
]


@pytest.fixture(autouse=True)
def quick_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No SSH configuration of the user's, and a resolver that gives up soon where there is no network."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RES_OPTIONS", "timeout:1 attempts:1")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An empty folder to work in."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


COMMANDS = (("probe", "hosts.txt", "-o", "n.json"), ("launch", "--hosts", "hosts.txt", "true"))


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_hosts_file_is_refused(text: str, message: str, here: Path) -> None:
    (here / "hosts.txt").write_text(text)
    for words in COMMANDS:
        assert refusal(typed(*words, cwd=here)).startswith(message)
    assert list(listing(here)) == ["hosts.txt"]


def test_a_lab_address_outside_its_lab_is_refused(here: Path) -> None:
    """It must never leave by the machine's own interfaces."""
    (here / "hosts.txt").write_text("a address=198.18.1.1\nb address=198.18.1.2\n")
    message = refusal(typed("probe", "hosts.txt", cwd=here))
    assert message.startswith("a: 198.18.1.1 exists only inside an emulated lab")


def last_line(stderr: str) -> str:
    """The error, after notes of what was read; there is one error only."""
    *notes, error = stderr.splitlines()
    assert not [note for note in notes if "error" in note]
    return error


@pytest.mark.parametrize(("words", "names"), [(COMMANDS[0], "ada, bob"), (COMMANDS[1], "ada")], ids=("probe", "launch"))
def test_hosts_that_refuse_are_named(words: tuple[str, ...], names: str, here: Path, closed_port: int) -> None:
    (here / "hosts.txt").write_text(
        f"ada address=127.0.0.1 port={closed_port}\nbob address=127.0.0.1 port={closed_port}\n"
    )
    done = typed(*words, cwd=here)
    assert done.returncode == 1
    assert done.stdout == ""
    error = last_line(done.stderr)
    assert error.startswith("plink: error: ")
    assert f"{names}: SSH connection refused" in error
    assert not (here / "n.json").exists()


@pytest.mark.parametrize("words", COMMANDS, ids=("probe", "launch"))
def test_a_name_that_does_not_resolve_is_named(words: tuple[str, ...], here: Path) -> None:
    """``.invalid`` never resolves (RFC 6761)."""
    (here / "hosts.txt").write_text("no-such-host.invalid\nno-such-host-2.invalid\n")
    done = typed(*words, cwd=here)
    assert done.returncode == 2
    error = last_line(done.stderr)
    assert error.startswith("plink: error: no-such-host.invalid: its name does not resolve")
    assert not (here / "n.json").exists()


def test_something_that_is_no_sshd_is_named(here: Path) -> None:
    """A port that answers with something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        (here / "hosts.txt").write_text(f"ada address=127.0.0.1 port={server.getsockname()[1]}\n")
        import threading

        def answer() -> None:
            with server.accept()[0] as client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        done = typed("launch", "--hosts", "hosts.txt", "true", cwd=here)
        thread.join()
    assert done.returncode == 1
    assert last_line(done.stderr).startswith("plink: error: ada: SSH: ")

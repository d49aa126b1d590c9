"""``plink reflector`` and ``plink stamp`` as a person starts them."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import typed
from tests.model.schemas import complaints, keys

WAIT_S = 30.0


@contextlib.contextmanager
def reflector(*words: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """A reflector on loopback: its port and its process."""
    argv = [sys.executable, "-m", "plink", "reflector", "--listen", "127.0.0.1", "--port", "0", *words]
    environment = os.environ | {"NO_COLOR": "1"}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            assert select.select([process.stderr], [], [], WAIT_S)[0]
            message = process.stderr.readline()
            port = re.search(r"reflecting on 127\.0\.0\.1 port (\d+) for ", message)
            assert port, message
            yield int(port.group(1)), process
        finally:
            process.kill()


def test_stamp_measures_a_reflector(tmp_path: Path) -> None:
    with reflector() as (port, process):
        target = f"127.0.0.1:{port}"
        done = typed("stamp", target, "--count", "50", "--interval", "0ms", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert done.stderr == ""
        assert set(document) == keys("stamp")
        assert complaints("stamp", document | {"clock": "sundial"}) == ["$.clock"]
        assert document["target"] == target
        assert (document["sent"], document["received"]) == (50, 50)
        assert len(document["percentiles_us"]) == 5
        read = typed("stamp", target, "--count", "5", cwd=tmp_path)
        assert read.returncode == 0
        assert re.fullmatch(
            r"5 of 5 answered, round trip in us: p1 .*p99 [\d.]+ \((kernel|user) clock\)\n", read.stdout
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert "Traceback" not in process.stderr.read()  # type: ignore[union-attr]


def test_a_reflector_ends_by_itself() -> None:
    with reflector("--duration", "100ms") as (_, process):
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "plink: 0 probes answered\n"


def test_a_target_that_does_not_answer_fails_and_says_so(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{sock.getsockname()[1]}"
        words = ("stamp", target, "--count", "2", "--timeout", "50ms")
        done = typed(*words, cwd=tmp_path)
        as_json = typed(*words, "--json", cwd=tmp_path)
    for run in (done, as_json):
        assert run.returncode == 1
        assert run.stderr == f"plink: error: {target}: none of 2 probes was answered; is a STAMP reflector there?\n"
    assert done.stdout == ""
    document = json.loads(as_json.stdout)
    assert (document["received"], document["percentiles_us"]) == (0, [None] * 5)


def test_a_taken_port_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
        done = typed("reflector", "--listen", "127.0.0.1", "--port", port, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"plink: error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


def test_a_lab_address_is_not_probed_from_outside_its_lab(tmp_path: Path) -> None:
    """It must never leave by the machine's own interfaces: refused, or no way to it while a lab is up."""
    done = typed("stamp", "198.18.1.1:18862", "--count", "1", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("plink: error: 198.18.1.1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("127.0.0.1:70000",), "127.0.0.1:70000: choose a port from 1 to 65535"),
        (("127.0.0.1:18862", "--timeout", "0"), "'0' leaves no time for anything; write it like 90s, 5m or 250ms"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = typed("stamp", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"plink: error: {message}\n")

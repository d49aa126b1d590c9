"""An agent ends when its controller is silent for the length of its lease, whatever else arrives."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from plink.transport.program import BOOTSTRAP
from probes.session import PROGRAM
from tests.child_hosts import ChildHosts, ends
from tests.probes.test_agent import AgentUnderTest
from tests.probes.test_tools import program

WAIT_S = 60.0
LEASE_S = 2.0


@contextlib.contextmanager
def silent_controller() -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """An agent whose controller says ``begin`` and then nothing; its process and its UDP port."""
    deadline = time.monotonic() + WAIT_S
    bundle = PROGRAM.bundle({"key": os.urandom(32).hex(), "source_ports": 1, "lease_s": LEASE_S})
    while True:
        agent = subprocess.Popen([sys.executable, "-c", BOOTSTRAP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert agent.stdin is not None
        assert agent.stdout is not None
        try:
            agent.stdin.write(bundle + b'{"method": "begin", "address": "127.0.0.1"}\n')
            agent.stdin.flush()
            agent.stdout.readline()  # hello
            report = json.loads(agent.stdout.readline())
            if report["type"] == "ready":
                yield agent, report["port"]
                return
            assert report["type"] == "busy"  # somebody else on this machine is probing
            assert time.monotonic() < deadline
        finally:
            agent.kill()
            agent.wait()
            agent.stdin.close()
            agent.stdout.close()


def test_foreign_packets_do_not_renew_the_lease() -> None:
    with silent_controller() as (agent, port), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        deadline = time.monotonic() + WAIT_S
        while agent.poll() is None:
            assert time.monotonic() < deadline, "the agent outlived its lease"
            noise.sendto(b"x", ("127.0.0.1", port))
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(timeout=0.05)
        assert agent.returncode == 0


def test_long_tool_run_renews_the_lease(tmp_path: Path) -> None:
    """It handles no other request meanwhile, but answers its controller."""
    program(tmp_path, "fping", f"exec {sys.executable} -c 'import time; time.sleep({2 * LEASE_S})'")
    with ChildHosts() as children:
        children.environment["PATH"] = str(tmp_path)
        agent = AgentUnderTest(children, LEASE_S)
        try:
            answer = agent.ask("icmp", peer="127.0.0.1", count=1, timeout_s=10.0)
            assert (answer["sent"], answer["received"]) == (1, 0)
        finally:
            agent.fleet.close()


def test_a_tool_ends_with_the_controller(tmp_path: Path) -> None:
    """Not when its time is over, which may be minutes."""
    began = tmp_path / "began"
    os.mkfifo(began)
    program(tmp_path, "fping", f"echo $$ > {began}; exec {sys.executable} -c 'import time; time.sleep(60)'")
    with ChildHosts() as children:
        children.environment["PATH"] = str(tmp_path)
        agent = AgentUnderTest(children)
        agent.fleet.send("a", method="icmp", task=1, peer="127.0.0.1", count=1, timeout_s=60.0)
        tool = int(began.read_text())
        agent.fleet.close()
        assert ends(tool)
        assert children.all_end()


def test_a_file_in_the_login_folder_is_not_imported(tmp_path: "os.PathLike[str]") -> None:
    """Hosts run the agent in the user's home, where a ``select.py`` may lie."""
    trap = os.path.join(tmp_path, "select.py")
    with open(trap, "w") as file:
        file.write("raise SystemExit('imported from the login folder')\n")
    bundle = PROGRAM.bundle({"key": os.urandom(32).hex(), "source_ports": 1, "lease_s": LEASE_S})
    done = subprocess.run(
        [sys.executable, "-c", BOOTSTRAP], input=bundle, cwd=tmp_path, capture_output=True, timeout=WAIT_S
    )
    assert done.stdout.startswith(b"plink-agent")
    assert done.returncode == 0
    assert b"login folder" not in done.stderr

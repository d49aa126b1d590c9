"""An sshd of our own on a port of 127.0.0.1, and a user with HOME in a temporary folder."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from runners.lab.sshd import _write_key
from tests.conftest import plink
from tests.lab.waiting import until
from tests.ports import free_port


@dataclass
class Server:
    """One sshd: its port, the public half of its host key, its log."""

    folder: Path
    settings: str = ""
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> str:
        """What it wrote so far."""
        return (self.folder / "log").read_text()

    @property
    def known_hosts_line(self) -> str:
        """Its line in a known_hosts file."""
        return f"[127.0.0.1]:{self.port} {(self.folder / 'host_key.pub').read_text()}\n"

    def start(self) -> None:
        """Make its keys if it has none, start it, wait until it answers."""
        self.folder.mkdir(exist_ok=True)
        for name in ("host_key", "user_key"):
            if not (self.folder / name).exists():
                (self.folder / f"{name}.pub").write_text(_write_key(self.folder / name))
        (self.folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/user_key.pub\nStrictModes no\nUsePAM no\nLogLevel VERBOSE\n"
            f"PasswordAuthentication no\nPermitRootLogin prohibit-password\n{self.settings}\n"
        )
        (self.folder / "log").unlink(missing_ok=True)  # of an earlier start
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        command = ["/usr/sbin/sshd", "-D", "-f", f"{self.folder}/config", "-E", f"{self.folder}/log"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        until(lambda: (self.folder / "log").exists() and "Server listening" in self.log, 10, "sshd to listen")

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=10)


@dataclass
class User:
    """Somebody with a home of their own and a folder they type in."""

    home: Path
    folder: Path

    @property
    def known_hosts(self) -> Path:
        """Their known_hosts file."""
        return self.home / ".ssh" / "known_hosts"

    def know(self, *servers: Server) -> None:
        """Note these servers' host keys."""
        self.known_hosts.write_text("".join(server.known_hosts_line for server in servers))

    def list_hosts(self, *lines: str) -> None:
        """Write the hosts file."""
        (self.folder / "hosts.txt").write_text("\n".join(lines) + "\n")

    def plink(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Type a command."""
        return plink(*words, cwd=self.folder, **{"HOME": str(self.home), "SSH_AUTH_SOCK": "", **more})


def line(name: str, server: Server) -> str:
    """A server as a line of a hosts file."""
    return f"{name} address=127.0.0.1 port={server.port} key={server.folder}/user_key"


def errors(done: "subprocess.CompletedProcess[str]") -> str:
    """The one error line; fails when there is none, or more than that."""
    lines = [text for text in done.stderr.splitlines() if text.startswith("plink: error: ")]
    assert len(lines) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == lines[0]
    assert "Traceback" not in done.stderr
    return lines[0]

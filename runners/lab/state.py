"""The lab's folder under /run: what stands, keys, hosts file, truth. It goes at reboot, as the namespaces do."""

import contextlib
import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from plink.errors import PlinkError, UsageError
from plink.model.hostlist import check_lab_name
from plink.model.storage import read_document, write_document
from runners.lab.blueprint import Blueprint, from_json

if TYPE_CHECKING:
    from runners.ssh.settings import Identity

LABS = Path("/run/plink/labs")


def need_root(what: str) -> None:
    """Refuse without root.

    :raises UsageError: saying what to type.
    """
    if os.geteuid() != 0:
        raise UsageError(f"{what} needs root (network namespaces): type `sudo {' '.join(_argv())}`")


def _argv() -> list[str]:
    # `python -m plink` stands in argv as the path of a file that cannot be run by itself.
    module = sys.argv[0].endswith("__main__.py")
    return [
        shlex.quote(word) for word in [*([sys.executable, "-m", "plink"] if module else sys.argv[:1]), *sys.argv[1:]]
    ]


class LabState:
    """One lab's folder. ``lab.json`` is written last: without it the lab is half up."""

    def __init__(self, name: str) -> None:
        self.name = check_lab_name(name, "lab")
        self.folder = LABS / name
        self.hosts_file = self.folder / "hosts.txt"
        self.truth_file = self.folder / "truth.json"
        self.etc_hosts = self.folder / "etc_hosts"
        self._lab = self.folder / "lab.json"

    def file(self, part: str, kind: str) -> Path:
        """A file of one host: ``host_key``, ``sshd.conf``, ``sshd.log``, ``sshd.pid``, ``load.pid``."""
        return self.folder / f"{part}.{kind}"

    @property
    def identity(self) -> "Identity":
        """The key that its hosts accept, and their keys."""
        from runners.ssh.settings import Identity  # brings paramiko

        return Identity(key=self.folder / "id_ed25519", known_hosts=self.folder / "known_hosts")

    def is_up(self) -> bool:
        """Whether the lab was brought up whole."""
        return self._lab.is_file()

    def begin(self) -> None:
        """An empty folder that only root can read (private keys are in it)."""
        self.remove()
        try:
            self.folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise PlinkError(f"cannot make {self.folder}: {error.strerror}") from None

    def finish(self, blueprint: Blueprint) -> None:
        """Mark the lab as whole."""
        write_document(self._lab, asdict(blueprint))

    def unmark(self) -> None:
        """From now on the lab counts as half up: what takes it down may be ended midway."""
        self._lab.unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the lab."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def blueprint(self) -> Blueprint:
        """What stands.

        :raises UsageError: when the lab is not up. :raises InputError: when its file is damaged.
        """
        if not self.is_up():
            others = f"; up are {', '.join(names())} (--name)" if names() else ""
            raise UsageError(f"lab {self.name!r} is not up on this machine: `plink lab up --name {self.name}`{others}")
        return from_json(read_document(self._lab), str(self._lab))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One change of any lab at a time, machine-wide: labs share the guard route.

        The lock is on the folder of all labs itself, so that no lock file is left behind.
        """
        LABS.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = os.open(LABS, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def names() -> list[str]:
    """Labs that have a folder, half-up ones included."""
    return sorted(path.name for path in LABS.iterdir() if path.is_dir()) if LABS.is_dir() else []

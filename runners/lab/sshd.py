"""sshd of each lab host, with keys of this lab only."""

import subprocess
import sys
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from plink.errors import PlinkError
from plink.transport.command_output import run_to_end
from runners.lab import gpu, kernel
from runners.lab.blueprint import Blueprint, Place
from runners.lab.state import LabState

_SSHD = Path("/usr/sbin/sshd")
_START_S = 10.0
# Its own host name, /etc/hosts and other files (pairs of source and target), in namespaces of its own; sshd then puts
# itself in the background.
_BOOT = """hostname "$1" && shift
while [ "$1" != -- ]; do mount --bind "$1" "$2" && shift 2 || exit 1; done
shift
exec "$@"
"""


def write_keys(blueprint: Blueprint, state: LabState) -> None:
    """Write a user key, a host key for every host, known_hosts, and the hosts' /etc/hosts."""
    public = _write_key(state.identity.key)
    (state.folder / "authorized_keys").write_text(f"{public}\n")
    known_hosts = [f"{place.address} {_write_key(state.file(place.name, 'host_key'))}" for place in blueprint.places]
    state.identity.known_hosts.write_text("\n".join(known_hosts) + "\n")
    # Mapped too: PyTorch looks its IPv4 peers up as IPv6 addresses.
    names = [f"{prefix}{place.address} {place.name}" for place in blueprint.places for prefix in ("", "::ffff:")]
    state.etc_hosts.write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")


def _write_key(path: Path) -> str:
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _configuration(blueprint: Blueprint, place: Place, state: LabState) -> str:
    # python3 on a lab host is the interpreter plink runs under, as on a cluster whose image was made for the job.
    python = Path(sys.executable).parent
    shared = gpu.environment(place.name, state) if blueprint.settings.gpu else {}
    variables = "".join(f" {name}={value}" for name, value in shared.items())
    # SHLVL: bash takes itself for a shell below another and reads no ~/.bashrc (shell.c, run_startup_files). Whatever
    # this machine's does (pyenv's waits a minute for a lock that a killed login left) is none of the lab's business.
    return f"""\
ListenAddress {place.address}
HostKey {state.file(place.name, "host_key")}
PidFile {state.file(place.name, "sshd.pid")}
AuthorizedKeysFile {state.folder / "authorized_keys"}
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
MaxSessions 200
SetEnv PATH={python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SHLVL=1{variables}
Subsystem sftp internal-sftp
"""


def _private_mounts(blueprint: Blueprint, place: Place, state: LabState) -> list[str]:
    """Return pairs of a host's own folder and its mount point; the content lives as long as the lab."""
    mounts = []
    for target in blueprint.private_folders(place.name):
        source = state.folder / "private" / place.name / target.strip("/").replace("/", "%")
        if not source.exists():
            source.mkdir(parents=True)
            source.chmod(Path(target).stat().st_mode & 0o7777)
        mounts += [str(source), target]
    return mounts


def process(blueprint: Blueprint, host: str, state: LabState) -> int | None:
    """Return the process id of a host's sshd; None where the host is dead."""
    pid_file = state.file(host, "sshd.pid")
    pid = pid_file.read_text().strip() if pid_file.exists() else ""
    return int(pid) if pid and int(pid) in kernel.pids(blueprint.namespace(host)) else None


def required_process(blueprint: Blueprint, host: str, state: LabState) -> int:
    """Return the process id of a host's sshd. :raises PlinkError: when the host is dead."""
    pid = process(blueprint, host, state)
    if pid is None:
        raise PlinkError(f"{host} is dead: `plink lab heal --name {state.name}` starts it")
    return pid


def start(blueprint: Blueprint, place: Place, state: LabState) -> None:
    """Start one host's sshd and wait until it listens.

    :raises PlinkError: when sshd is missing or does not come up; names its log.
    """
    if not _SSHD.exists():
        raise PlinkError("sshd is not installed: `apt-get install openssh-server`")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # privilege separation folder, made at boot by systemd elsewhere
    conf, log, pid = (state.file(place.name, kind) for kind in ("sshd.conf", "sshd.log", "sshd.pid"))
    conf.write_text(_configuration(blueprint, place, state))
    pid.unlink(missing_ok=True)
    argv = ["ip", "netns", "exec", blueprint.namespace(place.name), "unshare", "--uts", "sh", "-c", _BOOT, "sh"]
    mounts = [str(state.etc_hosts), "/etc/hosts", *_private_mounts(blueprint, place, state)]
    try:
        done = run_to_end([*argv, place.name, *mounts, "--", str(_SSHD), "-f", str(conf), "-E", str(log)], _START_S)
    except subprocess.SubprocessError:
        raise PlinkError(f"sshd of {place.name} did not start within {_START_S:.0f} s") from None
    deadline = time.monotonic() + _START_S
    while done.returncode == 0 and time.monotonic() < deadline:
        if pid.exists() and pid.read_text().strip():  # written once sshd listens
            return
        time.sleep(0.005)
    error = (
        done.stderr.strip() or (log.read_text().strip().splitlines() or ["no answer"])[-1]
        if log.exists()
        else done.stderr
    )
    raise PlinkError(f"sshd of {place.name} did not start: {error or 'no answer'}")

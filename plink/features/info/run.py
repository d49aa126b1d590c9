"""Gather what a bug report needs, without importing any of the libraries it names.

Bug reports are public: of what a program prints only its version is taken, and values of variables only where the
variable is known to be harmless.
"""

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plink import __version__
from plink.model.info import Info, ResultFile
from plink.records import workspace
from plink.transport.command_output import run_to_end

_ROOT = Path(__file__).parents[3]
_PACKAGES = (
    "torch", "numpy", "numba", "scipy", "scikit-learn", "k-means-constrained", "z3-solver", "matplotlib",
    "paramiko", "cryptography", "typer", "rich", "pyyaml", "scapy", "threadpoolctl",
)  # fmt: skip
# How each is asked for its version; not at all where importing PyTorch is what it would do first.
_PROGRAMS = {
    "ssh": "-V", "sshd": "-V", "ip": "-V", "tc": "-V", "iperf3": "--version", "fping": "--version",
    "mpirun": "--version", "srun": "-V", "torchrun": "", "kubectl": "", "nvidia-smi": "",
}  # fmt: skip
_LAB_PROGRAMS = ("ip", "tc", "sshd")
_PREFIXES = ("NCCL_", "GLOO_", "PLINK_", "TORCH_NCCL_")
_PUBLIC_VARIABLES = {
    "GLOO_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NTHREADS",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT",
}  # fmt: skip
# Words and numbers; what else stands in a harmless variable (an address, a path) is not what belongs there.
_PUBLIC_VALUE = re.compile(r"[A-Za-z0-9_,:^=+-]{1,64}")
_VERSION = re.compile(r"(?<![\d.])\d+\.\d+(?:\.\d+)?(?:[a-z]\w*)?(?![\w.]*\.\d)")  # no address of four numbers
_VERSION_TIMEOUT_S = 5.0
_ADMIN_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on the path of everybody, and where sshd and tc are


def info() -> Info:
    """Return what a bug report needs."""
    with ThreadPoolExecutor(len(_PROGRAMS)) as pool:
        programs = dict(zip(_PROGRAMS, pool.map(_program_version, _PROGRAMS), strict=True))
    files = (workspace.NETWORK, workspace.ORDER, workspace.EMBEDDING, workspace.GROUPS, workspace.PLAN)
    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [name for name in _LAB_PROGRAMS if programs[name] is None]
    if not Path("/proc/self/ns/net").exists():
        missing.append("network namespaces (a Linux kernel with CONFIG_NET_NS)")
    return Info(
        plink=f"{__version__}{_commit()}",
        python=f"{platform.python_version()}{', virtual environment' if sys.prefix != sys.base_prefix else ''}",
        system=_system(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        # The driver's own files: nvidia-smi takes seconds where it starts the driver.
        gpus=tuple(
            line.partition(":")[2].strip()
            for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
            for line in path.read_text().splitlines()
            if line.startswith("Model:")
        ),
        packages={name: _package_version(name) for name in _PACKAGES},
        programs=programs,
        lab_needs=tuple(missing),
        entry_points={group: _registered(group) for group in ("torch.backends", "torchrun.handlers")},
        environment={name: _shown(name) for name in sorted(os.environ) if name.startswith(_PREFIXES)},
        results={
            path.name: ResultFile(age_s=max(0, round(time.time() - path.stat().st_mtime)), bytes=path.stat().st_size)
            for path in files
            if path.is_file()
        },
        runs=len(list(workspace.RUNS.glob("*/run.json"))),
    )


def _output(*argv: str) -> str:
    """Return what a program prints, empty where it cannot be run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = run_to_end(list(argv), _VERSION_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
        return done.stdout + done.stderr
    return ""


def _program_version(name: str) -> str | None:
    folders = [os.environ.get("PATH", os.defpath), *_ADMIN_FOLDERS, str(Path(sys.executable).parent)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    if path is None:
        return None
    version = _VERSION.search(_output(path, _PROGRAMS[name])) if _PROGRAMS[name] else None
    return version[0] if version else "found"


def _package_version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _registered(group: str) -> str | None:
    return next((point.value for point in importlib.metadata.entry_points(group=group, name="plink")), None)


def _commit() -> str:
    """Return the commit of a checkout, and whether tracked files differ from it; empty for an installed package."""
    git = ("git", "--no-optional-locks", "-C", str(_ROOT))
    commit = _output(*git, "rev-parse", "--short=12", "HEAD").strip() if (_ROOT / ".git").exists() else ""
    if re.fullmatch("[0-9a-f]{7,64}", commit) is None:
        return ""
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return f", commit {commit}{', changed' if changed else ''}"


def _system() -> str:
    parts = [f"{platform.system()} {platform.release()}", platform.machine(), " ".join(platform.libc_ver()).strip()]
    with contextlib.suppress(OSError):
        parts.append(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
    return ", ".join(filter(None, parts))


def _shown(name: str) -> str:
    value = os.environ[name]
    if name in _PUBLIC_VARIABLES and _PUBLIC_VALUE.fullmatch(value):
        return value
    return "(set)" if value else "(empty)"

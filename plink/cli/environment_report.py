"""What a bug report needs to know of this machine, gathered without importing any of the libraries it names.

Bug reports are public. So nothing of this names a host, an address, a user or a folder unless the whole is asked for:
versions are taken from metadata and from the first line that a program prints of itself, and that line is scrubbed.
Values of variables are shown where the variable is known to be harmless; secrets are never shown.

A part that cannot be had is a dictionary with the key ``error``; the others are there all the same.
"""

import getpass
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from plink import __version__
from plink.records import workspace
from plink.remote.command_output import run_to_end

SCHEMA = "plink.info/1"
_ROOT = Path(__file__).parents[2]
PACKAGES = (
    "torch", "numpy", "numba", "scipy", "scikit-learn", "k-means-constrained", "ortools", "z3-solver", "matplotlib",
    "paramiko", "cryptography", "typer", "rich", "pyyaml", "scapy", "threadpoolctl",
)  # fmt: skip
# How each is asked for its version. None: it says nothing, or importing PyTorch is what it would do first.
PROGRAMS: dict[str, tuple[str, ...] | None] = {
    "ssh": ("-V",),
    "sshd": ("-V",),
    "ip": ("-V",),
    "tc": ("-V",),
    "iperf3": ("--version",),
    "fping": ("--version",),
    "mpirun": ("--version",),
    "srun": ("-V",),
    "torchrun": None,
    "kubectl": None,
    "nvidia-smi": None,
}
LAB_NEEDS = ("ip", "tc", "sshd")
_GROUPS = ("torch.backends", "torchrun.handlers")
_PREFIXES = ("NCCL_", "GLOO_", "PLINK_", "TORCH_NCCL_")
_PUBLIC_VARIABLES = {
    "GLOO_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET_GDR_LEVEL", "NCCL_NTHREADS",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT",
}  # fmt: skip
# Words and numbers; what else stands in a harmless variable (an address, a path) is not what belongs there.
_PUBLIC_VALUE = re.compile(r"[A-Za-z0-9_,:^=+-]{1,64}")
_SLURM_ERROR = re.compile(r"\w+: (error|fatal)\b")  # Slurm's, where it finds no configuration
_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{0,4}"
)
_HOME = re.compile(r"/(?:home|Users)/[^/\s]+")
_VERSION_TIMEOUT_S = 5.0
_ADMIN_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on the path of everybody, and where sshd and tc are


def gather(full: bool) -> dict[str, Any]:
    """Return the document ``plink.info/1``. ``full``: include the names of this machine and its folders, and what
    PyTorch reports (which imports it)."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "plink": _plink,
        "python": _python,
        "system": _system,
        "hardware": _hardware,
        "packages": _packages,
        "programs": _programs,
        "lab": _lab,
        "entry_points": _entry_points,
        "environment": _environment,
        "workspace": _workspace,
    }
    if full:
        parts |= {"names": _names, "pytorch": _pytorch}
    return {"schema": SCHEMA, "full": full, **{name: _part_or_error(part) for name, part in parts.items()}}


def _part_or_error(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return part()
    except Exception as error:  # whatever it is, it is something for the report
        return {"error": anonymised(f"{type(error).__name__}: {error}")}


def anonymised(text: str) -> str:
    """Return the text without this machine's name and addresses, the user's name and home."""
    text = text.replace(str(Path.home()), "~") if len(str(Path.home())) > 1 else text
    text = _ADDRESS.sub("<address>", _HOME.sub("~", text))
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        user = ""
    for name, instead in ((socket.gethostname(), "<host>"), (user, "<user>")):
        if len(name) > 1:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def find_program(program: str) -> str | None:
    """Return the path of a program, searching also administrators' folders and this interpreter's."""
    folders = [os.environ.get("PATH", os.defpath), *_ADMIN_FOLDERS, str(Path(sys.executable).parent)]
    return shutil.which(program, path=os.pathsep.join(folders))


def _first_line(argv: list[str]) -> str:
    done = run_to_end(argv, _VERSION_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"})
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    # Older sshd's know no -V: what they say of it comes first, and their version after it.
    version_lines = [line for line in lines if re.search(r"\d\.\d", line)]
    return (version_lines or [line for line in lines if not _SLURM_ERROR.match(line)] or [""])[0]


def _plink() -> dict[str, Any]:
    return {"version": __version__, **_source()}


def _source() -> dict[str, Any]:
    """Return whether this is a checkout, and its commit; for an installed package the commit that pip noted."""
    if not (_ROOT / ".git").exists():
        direct_url = importlib.metadata.distribution("plink-collectives").read_text("direct_url.json") or "{}"
        commit = re.search(r'"commit_id":\s*"([0-9a-f]{7,64})"', direct_url)
        return {"source": "installed", "commit": commit and commit.group(1)[:12]}
    git = ["git", "--no-optional-locks", "-C", str(_ROOT)]
    try:
        commit_id = _first_line([*git, "rev-parse", "--short=12", "HEAD"])
        changed = bool(_first_line([*git, "status", "--porcelain", "--untracked-files=no"]))
    except (OSError, subprocess.SubprocessError):
        return {"source": "checkout", "commit": None}
    is_commit = re.fullmatch("[0-9a-f]{7,64}", commit_id) is not None
    return {"source": "checkout", "commit": commit_id if is_commit else None, "changed": changed if is_commit else None}


def _python() -> dict[str, Any]:
    environment = "virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    return {"version": platform.python_version(), "implementation": platform.python_implementation(), "in": environment}


def _system() -> dict[str, Any]:
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        distribution = None
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "distribution": distribution,
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _hardware() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    usable_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # The driver's own files: nvidia-smi takes seconds where it starts the driver.
    models = [
        line.partition(":")[2].strip()
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in path.read_text().splitlines()
        if line.startswith("Model:")
    ]
    return {"cpus": os.cpu_count(), "usable_cpus": usable_cpus, "memory_bytes": memory, "gpus": models}


def _packages() -> dict[str, Any]:
    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    return {name: version(name) for name in PACKAGES}


def _programs() -> dict[str, Any]:
    """Return the version of each program: ``found`` for one that is not run, None for a missing one."""

    def version(name: str) -> str | None:
        path, arguments = find_program(name), PROGRAMS[name]
        if path is None or arguments is None:
            return None if path is None else "found"
        try:
            return anonymised(_first_line([path, *arguments])).replace(path, name)[:100] or "found"
        except (OSError, subprocess.SubprocessError) as error:
            return f"found, and does not answer ({type(error).__name__})"

    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        return dict(zip(PROGRAMS, pool.map(version, PROGRAMS), strict=True))


def _lab() -> dict[str, Any]:
    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [name for name in LAB_NEEDS if find_program(name) is None]
    if not Path("/proc/self/ns/net").exists():
        missing.append("network namespaces (a Linux kernel with CONFIG_NET_NS)")
    return {"possible": not missing, "missing": missing}


def _entry_points() -> dict[str, Any]:
    def registered(group: str) -> str | None:
        points = importlib.metadata.entry_points(group=group, name="plink")
        return next((point.value for point in points), None)

    return {group: registered(group) for group in _GROUPS}


def _environment() -> dict[str, Any]:
    """Return the values of variables that are known to be harmless, ``(set)`` for others."""

    def shown(name: str, value: str) -> str:
        return (
            value if name in _PUBLIC_VARIABLES and _PUBLIC_VALUE.fullmatch(value) else "(set)" if value else "(empty)"
        )

    return {name: shown(name, os.environ[name]) for name in sorted(os.environ) if name.startswith(_PREFIXES)}


def _workspace() -> dict[str, Any]:
    """Return age and size of the results in ./.plink, and number and age of its runs."""
    files = (workspace.NETWORK, workspace.ORDER, workspace.EMBEDDING, workspace.GROUPS, workspace.PLAN)
    results: dict[str, Any] = {}
    for path in files:
        if path.is_file():
            stat = path.stat()
            results[path.name] = {"age_s": _age_s(stat.st_mtime), "bytes": stat.st_size}
    runs = [path.stat().st_mtime for path in workspace.RUNS.glob("*/run.json")]
    if runs:
        results["runs"] = {"count": len(runs), "age_s": _age_s(max(runs))}
    return results


def _age_s(written: float) -> int:
    return max(0, round(time.time() - written))


def _names() -> dict[str, Any]:
    """Return what identifies this machine and user, for reports that are not public."""
    return {
        "hostname": socket.gethostname(),
        "python": sys.executable,
        "plink": str(_ROOT),
        "folder": str(Path.cwd()),
        **{name: path for name in PROGRAMS if (path := find_program(name)) is not None},
    }


def _pytorch() -> dict[str, Any]:
    import torch
    import torch.distributed

    available = torch.distributed.is_available()
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl() if gpus else None,
        "gloo": available and torch.distributed.is_gloo_available(),
        "plink_backend": available and "plink" in torch.distributed.Backend.backend_list,
        "gpus": gpus,
    }


def _nccl() -> str:
    import torch

    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]

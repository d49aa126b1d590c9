"""A GPU that all hosts of a lab share: CUDA's MPS daemon, and the variables that let NCCL run between its hosts.

NCCL refuses two ranks on one GPU only on one machine, and tells machines apart by ``NCCL_HOSTID``. Without MPS (NVIDIA,
Multi-Process Service, 4.1) the processes of hosts take turns on the GPU, and each step of a collective waits for its
turn. The daemon's folder is the lab's own, so that programs outside the lab do not use it.
"""

import os
import shutil
import subprocess
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.transport.command_output import run_to_end
from runners.lab.state import LabState

_CONTROL = "nvidia-cuda-mps-control"
_ELSEWHERE = Path("/usr/local/nvidia/bin")
_HOST_MB = 700  # of the GPU's memory that one rank with NCCL and PyTorch takes before the program has anything
_COMMAND_S = 20.0


def environment(host: str, state: LabState) -> dict[str, str]:
    """Return the variables of a host's programs, by which NCCL sends through the lab's links."""
    return {
        **_daemon_environment(state),
        "NCCL_HOSTID": host,
        "NCCL_NET": "Socket",
        "NCCL_IB_DISABLE": "1",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_MNNVL_ENABLE": "0",
    }


def check(hosts: int) -> None:
    """Refuse a machine on which so many hosts cannot share a GPU.

    :raises UsageError: without a GPU or MPS, with another MPS daemon, or with too little memory on the GPU.
    """
    smi = _tool("nvidia-smi", "no GPU was found (there is no nvidia-smi)")
    _tool(_CONTROL, f"{_CONTROL} is missing: it comes with NVIDIA's driver (package nvidia-compute-utils)")
    done = run_to_end([smi, "--query-gpu=memory.free", "--format=csv,noheader,nounits"], _COMMAND_S)
    free = [int(word) for word in done.stdout.split() if word.isdigit()]
    if done.returncode or not free:
        answer = (done.stdout + done.stderr).strip() or "nvidia-smi prints nothing"
        raise UsageError(f"--gpu: no GPU was found ({answer})")
    if free[0] < hosts * _HOST_MB:
        raise UsageError(
            f"--gpu: {hosts} hosts need {hosts * _HOST_MB} MB of the GPU's memory, {free[0]} MB are free: "
            f"{free[0] // _HOST_MB} hosts at most"
        )
    if others := _daemons():
        raise UsageError(
            f"--gpu: another MPS daemon runs on this machine (process {others[0]}); a GPU has one. End it first: "
            f"echo quit | {_CONTROL}"
        )


def start(state: LabState) -> None:
    """Start the lab's MPS daemon.

    :raises PlinkError: when it does not start.
    """
    environment = _daemon_environment(state)
    for folder in environment.values():
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    done = _control(["-d"], state)
    if done.returncode:
        raise PlinkError(f"CUDA's MPS daemon did not start: {(done.stderr or done.stdout).strip()}")


def stop(state: LabState) -> None:
    """End the lab's MPS daemon, if it has one; no other is asked."""
    if Path(_daemon_environment(state)["CUDA_MPS_PIPE_DIRECTORY"]).is_dir() and _path_of(_CONTROL) is not None:
        try:
            _control([], state, "quit -t 5\n")
        except subprocess.SubprocessError:
            raise PlinkError(f"CUDA's MPS daemon of lab {state.name} does not answer; end it by hand") from None


def _daemon_environment(state: LabState) -> dict[str, str]:
    folder = state.folder / "mps"
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def _control(words: list[str], state: LabState, text: str = "") -> "subprocess.CompletedProcess[str]":
    command = [_tool(_CONTROL, f"{_CONTROL} is missing"), *words]
    return subprocess.run(
        command,
        input=text,
        env=os.environ | _daemon_environment(state),
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )


def _path_of(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_ELSEWHERE)


def _tool(name: str, error: str) -> str:
    """Return the path of a tool. :raises UsageError: when it is missing."""
    path = _path_of(name)
    if path is None:
        raise UsageError(f"--gpu: {error}")
    return path


def _daemons() -> list[int]:
    """Return the processes that are MPS daemons; the kernel keeps 15 characters of a name."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name = (folder / "comm").read_text().strip()
            except OSError:  # it has ended
                continue
            if name == _CONTROL[:15]:
                pids.append(int(folder.name))
    return pids

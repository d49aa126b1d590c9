"""Ranks as processes on this machine, started as any launcher starts them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.runtime.torchruns import ROOT, free_port


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    code: int
    out: str
    err: str


def run_ranks(
    script: Path, ranks: int, *args: str, patience_s: float = 120.0, freezes: Sequence[int] = (), **env: str
) -> list[Ended]:
    """Run the script as that many ranks; all have ended when this returns. ``freezes``: those that may never end by
    themselves, and are killed when the others have."""
    settings = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks),
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **env,
    }  # fmt: skip
    running = [
        subprocess.Popen(
            [sys.executable, str(script), *args], cwd=script.parent, text=True,
            env={**settings, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        others = [rank for rank in range(ranks) if rank not in freezes]
        said = {rank: running[rank].communicate(timeout=patience_s) for rank in others}
        for rank in freezes:
            running[rank].kill()
            said[rank] = running[rank].communicate()
    finally:
        for process in running:
            process.kill()
    return [Ended(process.returncode, *said[rank]) for rank, process in enumerate(running)]

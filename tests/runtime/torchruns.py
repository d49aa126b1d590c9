"""torchruns side by side, as the nodes of a job, with plink's entry point wherever the tests run from."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.runtime.ranks import ROOT, RankProcess, Ranks

ENTRY_POINT = "[torchrun.handlers]\nplink = plink.runtime.torchrun:entry_point\n"

# Says who it is, then proves that all can talk: everybody's rank and node, gathered over Gloo. One write a line:
# torchrun starts workers with `python -u`, whose print() is two, and the workers of a node share a pipe.
GATHER = """
import json, os
import torch.distributed as dist
dist.init_process_group("gloo")
found = [None] * dist.get_world_size()
dist.all_gather_object(found, [dist.get_rank(), os.environ["PLINK_NODE"] if "PLINK_NODE" in os.environ
                               else os.uname().nodename])
mine = {key: os.environ[key] for key in ("RANK", "GROUP_RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")}
os.write(1, b"GATHERED " + json.dumps({"all": found, **mine}).encode() + b"\\n")
dist.destroy_process_group()
"""


def install(folder: Path) -> dict[str, str]:
    """What ``pip install`` gives, without one: the environment in which torchrun finds plink's entry point."""
    info = folder / "site" / "plink_entry-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plink-entry\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    # torchrun leaves a folder behind at every start.
    return {"PYTHONPATH": f"{ROOT}:{info.parent}", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}


@dataclass(frozen=True)
class Ended:
    """How one torchrun ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line of the RendezvousError that ended it."""
        errors = re.findall(r"^torch\.distributed\.elastic\.rendezvous\.api\.(Rendezvous\w+: .*)$", self.err, re.M)
        assert errors, self.err[-3000:]
        return str(errors[-1])


class Torchruns:
    """Started one by one; a context manager that leaves none behind."""

    def __init__(self, folder: Path, prefix: Sequence[str] = ()) -> None:
        self._folder, self._environment = folder, {**os.environ, **install(folder)}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, prefix: Sequence[str] = (), **env: str) -> "subprocess.Popen[str]":
        """``torchrun --rdzv-backend=plink WORDS``; ``prefix``: what to run it under."""
        number = len(self._started)
        with open(self._folder / f"{number}.out", "w") as out, open(self._folder / f"{number}.err", "w") as err:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=plink", *words],
                cwd=self._folder, env={**self._environment, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                text=True, start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        return process

    def ended(self, timeout_s: float = 60) -> list[Ended]:
        """All of them, in the order in which they were started."""
        for process in self._started:
            process.wait(timeout_s)
        return [
            Ended(process.returncode, (self._folder / f"{k}.out").read_text(), (self._folder / f"{k}.err").read_text())
            for k, process in enumerate(self._started)
        ]

    def __enter__(self) -> "Torchruns":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def torchrun(*words: str) -> None:
    """Be a torchrun with plink's rendezvous, in a process that has imported PyTorch."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
    from torch.distributed.run import main

    from plink.runtime.torchrun import entry_point

    rendezvous_handler_registry.register("plink", entry_point())
    sys.argv = ["torchrun", "--rdzv-backend=plink", *words]
    main(sys.argv[1:])


class ForkedTorchruns:
    """The same without the start of an interpreter, which is most of what a torchrun costs; their workers are fresh."""

    def __init__(self, folder: Path) -> None:
        self._ranks = Ranks(folder)
        self._environment = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}

    def start(self, *words: str, **env: str) -> RankProcess:
        """``torchrun --rdzv-backend=plink WORDS``."""
        return self._ranks.start(torchrun, *words, environment={**self._environment, **env})

    def ended(self, timeout_s: float = 60) -> list[Ended]:
        """All of them, in the order in which they were started."""
        return [Ended(end.code, end.out, end.err) for end in self._ranks.wait(timeout_s)]

    def __enter__(self) -> "ForkedTorchruns":
        return self

    def __exit__(self, *error: object) -> None:
        self._ranks.__exit__(None, None, None)

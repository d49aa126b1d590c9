"""``plink launch``: what an order gains real clients (``plink compare``), and what a launch takes on 64 hosts."""

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.labs import lab
from benchmarks.record import Bar, record
from plink.model.storage import read_document
from plink.runtime import order_timing

ROOT = Path(__file__).parents[1]
_SIZE = "16000000"
_LINES = 10_000


@dataclass(frozen=True)
class Workload:
    """A program whose gain is measured. ``algo``: of `plink reorder`; ``min_gain``: the bar."""

    name: str
    algo: str
    pairs: int
    figure: str
    words: tuple[str, ...]
    min_gain: float


def _open_mpi(algorithm: int) -> tuple[str, ...]:
    settings = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": str(algorithm),
        "OMPI_MCA_mpi_yield_when_idle": "1",  # every lab host believes it has the machine's cores to itself
    }
    env = tuple(f"--env={name}={value}" for name, value in settings.items())
    return ("--runner", "mpirun", *env, *_timing("mpi"))


def _timing(kind: str) -> tuple[str, ...]:
    """Return the program that times three all-reduces of the 16 ranks after one that warms up, with its argument."""
    config = {"kind": kind, "places": [list(range(16))] * 3, "sizes_bytes": [int(_SIZE)] * 3}
    word = order_timing.pack_config({**config, "warm_up": 1, "repeats": 1})
    return "--env=OMP_NUM_THREADS=1", order_timing.__file__, word


_DDP = (str(ROOT / "examples/ddp_vgg.py"), "--steps", "6")
_TREES = (str(ROOT / "examples/lightgbm_train.py"), "--iterations", "4")
WORKLOADS = (
    Workload(
        "PyTorch all-reduce of 16 MB over Gloo",
        "gloo",
        5,
        "seconds",
        _timing("gloo"),
        2.5,
    ),
    Workload("Open MPI ring of 16 MB", "openmpi-ring", 5, "seconds", _open_mpi(4), 2.5),
    Workload("Open MPI Rabenseifner of 16 MB", "openmpi-rabenseifner", 5, "seconds", _open_mpi(6), 1.5),
    Workload("DDP training of a VGG-like network", "gloo", 3, "step_s", ("--env=OMP_NUM_THREADS=1", *_DDP), 1.5),
    Workload("LightGBM, distributed", "lightgbm", 3, "iteration_s", _TREES, 1.2),
)


def _gains(wanted: list[str]) -> dict[str, Any]:
    """Return every client in the given order and in plink's, on 4 racks of 4 hosts whose racks share what one host
    has."""
    rows: dict[str, Any] = {}
    with lab("--seed", "5") as bench:
        _done(bench.plink("probe", bench.hosts_file))
        for client in WORKLOADS:
            if wanted and not any(word in client.name.lower() for word in wanted):
                continue
            _done(bench.plink("reorder", "--algo", client.algo, "--size", "16MB"))
            trial = ("--pairs", str(client.pairs), "--metric", client.figure)
            run = bench.plink("compare", "--hosts", bench.hosts_file, *trial, *client.words)
            if run.code:  # the others are worth having
                print(run.stderr[-3000:], file=sys.stderr)
                rows[client.name] = {"algo": client.algo, "gain": 0.0}
                continue
            rows[client.name] = {"algo": client.algo, **read_document(bench.folder / ".plink" / "compare.json")}
            print(json.dumps({client.name: rows[client.name]["gain"]}), flush=True)
    return rows


def _many() -> dict[str, Any]:
    """64 ranks on 64 hosts: `true`, five times, and 10,000 lines of each."""
    with lab("--racks", "8", "--hosts-per-rack", "8", "--seed", "1") as bench:
        words = ("launch", "--order", "given", "--hosts", bench.hosts_file)
        up_and_down = []
        for _ in range(5):
            run = bench.plink(*words, "true")
            _done(run)
            up_and_down.append(round(run.seconds, 2))
        printing = f"import os\nfor k in range({_LINES}): print(os.environ['RANK'], k)\n"
        (bench.folder / "prints.py").write_text(printing)
        run = bench.plink(*words, "prints.py")
        _done(run)
        (logs,) = (path for path in (bench.folder / ".plink/runs").glob("*/logs") if (path / "rank-0.out").exists())
        whole = sum(
            (logs / f"rank-{rank}.out").read_text() == "".join(f"{rank} {k}\n" for k in range(_LINES))
            for rank in range(64)
        )
        return {"up_and_down_s": up_and_down, "whole_outputs": whole, "printing_s": round(run.seconds, 2),
                "printing_peak_mb": round(run.peak_mb)}  # fmt: skip


def _done(run: Any) -> None:
    if run.code:
        raise SystemExit(run.stderr)


def main() -> int:
    """Run and record; the exit code. Words name clients to measure again, ``many`` the 64 hosts; the rest is kept."""
    wanted = [word.lower() for word in sys.argv[1:]]
    path = ROOT / "benchmarks/records/launching.json"
    recorded = read_document(path)["figures"] if wanted and path.exists() else {"gains": {}}
    gains = {**recorded["gains"], **(_gains(wanted) if wanted != ["many"] else {})}
    many = recorded["many"] if "many" in recorded and wanted and "many" not in wanted else _many()
    return record(
        "launching",
        {"racks": 4, "hosts_per_rack": 4, "rate": "200mbit", "size_bytes": int(_SIZE)},
        {"gains": gains, "many": many},
        [
            *(
                Bar(f"gain: {workload.name}", gains[workload.name]["gain"], at_least=workload.min_gain)
                for workload in WORKLOADS
                if workload.name in gains
            ),
            Bar(
                "64 ranks of true, up and down, seconds, median", statistics.median(many["up_and_down_s"]), at_most=20.0
            ),
            Bar("ranks of 64 whose 10,000 lines are whole", many["whole_outputs"], at_least=64),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())

"""Open MPI's tuned all-reduces, as they come from Debian."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.labs import BenchLab
from benchmarks.timing.orders import Names, Seconds, read_seconds, write_orders
from runners.lab.state import LabState

# As `ompi_info --param coll tuned --level 9` numbers them.
ALGORITHMS = {"openmpi-recursive-doubling": 3, "openmpi-ring": 4, "openmpi-rabenseifner": 6}
_SOURCE = Path(__file__).parent / "openmpi_rank.c"
_TIMEOUT_S = 900


def check_installed() -> None:
    """End with the line to type when something is missing."""
    missing = [name for name in ("mpirun", "mpicc", "ssh") if shutil.which(name) is None]
    if (
        not missing
        and subprocess.run(
            ["mpicc", "-E", "-o", os.devnull, str(_SOURCE)], stderr=subprocess.DEVNULL, check=False
        ).returncode
    ):  # the compiler's wrapper comes without
        missing = ["mpi.h"]
    if missing:
        raise SystemExit(f"{missing[0]} is missing: apt-get install openmpi-bin libopenmpi-dev openssh-client")


def version() -> str:
    """Of mpirun."""
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].split()[-1]


def measure(
    bench: BenchLab, orders: Sequence[Names], size_bytes: int, warm_up: int, repeats: int, *, algo: str
) -> Seconds:  # fmt: skip
    """Return seconds of an all-reduce of float32, shape (orders, repeats). mpirun runs on the lab's first host."""
    program = bench.folder / "openmpi_rank"
    if not program.exists():
        subprocess.run(["mpicc", "-O2", "-o", str(program), str(_SOURCE)], check=True)
    orders_file, result = write_orders(bench, algo, orders)
    numbers = (str(number) for number in (size_bytes, warm_up, repeats))
    run = bench.plink(
        "lab", "exec", "--name", bench.name, bench.names[0], "--",
        "timeout", "--kill-after=5", str(_TIMEOUT_S),
        *_mpirun(bench, ALGORITHMS[algo]), str(program), orders_file, result, *numbers,
    )  # fmt: skip
    return read_seconds(run, algo, result)


def _mpirun(bench: BenchLab, algorithm: int) -> list[str]:
    hosts, identity = bench.folder / "hostfile", LabState(bench.name).identity
    hosts.write_text("".join(f"{place.address} slots=1\n" for place in bench.blueprint.places))
    ssh = f"-F none -i {identity.key} -o UserKnownHostsFile={identity.known_hosts} -o BatchMode=yes"
    settings = {
        "plm_rsh_args": ssh,
        "orte_keep_fqdn_hostnames": "1",
        "orte_tmpdir_base": str(bench.folder),
        "oob_tcp_if_include": "eth0",
        # All hosts of a lab share this machine's memory: nothing may take a short cut through it.
        "pml": "ob1",
        "btl": "self,tcp",
        "btl_tcp_if_include": "eth0",
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": str(algorithm),
        # They share its cores, too: who waits must not keep the others from theirs.
        "mpi_yield_when_idle": "1",
    }
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    count = str(len(bench.names))
    return [
        "mpirun", "--allow-run-as-root", "--hostfile", str(hosts), "-np", count, "--map-by", "ppr:1:node",
        "--bind-to", "none", *words,
    ]  # fmt: skip

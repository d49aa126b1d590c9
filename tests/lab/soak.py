"""A soak of an elastic job on lab hosts: every 20 s a host dies and another one is added.

``python -m tests.lab.soak SECONDS [FILE]`` samples threads, descriptors and memory of every process that stays for the
whole time (launcher, controller, the reliable host's agent, supervisor and node), prints them, and ends with exit code
1 when any of them grew. It needs root, and brings up a lab of its own.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from plink.model.hosts import Hosts, parse_hosts, render_hosts
from tests.lab.jobs import Running
from tests.lab.waiting import until

NAME = "soak"
CYCLE_S = 20.0
_WARM_UP = 0.2  # of the time, in which caches fill
_MEMORY_GROWTH = 1.05  # of the median of the last quarter over that of the first one
_PROGRAM = Path(__file__).parents[1] / "runners/elastic/tally.py"

Sample = dict[str, tuple[int, int, int]]  # threads, descriptors and KiB of memory by process


def sample(root: int, lab_pids: list[int]) -> Sample:
    """Of the launcher's own processes and those of the reliable host."""
    values: Sample = {}
    for pid in [*_tree(root), *lab_pids]:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            modules = [word.decode() for word in words if word.startswith((b"plink.", b"runners."))]
            role = modules[0].rpartition(".")[2] if modules else "agent"
            memory = int(fields["VmRSS"].split()[0])
            values[f"{role} {pid}"] = int(fields["Threads"]), len(os.listdir(f"/proc/{pid}/fd")), memory
    return values


def _tree(root: int) -> list[int]:
    children = Path(f"/proc/{root}/task/{root}/children")
    with contextlib.suppress(OSError):
        return [root, *(pid for child in children.read_text().split() for pid in _tree(int(child)))]
    return []


def pids(host: str) -> list[int]:
    """Python processes on a lab host."""
    words = ["ip", "netns", "pids", f"plink.{NAME}.{host}"]
    every = map(int, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    process_ids = []
    for pid in every:
        with contextlib.suppress(OSError):
            if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                process_ids.append(pid)
    return process_ids


def plink(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """A command of plink's, from this checkout."""
    return subprocess.run([sys.executable, "-m", "plink", *words], cwd=cwd, capture_output=True, text=True, check=False)


def names_in(folder: Path) -> set[str]:
    """Hosts of the job."""
    done = plink("elastic", "status", "last", "--json", cwd=folder)
    return {host["name"] for host in json.loads(done.stdout)["hosts"]} if done.returncode == 0 else set()


def soak(seconds: float, folder: Path) -> list[Sample]:
    """A sample of each cycle."""
    assert plink("lab", "up", "--name", NAME, "--racks", "2", "--hosts-per-rack", "2", cwd=folder).returncode == 0
    hosts = parse_hosts(plink("lab", "hosts", "--name", NAME, cwd=folder).stdout, "lab")
    first, *others = hosts.members
    members = {host.name: replace(host, tier="transient") for host in others}
    spare, *serving = members
    there = Hosts((replace(first, tier="reliable"), *(members[name] for name in serving)), hosts.lab)
    (folder / "hosts.txt").write_text(render_hosts(there))
    job = Running(
        folder, "elastic", "run", "--hosts", "hosts.txt", "--max-hosts", "8",
        "--checkpoint", str(folder / "kept"), "--checkpoint-every", "5s", str(_PROGRAM),
        "--out", str(folder / "out.json"), "--clocks", "100000000", "--work-s", "0.05",
    )  # fmt: skip
    samples: list[Sample] = []
    try:
        until(lambda: names_in(folder) == set(there.names), 60, "the job's hosts")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            leaves, spare_now = serving.pop(0), spare
            for pid in pids(leaves):
                if b"elastic.node" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            until(lambda gone=leaves: gone not in names_in(folder), 60, "a death")  # type: ignore[misc]
            (folder / "more.txt").write_text(render_hosts(Hosts((members[spare_now],), hosts.lab)))
            done = plink("elastic", "add", "last", "--hosts", "more.txt", cwd=folder)
            assert done.returncode == 0, done.stderr
            serving.append(spare_now)
            spare = leaves
            time.sleep(max(0.0, CYCLE_S - (time.monotonic() - begun)))
            assert job.process.poll() is None, job.err
            samples.append(sample(job.process.pid, pids(first.name)))
            print(len(samples), json.dumps(samples[-1]), flush=True)
    except AssertionError:
        print(job.err, file=sys.stderr)
        raise
    finally:
        job.close()
        plink("lab", "down", "--name", NAME, cwd=folder)
    return samples


def growth(samples: list[Sample]) -> list[str]:
    """What grew, after the warm-up."""
    rest = samples[int(_WARM_UP * len(samples)) :]
    quarter, growing = max(1, len(rest) // 4), list[str]()
    for name in set.intersection(*(set(names) for names in rest)):
        for index, what in enumerate(("threads", "descriptors", "memory")):
            ends = rest[:quarter], rest[-quarter:]
            before, after = (statistics.median(names[name][index] for names in part) for part in ends)
            if after > before * (_MEMORY_GROWTH if what == "memory" else 1):
                growing.append(f"{name}: {what} {before:g} -> {after:g}")
    return growing


def main(seconds: float, path: str | None) -> int:
    """Exit code."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        print("a soak needs root and iproute2", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="plink-soak-") as folder:
        samples = soak(seconds, Path(folder))
    grew = growth(samples)
    result: dict[str, Any] = {"seconds": seconds, "cycles": len(samples), "grew": grew, "samples": samples}
    if path:
        Path(path).write_text(json.dumps(result, indent=1) + "\n")
    print("grew: " + ("; ".join(grew) or "nothing"))
    return bool(grew)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))

"""Seeded courses of joins, warnings and deaths over a job of real processes.

``python -m tests.runners.agile.live.courses FIRST LAST``; the result must be what an undisturbed job has, exactly. With
``--reliable`` reliable hosts die, too, now and then with the controller: the job goes on from its checkpoints.
"""

import contextlib
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from plink.errors import PlinkError
from tests.runners.agile.live.elastic import Elastic

_EVENTS = 6
_LAST = 85  # clocks: what is begun after that may find the job over


def course(seed: int, folder: Path, *, reliable: bool = False) -> list[str]:
    """Run one; what was done. :raises AssertionError: it hung, failed, or lost or doubled an update."""
    whats = ["add", "add", "warn", "warn", "kill", "kill", "controller", "stop"]
    whats += ["reliable", "reliable", "both"] if reliable else []
    rng = random.Random(seed)
    tiers = "r" * rng.randint(1, 2) + "t" * rng.randint(1, 4)
    settings: dict[str, object] = {"checkpoints": str(folder / "checkpoints"), "checkpoint_every_s": 0.5}
    if rng.random() < 0.3:
        settings |= {"active": 1.0, "backup_only": 2.0}
    if rng.random() < 0.3:
        settings["slack"] = rng.randint(1, 2)
    done, new = [f"{tiers} {settings}"], 0
    more = ("--work-s", "0.01", "--megabytes", str(rng.choice([0, 2, 8])))
    with Elastic(folder, tiers, clocks=110, settings=settings, most_hosts=10, more=more) as job:
        job.until(lambda status: (status.get("checkpoint") or -1) >= 0)
        for _ in range(_EVENTS):
            time.sleep(rng.uniform(0.05, 0.7))
            try:
                status = job.status()
            except PlinkError:  # it is over, or about to be
                break
            if status.get("begun", -1) > _LAST:
                break
            hosts = status["hosts"]
            there, kept = ([host["name"] for host in hosts if host["tier"] == t] for t in ("transient", "reliable"))
            some = rng.sample(there, rng.randint(1, len(there))) if there else []
            what = rng.choice(whats)
            with contextlib.suppress(
                PlinkError, StopIteration, ProcessLookupError
            ):  # it is gone already, or all is over
                if what == "add" and len(there) < 5:
                    names = [f"n{new + k}" for k in range(rng.randint(1, 2))]
                    new += len(names)
                    done.append(f"add {names}")
                    job.add(*names, bulk=rng.random() < 0.5)
                elif what == "warn" and some:
                    seconds = rng.choice([0.0, 0.05, 1.0, 5.0])
                    done.append(f"warn {some} {seconds} s")
                    job.evict(*some, seconds=seconds)
                elif what in ("kill", "stop") and some:
                    done.append(f"{what} {some}")
                    job.kill(*some, number=signal.SIGKILL if what == "kill" else signal.SIGSTOP)
                elif what in ("reliable", "both") and kept:
                    done.append(f"kill {kept[:1]}{' and the controller' if what == 'both' else ''}")
                    job.kill(*kept[:1])
                if what in ("controller", "both") and job.hub._controller is not None:
                    done.append("kill the controller")
                    job.hub._controller.kill()
        job.finish(exactly="slack" not in settings)
    return done


def main(first: int, last: int, *, reliable: bool) -> int:
    """Those that failed are named; how many."""
    failed = []
    for seed in range(first, last):
        with tempfile.TemporaryDirectory(prefix="plink-") as folder:
            begun = time.monotonic()
            try:
                done = course(seed, Path(folder), reliable=reliable)
                print(f"{seed}: {time.monotonic() - begun:.1f} s: {'; '.join(done)}", flush=True)
            except Exception as error:
                failed.append(seed)
                print(f"{seed}: FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"failed: {failed or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), reliable="--reliable" in sys.argv))

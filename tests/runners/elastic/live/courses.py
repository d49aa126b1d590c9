"""Seeded courses of joins, warnings and deaths over a job of real processes.

``python -m tests.runners.elastic.live.courses FIRST LAST``; the result must be what an undisturbed job has, exactly. With
``--reliable`` reliable hosts die, too, now and then with the controller: the job goes on from its checkpoints. With
``--private`` transient hosts do not see the folder of checkpoints (which needs root), and each course is interrupted:
another job restores its last checkpoint and goes on, on other hosts.
"""

import contextlib
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.errors import PlinkError
from tests.runners.elastic.live.elastic import Elastic, PrivateFolder

_EVENTS = 6
_CLOCKS = 110
_PATIENCE_S = 90.0
_LAST = 25  # clocks before the end: what is begun after that may find the job over


@dataclass
class Course:
    """One course: what may happen, what did, and the names given to newcomers."""

    rng: random.Random
    folder: Path
    reliable: bool
    private: bool
    done: list[str] = field(default_factory=list)
    newcomers: int = 0

    def tiers(self) -> str:
        """Hosts to begin with."""
        return "r" * self.rng.randint(1, 2) + "t" * self.rng.randint(1, 4)

    def job(self, folder: Path, tiers: str, clocks: int, settings: dict[str, object], *more: str) -> Elastic:
        """A job that has not begun."""
        self.done.append(f"{tiers} {settings}")
        private = PrivateFolder(self.folder / "checkpoints") if self.private else None
        return Elastic(folder, tiers, clocks=clocks, settings=settings, most_hosts=10, more=more, private=private)

    def disturb(self, job: Elastic, until: int) -> None:
        """Some events at random times, as long as the clock is before ``until``."""
        kinds = ["add", "add", "warn", "warn", "kill", "kill", "controller", "stop"]
        kinds += ["reliable", "reliable", "both"] if self.reliable else []
        for _ in range(_EVENTS):
            time.sleep(self.rng.uniform(0.05, 0.7))
            try:
                status = job.status()
            except PlinkError:  # it is over, or about to be
                break
            if status.get("begun", -1) > until:
                break
            with contextlib.suppress(PlinkError, StopIteration, ProcessLookupError):  # it is gone already
                self._event(job, status["hosts"], self.rng.choice(kinds))

    def _event(self, job: Elastic, hosts: list[dict[str, str]], kind: str) -> None:
        rng = self.rng
        there, remaining = ([host["name"] for host in hosts if host["tier"] == t] for t in ("transient", "reliable"))
        some = rng.sample(there, rng.randint(1, len(there))) if there else []
        if kind == "add" and len(there) < 5:
            names = [f"n{self.newcomers + k}" for k in range(rng.randint(1, 2))]
            self.newcomers += len(names)
            self.done.append(f"add {names}")
            job.add(*names, bulk=rng.random() < 0.5)
        elif kind == "warn" and some:
            seconds = rng.choice([0.0, 0.05, 1.0, 5.0])
            self.done.append(f"warn {some} {seconds} s")
            job.evict(*some, seconds=seconds)
        elif kind in ("kill", "stop") and some:
            self.done.append(f"{kind} {some}")
            job.kill(*some, number=signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        elif kind in ("reliable", "both") and remaining:
            self.done.append(f"kill {remaining[:1]}{' and the controller' if kind == 'both' else ''}")
            job.kill(*remaining[:1])
        if kind in ("controller", "both") and job.supervisor._controller is not None:
            self.done.append("kill the controller")
            job.supervisor._controller.kill()


def has_checkpoint(status: dict[str, Any]) -> bool:
    """Whether one was written."""
    return (status.get("checkpoint") or -1) >= 0


def course(seed: int, folder: Path, *, reliable: bool = False, private: bool = False) -> list[str]:
    """Run one; what was done. :raises AssertionError: it hung, failed, or lost or doubled an update."""
    rng = random.Random(seed)
    here = Course(rng, folder, reliable, private)
    tiers, checkpoints = here.tiers(), folder / "checkpoints"
    checkpoints.mkdir()
    settings: dict[str, object] = {"checkpoints": str(checkpoints), "checkpoint_every_s": 0.5}
    if rng.random() < 0.3:
        settings |= {"active": 1.0, "backup_only": 2.0}
    if rng.random() < 0.3:
        settings["rule"] = f"ssp:{rng.randint(1, 3)}"
    more = ("--work-s", "0.01", "--megabytes", str(rng.choice([0, 2, 8])))
    clocks = _CLOCKS
    if private:
        first = folder / "first"
        first.mkdir()
        with here.job(first, tiers, 100_000, settings, *more) as job:
            job.until(has_checkpoint, _PATIENCE_S)
            here.disturb(job, 100_000)
            clocks += job.until(has_checkpoint, _PATIENCE_S)["checkpoint"]
            job.supervisor._queue.put(lambda: job.supervisor._end(9, "interrupted"))
        here.done.append("restore")
        tiers, settings["restore"] = here.tiers(), str(checkpoints)
    with here.job(folder, tiers, clocks, settings, *more) as job:
        job.until(has_checkpoint, _PATIENCE_S)
        here.disturb(job, clocks - _LAST)
        job.finish(exactly="rule" not in settings)
    return here.done


def main(first: int, last: int, *, reliable: bool, private: bool) -> int:
    """Those that failed are named; how many."""
    failed = []
    for seed in range(first, last):
        with tempfile.TemporaryDirectory(prefix="plink-") as folder:
            begun = time.monotonic()
            try:
                done = course(seed, Path(folder), reliable=reliable, private=private)
                print(f"{seed}: {time.monotonic() - begun:.1f} s: {'; '.join(done)}", flush=True)
            except Exception as error:
                failed.append(seed)
                print(f"{seed}: FAILED: {type(error).__name__}: {error}", flush=True)
    print(f"failed: {failed or 'none'}")
    return len(failed)


if __name__ == "__main__":
    words = sys.argv[3:]
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), reliable="--reliable" in words, private="--private" in words))

"""Run transfers on a platform by SimGrid: ``python3 simgrid_job.py PLATFORM JOB OPTION...``, which prints the seconds.

Needs SimGrid's Python bindings (Debian: python3-simgrid), which are those of the system's Python.
JOB is JSON: ``source`` and ``target`` (names of hosts), ``bytes``, and ``after`` (numbers of transfers to wait for).
"""

import json
import sys
from typing import Any

from simgrid import Actor, Comm, Engine, Host  # type: ignore[import-not-found]


def run(job: dict[str, Any], ends: list[float]) -> None:
    """Start each transfer when those that it waits for have ended."""
    followers: list[list[int]] = [[] for _ in job["bytes"]]
    missing = [len(after) for after in job["after"]]
    for transfer, after in enumerate(job["after"]):
        for other in after:
            followers[other].append(transfer)
    ready, active, running = [k for k, number in enumerate(missing) if not number], [], []
    while ready or active:
        for transfer in ready:
            source, target = (Host.by_name(job[end][transfer]) for end in ("source", "target"))
            active.append(Comm.sendto_async(source, target, int(job["bytes"][transfer])))
            running.append(transfer)
        ready = []
        done = Comm.wait_any(active)
        active.pop(done)
        for follower in followers[running.pop(done)]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    ends.append(Engine.clock)


def main() -> None:
    """Run the job and print how long it took."""
    engine = Engine(sys.argv)
    engine.load_platform(sys.argv[1])
    with open(sys.argv[2]) as file:
        job = json.load(file)
    ends: list[float] = []
    Actor.create("controller", Host.by_name(job["source"][0]), run, job, ends)
    engine.run()
    print(ends[0])


if __name__ == "__main__":
    main()

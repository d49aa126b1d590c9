"""Play schedules by SimGrid: ``python3 simgrid_player.py PLATFORM JOBS OPTION...``; prints seconds as JSON.

Ranks are actors that play their rounds as MPI programs do: they post a round's receptions and sends together
(MPI_Irecv, MPI_Isend), wait for all of them (MPI_Waitall), and go on. A message begins when it is sent and awaited;
one of up to 64 KiB when it is sent, as those of SMPI.

Needs SimGrid's Python bindings (Debian: python3-simgrid), which are those of the system's Python. JOBS is JSON, a list
of jobs that run one after the other. A job has ``hosts``, the name of each rank's, and ``rounds``, for each rank a list
of (sends: (target, bytes), receptions: (source, bytes, seconds from the last byte to the arrival)).
"""

import json
import sys
from typing import Any

from simgrid import Actor, Comm, Engine, Host, Mailbox, this_actor  # type: ignore[import-not-found]

_EAGER_BYTES = 65536


def _mailbox(job: int, source: int, target: int, size: int) -> Any:
    protocol = "eager" if size <= _EAGER_BYTES else "rendezvous"
    return Mailbox.by_name(f"{job}: {source} to {target}, {protocol}")


def play_rank(job: int, rank: int, rounds: list[Any], ends: list[float]) -> None:
    """Play one rank's rounds, and note when they end."""
    for source, size in {(source, size) for _, receptions in rounds for source, size, _ in receptions}:
        if size <= _EAGER_BYTES:
            _mailbox(job, source, rank, size).set_receiver(Actor.self())
    this_actor.yield_()  # until all ranks are ready
    for sends, receptions in rounds:
        received = [_mailbox(job, source, rank, size).get_async() for source, size, _ in receptions]
        sent = [_mailbox(job, rank, target, size).put_async("data", size) for target, size in sends]
        Comm.wait_all([*(message for message, _ in received), *sent])
        lags = (lag for _, _, lag in receptions)
        arrived = max(
            (message.finish_time + lag for (message, _), lag in zip(received, lags, strict=True)), default=0.0
        )
        if arrived > Engine.clock:
            this_actor.sleep_until(arrived)
    ends[rank] = Engine.clock


def run(jobs: list[dict[str, Any]], seconds: list[float]) -> None:
    """Play the jobs one after the other and add how long each one took."""
    for number, job in enumerate(jobs):
        began = Engine.clock
        ends = [began] * len(job["hosts"])
        actors = [
            Actor.create(f"rank {rank} of job {number}", Host.by_name(host), play_rank, number, rank, rounds, ends)
            for rank, (host, rounds) in enumerate(zip(job["hosts"], job["rounds"], strict=True))
        ]
        for actor in actors:
            actor.join()
        seconds.append(max(ends) - began)


def main() -> None:
    """Play the jobs and print how long they took."""
    engine = Engine(sys.argv)
    engine.load_platform(sys.argv[1])
    with open(sys.argv[2]) as file:
        jobs = json.load(file)
    seconds: list[float] = []
    Actor.create("controller", Host.by_name(jobs[0]["hosts"][0]), run, jobs, seconds)
    engine.run()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()

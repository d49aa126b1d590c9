"""Run transfers on a platform by SimGrid: ``python3 simgrid_jobs.py PLATFORM JOBS OPTION...``; prints seconds as JSON.

Needs SimGrid's Python bindings (Debian: python3-simgrid), which are those of the system's Python.
JOBS is JSON, a list of jobs that run one after the other. A job of transfers has ``source`` and ``target`` (names of
hosts), ``bytes``, ``lag_s`` (from the last byte to the arrival), ``after`` (transfers whose arrival each one waits
for), ``queue`` (of one queue one is under way at a time) and ``priority`` (in its queue, the lowest first).

A job that ranks play as MPI programs do has ``hosts``, the name of each rank's, and ``rounds``, for each rank a list of
(sends: (target, bytes), receptions: (source, bytes, seconds from the last byte to the arrival)). Ranks are actors: they
post a round's receptions and sends together (MPI_Irecv, MPI_Isend), wait for all of them (MPI_Waitall), and go on. A
message begins when it is sent and awaited; one of up to 64 KiB when it is sent, as those of SMPI. ``ahead``: so many
rounds' receptions are posted before they are waited for, as rings of libraries do.
"""

import heapq
import json
import sys
from typing import Any

from simgrid import Actor, Comm, Engine, Host, Mailbox, this_actor  # type: ignore[import-not-found]

_SAME_TIME_S = 1e-9
_EAGER_BYTES = 65536


def run_job(job: dict[str, Any]) -> float:
    """Start each transfer when those that it waits for are done; return the time at which the last one has arrived."""
    missing = [len(after) for after in job["after"]]
    followers: list[list[int]] = [[] for _ in missing]
    for transfer, others in enumerate(job["after"]):
        for other in others:
            followers[other].append(transfer)
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(max(job["queue"]) + 1)]
    busy = [False] * len(waiting)
    active, running = [], []
    arrivals: list[tuple[float, int]] = []
    ended, ready = Engine.clock, [k for k, number in enumerate(missing) if not number]
    touched: set[int] = set()
    while ready or active or arrivals:
        for transfer in ready:
            queue = job["queue"][transfer]
            heapq.heappush(waiting[queue], (job["priority"][transfer], transfer))
            touched.add(queue)
        ready.clear()
        for queue in sorted(touched):
            if waiting[queue] and not busy[queue]:
                _, transfer = heapq.heappop(waiting[queue])
                source, target = (Host.by_name(job[end][transfer]) for end in ("source", "target"))
                active.append(Comm.sendto_async(source, target, int(job["bytes"][transfer])))
                running.append(transfer)
                busy[queue] = True
        touched.clear()
        done = -1
        if active and arrivals:
            done = Comm.wait_any_for(active, max(0.0, arrivals[0][0] - Engine.clock))
        elif active:
            done = Comm.wait_any(active)
        else:
            this_actor.sleep_until(arrivals[0][0])
        if done >= 0:
            active.pop(done)
            transfer = running.pop(done)
            heapq.heappush(arrivals, (Engine.clock + job["lag_s"][transfer], transfer))
            busy[job["queue"][transfer]] = False
            touched.add(job["queue"][transfer])
        while arrivals and arrivals[0][0] <= Engine.clock + _SAME_TIME_S:
            ended, transfer = heapq.heappop(arrivals)
            for follower in followers[transfer]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
    return float(ended)


def _mailbox(job: int, source: int, target: int, size: int) -> Any:
    protocol = "eager" if size <= _EAGER_BYTES else "rendezvous"
    return Mailbox.by_name(f"{job}: {source} to {target}, {protocol}")


def play_rank(job: int, rank: int, rounds: list[Any], ahead: int, ends: list[float]) -> None:
    """Play one rank's rounds, and note when they end."""
    for source, size in {(source, size) for _, receptions in rounds for source, size, _ in receptions}:
        if size <= _EAGER_BYTES:
            _mailbox(job, source, rank, size).set_receiver(Actor.self())
    this_actor.yield_()  # until all ranks are ready
    posted = [_posted(job, rank, receptions) for _, receptions in rounds[:ahead]]
    for number, (sends, receptions) in enumerate(rounds):
        posted += [_posted(job, rank, later) for _, later in rounds[number + ahead : number + ahead + 1]]
        received = posted[number]
        sent = [_mailbox(job, rank, target, size).put_async("data", size) for target, size in sends]
        Comm.wait_all([*(message for message, _ in received), *sent])
        lags = (lag for _, _, lag in receptions)
        arrived = max(
            (message.finish_time + lag for (message, _), lag in zip(received, lags, strict=True)), default=0.0
        )
        if arrived > Engine.clock:
            this_actor.sleep_until(arrived)
    ends[rank] = Engine.clock


def _posted(job: int, rank: int, receptions: list[Any]) -> list[Any]:
    return [_mailbox(job, source, rank, size).get_async() for source, size, _ in receptions]


def play(number: int, job: dict[str, Any]) -> float:
    """Have all ranks play their rounds; return the time at which the last one ends."""
    ends = [Engine.clock] * len(job["hosts"])
    actors = [
        Actor.create(
            f"rank {rank} of job {number}", Host.by_name(host), play_rank, number, rank, rounds, job["ahead"], ends
        )
        for rank, (host, rounds) in enumerate(zip(job["hosts"], job["rounds"], strict=True))
    ]
    for actor in actors:
        actor.join()
    return max(ends)


def run(jobs: list[dict[str, Any]], seconds: list[float]) -> None:
    """Run the jobs one after the other and add how long each one took."""
    for number, job in enumerate(jobs):
        began = Engine.clock
        seconds.append((play(number, job) if "rounds" in job else run_job(job)) - began)


def main() -> None:
    """Run the jobs and print how long they took."""
    engine = Engine(sys.argv)
    engine.load_platform(sys.argv[1])
    with open(sys.argv[2]) as file:
        jobs = json.load(file)
    seconds: list[float] = []
    Actor.create("controller", Host.by_name(jobs[0].get("hosts", jobs[0].get("source"))[0]), run, jobs, seconds)
    engine.run()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()

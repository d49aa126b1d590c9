"""What befalls a simulated job: hosts come, are warned, are lost, one or all; controllers are lost too. From a seed."""

import random
from collections.abc import Callable

from plink.elastic.optimisers import Optimiser
from tests.runners.elastic.simulated_job import SimulatedJob

KINDS = ("join", "join", "bulk", "reliable", "warn", "warn", "tight", "kill", "kill", "silent", "all", "controller",
         "controller", "return")  # fmt: skip


def job_of(
    seed: int, folder: str = "", rough: bool = False, rebalance: bool = False, rule: str = "bsp",
    by_speed: bool = False, optimiser: Optimiser | None = None, dtype: str = "int64",
    slots: tuple[int, ...] = (1, 1, 2, 3),
) -> SimulatedJob:  # fmt: skip
    """A job with all that will happen to it.

    :param folder: for checkpoints; with it reliable hosts are lost, too.
    :param rough: words between servers are lost now and then.
    :param rebalance: workers help each other.
    :param by_speed: shards go by speed; every third host takes three times as long.
    :param optimiser: that servers apply to what workers add.
    :param dtype: of what is counted.
    :param slots: of hosts, of which each has one at random.
    """
    chance = random.Random(seed * 7919 + 13)
    reliable, transient = chance.choice([1, 1, 2, 3]), chance.choice([0, 1, 3, 4, 6])
    settings: dict[str, object] = {"backup_only": chance.choice([15.0, 2.0])}
    grains = chance.choice([2, 4, 8]) if rebalance else 1
    settings |= {"rule": rule, "rebalance": rebalance, "shares": "speed" if by_speed else "slots"}
    if folder:
        settings |= {"checkpoints": folder, "checkpoint_every_s": 0.0}
    job = SimulatedJob(
        seed, "r" * reliable + "t" * transient, partitions=chance.randint(1, 5), shards=chance.choice([3, 8, 13]),
        clocks=chance.choice([10, 20, 40] if rebalance else [20, 40, 80]),
        rough=chance.choice([0.002, 0.02]) if rough else 0.0, settings=settings, grains=grains,
        optimiser=optimiser, dtype=dtype, slots=slots,
        shard_s=(lambda host, clock: 0.012 if host % 3 == 2 else 0.004) if by_speed else None,
    )  # fmt: skip
    at = 0.0
    for _ in range(chance.randint(1, 9)):
        at += chance.choice([0.01, 0.1, 0.5, 1.0, 2.0]) * chance.uniform(0.5, 2.0)
        kind = chance.choice((*KINDS, "last") if folder else KINDS)
        job.later(at, lambda kind=kind: doing(job, kind, chance)())  # type: ignore[misc]
    return job


def run_exactly(job: SimulatedJob) -> None:
    """Run a job to its end; print what was written down, if that is not what it should be. Where all reliable hosts
    are lost before there is a checkpoint, the job says so."""
    try:
        job.run()
        assert job.ended == (0, "") or (job.ended and "no checkpoint was written" in job.ended[1])
    except BaseException:
        print("\n".join(job.log[-120:]))
        raise


def doing(job: SimulatedJob, kind: str, chance: random.Random) -> Callable[[], object]:
    """One of the things that may happen, to hosts that there are now."""
    transient, reliable = job.alive("t"), job.alive("r")
    some = chance.sample(transient, min(len(transient), chance.choice([1, 1, 2, 3])))
    staying = [number for number in reliable if number not in job.warned]

    def each(numbers: list[int], silently: bool = False) -> None:
        for number in numbers:
            job.kill(number, "killed silently" if silently else "killed", silently)

    match kind:
        case "join":
            return lambda: job.join("t", False)
        case "bulk":
            return lambda: job.join("t" * chance.randint(2, 5), True)
        case "reliable":
            if chance.random() < 0.5 or len(staying) < 2:
                return lambda: job.join("r", True)
            return lambda: job.warn(staying[:1], chance.uniform(3.0, 10.0))
        case "warn":
            return lambda: job.warn(some, chance.uniform(1.0, 8.0))
        case "tight":
            return lambda: job.warn(some, chance.uniform(0.0, 0.3))
        case "kill" | "silent":
            return lambda: each(some, kind == "silent")
        case "all":
            return lambda: each(transient)
        case "controller":
            return job.kill_controller
        case "last":
            return lambda: each(chance.sample(reliable, 1) if reliable else [])
        case _:
            return lambda: (each(some), job.join("t" * len(some), False))

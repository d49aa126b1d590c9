"""Hub processes of a job: how many run on each hub host, and what each can take."""

import math
from collections.abc import Sequence

# Receiving, adding and sending back a gigabyte takes a process 1.2 s of a core (docs/results/hub.md).
GBPS_A_PROCESS = 7.0


def hub_processes(rates_gbps: Sequence[float | None], cores: Sequence[int | None]) -> tuple[list[int], list[float]]:
    """Return the host of each process, by index, and the weights of the processes: what each can take.

    A host has a process for each 7 Gbit/s, and leaves one core to the kernel. Hosts of unknown rate are as fast as the
    slowest that is known.

    :param rates_gbps: of each hub host, in and out at once. :param cores: of each.
    """
    least = min((rate for rate in rates_gbps if rate is not None), default=1.0)
    hosts, weights = [], []
    for host, (rate, number) in enumerate(zip(rates_gbps, cores, strict=True)):
        limit = 1 if number is None else max(1, number - 1)
        processes = 1 if rate is None or math.isinf(rate) else min(max(1, math.ceil(rate / GBPS_A_PROCESS)), limit)
        hosts += [host] * processes
        weights += [min((least if rate is None else rate) / processes, GBPS_A_PROCESS)] * processes
    return hosts, weights

"""A job in a rank order, started on its hosts and shown to run where it should."""

import logging
import time
from collections.abc import Callable

from plink.api.connecting import connector_for
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.records.scratch import scratch_folder
from runners.choice import runner_named
from runners.job.job import Job
from runners.job.output import Sink
from runners.job.proof import Finding
from runners.job.result import RunResult
from runners.job.runner import Watch

_log = logging.getLogger("plink.launch")


def launch(
    job: Job,
    hosts: Hosts,
    order: RankOrder | None = None,
    *,
    runner: str = "ssh",
    on_line: Sink = lambda rank, stream, line: None,
    on_proof: Callable[[list[Finding]], None] = lambda findings: None,
) -> RunResult:
    """Run a program as the ranks of a job, to its end; the first rank that fails ends the others.

    No rank's program begins before every rank was shown to be where it was asked to be. How it ended is in what is
    returned (``exit_code``, ``failure``), also where a rank failed.

    :param order: None: ranks as the hosts stand.
    :param runner: what starts the ranks: ``ssh``, ``local``, ``torchrun``, ``mpirun``, ``mpich`` or ``slurm``.
    :param on_line: gets each line that a rank prints, with the rank and ``out`` or ``err``.
    :param on_proof: gets where every rank was found, before programs begin.
    :raises UsageError: for a runner that there is none of. :raises InputError: when the order is not of these hosts.
    :raises OrderNotKept: when a rank was found elsewhere. :raises PlinkError: when the job could not be started.
    """
    arranged = hosts if order is None else order.arrange(hosts, "order")

    def proven(findings: list[Finding]) -> None:
        _log.info("%d ranks are where they were asked to be", len(findings))
        on_proof(findings)

    with scratch_folder() as folder:
        chosen = runner_named(runner, lambda: connector_for(arranged, accept_new_host_keys=False))
        result = chosen.run(job, arranged, Watch(on_line, proven, time.monotonic, folder))
    _log.info("ended with exit code %d after %.1f s", result.exit_code, result.seconds)
    return result

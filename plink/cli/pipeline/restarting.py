"""Start a pipeline again from its latest checkpoint, on the same hosts."""

from dataclasses import replace

from plink.cli.launching import JobSetup, Restart
from plink.records.pipeline_log import PipelineLog
from plink.runtime.pipeline import CHECKPOINT_VARIABLE, RESTORE_VARIABLE
from runners.job.result import RunResult

_INTERRUPTED = 130


def restartable(setup: JobSetup, restarts: int) -> JobSetup:
    """Return a job that is started again when it fails, at most so many times.

    It is not started again when it wrote no checkpoint since its last start, nor when the user ended it. Then a message
    says how to go on by hand.
    """
    folder = setup.job.env.get(CHECKPOINT_VARIABLE)
    return setup if folder is None else _restarted(setup, folder, restarts)


def _restarted(setup: JobSetup, folder: str, restarts: int) -> JobSetup:
    def progress() -> tuple[int, int]:
        """Return the minibatch that the job began with, and that of the latest checkpoint that all ranks have."""
        log = setup.request.pipeline_log
        assert log is not None
        reports = log.latest.values()
        begin = max((report.get("begin", 0) for report in reports), default=0)
        return begin, max((report.get("checkpoint", 0) for report in reports), default=0)

    def resume_hint() -> str | None:
        begin, latest = progress()
        if latest > begin:
            return f"the latest checkpoint is of minibatch {latest}: add --restore {folder} to go on from it"
        if restored := setup.job.env.get(RESTORE_VARIABLE):
            at = f" at minibatch {begin}" if begin else ""
            return f"no checkpoint was written since it began{at}: add --restore {restored} to go on from there again"
        return None

    def restart(result: RunResult) -> Restart:
        begin, latest = progress()
        if result.failure is None:
            return Restart()
        if latest > begin and restarts > 0 and result.exit_code != _INTERRUPTED and not result.timed_out:
            job = replace(setup.job, env={**setup.job.env, RESTORE_VARIABLE: folder})
            request = replace(setup.request, pipeline_log=PipelineLog())
            following = _restarted(replace(setup, job=job, request=request), folder, restarts - 1)
            # It may be damaged: what training resumes from, its ranks say.
            left = f"restarts left: {restarts - 1}"
            return Restart(following, f"checkpoints up to minibatch {latest} are in {folder}; starting again; {left}")
        return Restart(message=resume_hint())

    return replace(setup, restart=restart, resume_hint=resume_hint)

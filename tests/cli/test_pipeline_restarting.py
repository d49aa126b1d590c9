"""How a pipeline that its user ends is to be started again."""

from typing import Any

import pytest

from plink.features.launch import session as launching
from plink.features.launch.pipeline_job import restartable
from plink.features.launch.request import JobRequest
from plink.features.launch.run import LaunchRequest
from plink.model.hosts import Host, Hosts
from plink.model.pipeline.rank_report import RankReport
from plink.records.pipeline_log import PipelineLog
from plink.runtime.pipeline import CHECKPOINT_VARIABLE, RESTORE_VARIABLE
from runners.job.runner import Job


@pytest.mark.parametrize(
    ("restored", "begin", "written", "hint"),
    [
        (None, 0, (15, 20), "the latest checkpoint is of minibatch 20: add --restore kept to go on from it"),
        (None, 0, (0, 0), None),
        (None, 0, (), None),
        ("old", 10, (10, 10), "began at minibatch 10: add --restore old to go on from there again"),
        ("old", 10, (15, 15), "minibatch 15: add --restore kept"),
    ],
)
def test_interrupt_says_how_to_go_on(
    restored: str | None, begin: int, written: tuple[int, ...], hint: str | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = PipelineLog()
    env = {CHECKPOINT_VARIABLE: "kept"} | ({RESTORE_VARIABLE: restored} if restored else {})

    def interrupted(*_: Any) -> None:
        for rank, number in enumerate(written):
            log.latest[rank] = RankReport(
                type="checkpoint", plan="ab", rank=rank, host="a", stage=0, replica=0, at_s=1.0, minibatches=1,
                sent_bytes=0, received_bytes=0, versions=1, begin=begin, checkpoint=number,
            )  # fmt: skip
        raise KeyboardInterrupt

    monkeypatch.setattr(launching, "launch", interrupted)
    hosts = Hosts((Host("a", "127.0.0.1", slots=2),))
    setup = launching.JobSetup(Job("train.py", env=env), hosts, hosts, LaunchRequest(pipeline_log=log), JobRequest())
    with pytest.raises(KeyboardInterrupt):
        launching.start(restartable(setup, 3))
    err = capsys.readouterr().err
    assert hint in err if hint else "--restore" not in err

"""Hosts on which the program cannot work, and programs that no host can, simulated: who fails, and what is said."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from plink.errors import PlinkError
from plink.model.elastic.codec import Envelope
from plink.model.elastic.requests import Begin, Begun, LoadShards
from runners.elastic.group import last_word
from solvers.elastic.failures import ENDED
from solvers.elastic.member import Member
from solvers.elastic.step import status
from tests.runners.elastic.simulated_host import SimulatedHost
from tests.runners.elastic.simulated_job import SimulatedJob
from tests.runners.elastic.test_simulated_jobs import finish


def spoil(job: SimulatedJob, host: int, spoilt: Callable[[int], bool] = lambda shard: True) -> None:
    """It cannot load these shards."""
    app = job.hosts[host].app
    load = app.load

    def loaded(shard: int) -> Sequence[int]:
        if spoilt(shard):
            raise PlinkError(f"load({shard}) raised FileNotFoundError")
        return load(shard)

    app.load = loaded  # type: ignore[method-assign]


def failed(job: SimulatedJob) -> list[str]:
    """Hosts that have, by the log."""
    return [name for name in (f"h{number}" for number in job.hosts)
            if any("'event': 'failed'" in line and f"'host': '{name}'" in line for line in job.log)]  # fmt: skip


def test_a_newcomer_that_cannot_load_fails_alone() -> None:
    job = SimulatedJob(1, "rttt", clocks=60)

    def join() -> None:
        (number,) = job.join("t", True)
        spoil(job, number)

    job.later(2.0, join)
    finish(job)
    assert failed(job) == ["h4"]
    (line,) = (line for line in job.log if "'event': 'failed'" in line)
    assert "FileNotFoundError" in line


@pytest.mark.parametrize("seed", range(2))
def test_a_newcomer_that_serves_already_and_cannot_load_hands_over_first(seed: int) -> None:
    """A reliable one in stage 1 has partitions before it has any data: they would be lost with it."""
    job = SimulatedJob(seed, "rt", partitions=4, clocks=80)
    out: list[int] = []

    def load(shard: int) -> Sequence[int]:
        raise PlinkError("no disk")

    def join() -> None:
        (number,) = job.join("r", True)
        job.hosts[number].app.load = load  # type: ignore[method-assign]
        node = job.hosts[number]
        obey = node._execute

        def late(envelope: Envelope) -> None:
            if isinstance(envelope.request, LoadShards):
                job.later(3.0, lambda: obey(envelope))
            else:
                obey(envelope)

        node._execute = late  # type: ignore[method-assign]
        out.append(number)

    job.later(1.5, join)
    finish(job)
    assert not [line for line in job.log if "rolled back" in line]
    events = [line for line in job.log if f"'number': {out[0]}" in line and "'event'" in line and "no disk" in line]
    assert any("'event': 'warned'" in line for line in events)
    assert not any("'event': 'failed'" in line for line in events)


@pytest.mark.parametrize(("tiers", "bad"), [("rttt", 2), ("rr", 1)])
def test_a_first_host_that_cannot_load_fails_alone(tiers: str, bad: int) -> None:
    job = SimulatedJob(2, tiers)
    spoil(job, bad)
    finish(job)
    assert failed(job) == [f"h{bad}"]


def test_a_shard_that_nobody_can_load_ends_the_job() -> None:
    """With the second host that tries, however many there are."""
    job = SimulatedJob(1, "rrtttttt", shards=13)
    for host in job.hosts:
        spoil(job, host, lambda shard: shard == 11)
    job.run()
    assert job.ended is not None
    code, reason = job.ended
    assert code == 1
    assert "load(11) raised FileNotFoundError" in reason
    assert "could not load it either" in reason
    assert len(failed(job)) == 1


@pytest.mark.parametrize(("tiers", "expected"), [("r", "no other host"), ("rtt", "no other reliable host")])
def test_the_only_reliable_host_must_be_able_to_load(tiers: str, expected: str) -> None:
    job = SimulatedJob(1, tiers)
    spoil(job, 0)
    job.run()
    assert job.ended is not None
    assert job.ended[0] == 1
    assert "h0: load(" in job.ended[1]
    assert expected in job.ended[1]


@pytest.mark.parametrize(("tiers", "bad"), [("rttt", 2), ("rttt", 4), ("r", 0)])
def test_a_host_whose_server_cannot_listen_fails_alone(tiers: str, bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """First or newcomer; a job that cannot be without it says why."""
    begin = SimulatedHost.begin

    def begun(host: SimulatedHost, request: Begin) -> Begun:
        if host.address == f"{bad}:1":
            raise PlinkError("[Errno 99] Cannot assign requested address")
        return begin(host, request)

    monkeypatch.setattr(SimulatedHost, "begin", begun)
    job = SimulatedJob(1, tiers, clocks=60)
    if bad == len(tiers):
        job.later(2.0, lambda: job.join("t", True))
    if tiers != "r":
        finish(job)
        assert failed(job) == [f"h{bad}"]
    else:
        job.run()
        assert job.ended is not None
        assert job.ended[1].startswith(
            "h0: [Errno 99] Cannot assign requested address; the last reliable host was lost"
        )


AT = re.compile("died (one after another )?while clock 1[345] was worked on")  # of the last the job may not have heard


class Deadly(SimulatedJob):
    """Who works on the last shard, which is on a transient host at first, at a certain clock ends its own process."""

    deadly = 15
    reason = f"{ENDED} 7"

    def _host(self, tier: str) -> Member:
        member = super()._host(tier)

        def begun(worker: int, clock: int, generation: int, shards: tuple[int, ...], own: bool) -> None:
            if clock == self.deadly and self.shards - 1 in shards:
                self.later(0.01, lambda: self.kill(member.number, self.reason))

        self.hosts[member.number].begun = begun
        return member


@pytest.mark.parametrize(("seed", "tiers"), [(0, "rrtttttt"), (3, "rtttttttt")])
def test_a_program_that_ends_its_process_takes_few_hosts_with_it(seed: int, tiers: str) -> None:
    job = Deadly(seed, tiers)
    job.run()
    assert job.ended is not None
    code, reason = job.ended
    assert code == 1
    assert AT.search(reason), reason
    assert "exit code 7): the program may end its own process, or run out of memory" in reason
    assert len(failed(job)) <= 5  # of some the job may not have been heard to reach that clock


def test_a_program_that_ends_its_process_ends_a_job_with_checkpoints_too(tmp_path: Path) -> None:
    """Which would go back to one and on to that clock for ever."""
    job = Deadly(1, "rt", settings={"checkpoints": str(tmp_path), "checkpoint_every_s": 0.0})
    job.run()
    assert job.ended is not None
    assert job.ended[0] == 1
    assert AT.search(job.ended[1]), job.ended[1]


def test_a_worker_that_hangs_is_named() -> None:
    """In the notes, once, and in the status; then the job goes on."""
    job = SimulatedJob(1, "rttt", shards=8)
    host, usual = job.hosts[2], job.hosts[2].work_s
    seen: list[object] = []

    def look() -> None:
        assert job._controller is not None
        seen.append(status(job._controller.state, job.now)["waits"])

    def begun(worker: int, clock: int, generation: int, shards: tuple[int, ...], own: bool) -> None:
        host.work_s = (25.0, 25.0) if clock == 15 else usual
        if clock == 15:
            job.later(5.0, look)
            job.later(15.0, look)

    host.begun = begun
    finish(job)
    (note,) = (line for line in job.log if " waits for " in line)
    assert "note clock 15 waits for h2 since 10 s" in note
    assert seen[0] is None
    assert isinstance(seen[-1], dict)
    assert (seen[-1]["clock"], seen[-1]["hosts"]) == (15, ["h2"])


def test_usage_text_is_not_reported_as_the_error() -> None:
    assert last_word(["usage: app.py", "  --work WORK"], f"{ENDED} 0").startswith("the program ended of its own accord")
    assert last_word(["usage: app.py", "app.py: error: no such thing"], f"{ENDED} 2") == "no such thing"

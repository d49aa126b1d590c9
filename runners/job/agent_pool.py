"""Pool of the agents of one job: sends to all, gathers their answers, and passes on what ranks print meanwhile."""

from collections.abc import Callable, Sequence
from typing import Any

from plink.errors import HostError, PlinkError
from plink.model.hosts import Hosts
from plink.transport.fleet import AgentMessage, Fleet
from runners.job.job import Job
from runners.job.output import RankOutput, Sink

_ANSWER_TIMEOUT_S = 30.0
_MAX_NAMED_HOSTS = 4


class AgentPool:
    """Agents on the hosts of a job.

    :param hosts: in rank order.
    :param on_rank_line: gets every line of rank 0 (:mod:`runners.job.rank_channel`), returns the answers.
    """

    def __init__(
        self,
        fleet: Fleet,
        hosts: Hosts,
        job: Job,
        sink: Sink,
        clock: Callable[[], float],
        on_rank_line: Callable[[str], list[str]] | None = None,
    ) -> None:
        self.fleet, self.hosts, self.job, self.clock = fleet, hosts, job, clock
        self.on_rank_line = on_rank_line
        self._rank_count = sum(host.slots for host in hosts) + len(job.hubs)
        self.output = RankOutput(sink)

    def each(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return one message of a type from each of these hosts, by host.

        :raises HostError: when an agent is lost meanwhile, or fails.
        :raises PlinkError: when answers do not come in time.
        """
        answers: dict[str, dict[str, Any]] = {}
        expected, deadline = set(names), self.clock() + _ANSWER_TIMEOUT_S
        while len(answers) < len(names):
            try:
                name, body = self.next_of((kind,), deadline - self.clock())
            except TimeoutError:
                raise _missing_answers(kind, list(answers), len(names), _ANSWER_TIMEOUT_S, names) from None
            if name in expected:
                answers.setdefault(name, body)
        return answers

    def rank_reports(self, timeout_s: float = _ANSWER_TIMEOUT_S) -> dict[int, tuple[str, dict[str, Any]]]:
        """Return by rank the host whose agent sent its report, and the report.

        :raises HostError: as :meth:`each`.
        :raises PlinkError: as :meth:`each`, and for ranks that the job does not have.
        """
        reports: list[tuple[str, dict[str, Any]]] = []
        deadline = self.clock() + timeout_s
        while len(reports) < self._rank_count:
            try:
                reports.append(self.next_of(("rank_report",), deadline - self.clock()))
            except TimeoutError:
                hosts = [host for host, _ in reports]
                raise _missing_answers("rank_report", hosts, self._rank_count, timeout_s, self.hosts.names) from None
        by_rank = {report["rank"]: (name, report) for name, report in reports}
        if by_rank.keys() != set(range(self._rank_count)):
            shown = ", ".join(f"{report['rank']} on {name}" for name, report in reports[:8])
            raise PlinkError(f"ranks started that are not of this job ({shown}); nothing was run")
        return by_rank

    def next_of(self, kinds: tuple[str, ...], timeout_s: float) -> tuple[str, dict[str, Any]]:
        """Return the next message of one of these types, and its host.

        :raises HostError: when an agent is lost, fails, or a rank of its ends before the job has begun.
        :raises TimeoutError: when none comes in time.
        """
        deadline = self.clock() + timeout_s
        while True:
            message = self.fleet.receive(deadline - self.clock())
            if message is None:
                raise TimeoutError(f"no answer within {timeout_s:.0f} s")
            if message.error is not None:
                raise message.error
            assert message.body is not None
            if message.body["type"] in kinds:
                return message.host, message.body
            if message.body["type"] == "failed":
                raise HostError(message.host, message.body["error"])
            for rank, code in self.handle(message):
                last = "".join(f"; its last line: {line}" for line in self.output.last_lines(rank)[-1:])
                raise HostError(message.host, f"rank {rank} ended before the job began, with exit code {code}{last}")

    def handle(self, message: AgentMessage) -> list[tuple[int, int]]:
        """Show output and answer lines of rank 0; return (rank, exit code) of a rank that ended.

        Ignores messages about ranks that the job does not have.
        """
        body = message.body or {}
        kind = body.get("type")
        if kind in ("output", "exited") and body["rank"] is not None and not 0 <= body["rank"] < self._rank_count:
            return []
        if kind == "line" and self.on_rank_line is not None:
            for text in self.on_rank_line(body["text"]):
                self.fleet.send(message.host, method="line", text=text)
        if kind == "output":
            self.output.add(body["rank"], body["stream"], body["text"])
        return [(body["rank"], body["code"])] if kind == "exited" else []


def _missing_answers(
    kind: str, answered: Sequence[str], count: int, timeout_s: float, names: Sequence[str]
) -> PlinkError:
    missing = [name for name in names if name not in set(answered)]
    more = " ..." if len(missing) > _MAX_NAMED_HOSTS else ""
    return PlinkError(
        f"{count - len(answered)} of {count} answers ({kind}) did not come within {timeout_s:.0f} s"
        + (f" (from {', '.join(missing[:_MAX_NAMED_HOSTS])}{more})" if missing else "")
    )

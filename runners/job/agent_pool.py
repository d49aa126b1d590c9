"""The agents of one job: asked together, their answers gathered, what ranks print passed on meanwhile."""

from collections.abc import Callable, Sequence
from typing import Any

from plink.errors import HostError, PlinkError
from plink.model.hosts import Hosts
from plink.remote.fleet import Fleet, Message
from runners.job.job import Job
from runners.job.output import Output, Sink

_ANSWER_S = 30.0


class AgentPool:
    """Agents on the hosts of a job, which stand in rank order."""

    def __init__(
        self,
        fleet: Fleet,
        hosts: Hosts,
        job: Job,
        sink: Sink,
        clock: Callable[[], float],
        talk: Callable[[str], list[str]] | None = None,
    ) -> None:
        """:param talk: gets every line of rank 0's (:mod:`runners.job.rank_channel`), returns those that answer it."""
        self.fleet, self.hosts, self.job, self.clock = fleet, hosts, job, clock
        self.talk = talk
        self._count = sum(host.slots for host in hosts)
        self.output = Output(sink)

    def gather(self, kind: str, count: int, answer_s: float = _ANSWER_S) -> list[tuple[str, dict[str, Any]]]:
        """``count`` messages of one kind.

        :raises HostError: when an agent goes meanwhile, or says that it failed.
        :raises PlinkError: when answers do not come in time.
        """
        found: list[tuple[str, dict[str, Any]]] = []
        deadline = self.clock() + answer_s
        while len(found) < count:
            try:
                found += self.gather_any((kind,), deadline - self.clock())
            except TimeoutError:
                raise self._too_few(kind, found, count, answer_s, self.hosts.names) from None
        return found

    def each(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """One message of a kind of each of these hosts, by host.

        :raises HostError: as :meth:`gather`. :raises PlinkError: as :meth:`gather`.
        """
        found: dict[str, dict[str, Any]] = {}
        wanted, deadline = set(names), self.clock() + _ANSWER_S
        while len(found) < len(names):
            try:
                ((name, body),) = self.gather_any((kind,), deadline - self.clock())
            except TimeoutError:
                raise self._too_few(kind, list(found.items()), len(names), _ANSWER_S, names) from None
            if name in wanted:
                found.setdefault(name, body)
        return found

    def ranks(self, answer_s: float = _ANSWER_S) -> dict[int, tuple[str, dict[str, Any]]]:
        """What the ranks of the job report of themselves, with the host whose agent passed it on, by rank.

        :raises HostError: as :meth:`gather`.
        :raises PlinkError: as :meth:`gather`, and where others came than there are to be.
        """
        reported = self.gather("reported", self._count, answer_s)
        found = {report["rank"]: (name, report) for name, report in reported}
        if found.keys() != set(range(self._count)):
            said = ", ".join(f"{report['rank']} on {name}" for name, report in reported[:8])
            raise PlinkError(f"ranks came that were not asked for ({said}); nothing was run")
        return found

    @staticmethod
    def _too_few(
        kind: str, found: list[tuple[str, Any]], count: int, answer_s: float, names: Sequence[str]
    ) -> PlinkError:  # fmt: skip
        silent = [name for name in names if name not in {host for host, _ in found}]
        return PlinkError(
            f"{count - len(found)} of {count} answers ({kind}) did not come within {answer_s:.0f} s"
            + (f" (from {', '.join(silent[:4])}{' ...' if len(silent) > 4 else ''})" if silent else "")
        )

    def gather_any(self, kinds: tuple[str, ...], answer_s: float) -> list[tuple[str, dict[str, Any]]]:
        """The next message of one of these kinds, as a list of one.

        :raises HostError: when an agent goes, says that it failed, or loses a rank before the job has begun.
        :raises TimeoutError: when none comes in time.
        """
        deadline = self.clock() + answer_s
        while True:
            message = self.fleet.receive(deadline - self.clock())
            if message is None:
                raise TimeoutError(f"no answer within {answer_s:.0f} s")
            if message.error is not None:
                raise message.error
            assert message.body is not None
            if message.body["is"] in kinds:
                return [(message.host, message.body)]
            if message.body["is"] == "failed":
                raise HostError(message.host, message.body["why"])
            for rank, code in self.note(message):
                said = "".join(f"; it said: {line}" for line in self.output.last_lines(rank)[-1:])
                raise HostError(message.host, f"rank {rank} ended before the job began, with exit code {code}{said}")

    def note(self, message: Message) -> list[tuple[int, int]]:
        """Show output, and answer what rank 0 says; returns (rank, exit code) of a rank that ended. What is said of
        ranks that the job does not have is passed over."""
        body = message.body or {}
        of_a_rank = body.get("is") in ("output", "exited") and body["rank"] is not None
        if of_a_rank and not 0 <= body["rank"] < self._count:
            return []
        if body.get("is") == "line" and self.talk is not None:
            for text in self.talk(body["text"]):
                self.fleet.send(message.host, do="line", text=text)
        if body.get("is") == "output":
            self.output.add(body["rank"], body["stream"], body["text"])
        return [(body["rank"], body["code"])] if body.get("is") == "exited" else []

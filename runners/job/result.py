"""How a job ended."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.errors import PlinkError
from plink.model.run import RunFailure, RunRecord, VerifiedPlacement
from runners.job.placement import RankLocation, process_name

TIMED_OUT = 124  # as timeout(1) has it
# "torch.distributed.DistStoreError: ...", as the traceback module writes it; PyTorch puts "[rank3]: " before it.
_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<text>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception): .*\S)")


@dataclass(frozen=True)
class Failure:
    """The rank that failed first.

    :param rank: None, as ``host``: the launcher failed, and does not say which rank did.
    :param cause: root cause, where another one is known. :param hub: number of the hub process that failed, None for a
        rank.
    """

    rank: int | None
    host: str | None
    code: int
    last_lines: tuple[str, ...]
    cause: str | None = None
    hub: int | None = None

    @property
    def process(self) -> str:
        """Return what messages call the rank, or the hub process that failed."""
        return process_name(self.rank or 0, self.hub)

    @property
    def exception(self) -> str | None:
        """Return the last line of the last Python traceback, without a rank before it; None if there is none."""
        texts = [match["text"] for line in self.last_lines if (match := _EXCEPTION.match(line))]
        return texts[-1] if texts else None


@dataclass(frozen=True)
class RunResult:
    """How a job ended.

    :param locations: of all ranks, as they reported.
    :param seconds: from the opening of the start barrier to the last exit.
    :param timed_out: whether it was ended because it took longer than it may.
    :param exits: exit codes of the ranks that ended by themselves, by rank, where the runner knows them.
    """

    id: str
    exit_code: int
    locations: tuple[RankLocation, ...]
    seconds: float
    failure: Failure | None
    timed_out: bool = False
    exits: Mapping[int, int] = field(default_factory=dict)

    def record(self) -> RunRecord:
        """Return the document that is printed, and kept."""
        failure = self.failure
        return RunRecord(
            id=self.id,
            exit_code=self.exit_code,
            seconds=round(self.seconds, 3),
            proof=VerifiedPlacement(
                held=not any(location.problem for location in self.locations),
                ranks=tuple(location.entry() for location in self.locations),
            ),
            timed_out=self.timed_out,
            exits={str(rank): code for rank, code in sorted(self.exits.items())},
            failure=None
            if failure is None
            else RunFailure(
                rank=failure.rank,
                host=failure.host,
                code=failure.code,
                last_lines=failure.last_lines,
                cause=failure.cause,
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the document ``plink.run/1``."""
        return self.record().to_json()


def new_id() -> str:
    """Return a new name for a run."""
    return secrets.token_hex(4)


class PlacementError(PlinkError):
    """Ranks are not on the hosts that they were assigned to.

    :param consequence: what happened to the job; usually no program ran.
    :ivar result: the run that was stopped.
    """

    def __init__(self, locations: list[RankLocation], consequence: str = "nothing was run") -> None:
        misplaced = [location for location in locations if location.problem]
        first = misplaced[0]
        super().__init__(
            f"wrong placement: {len(misplaced)} of {len(locations)} ranks are not on their hosts "
            f"({first.process}, assigned to {first.host}, is on {first.hostname}: {first.problem}); {consequence}"
        )
        self.locations = locations
        self.result = RunResult(new_id(), self.exit_code, tuple(locations), 0.0, None)


def check_placement(locations: list[RankLocation]) -> list[RankLocation]:
    """Return the same locations if every rank is on its host.

    :raises PlacementError: when one is not.
    """
    if any(location.problem for location in locations):
        raise PlacementError(locations)
    return locations

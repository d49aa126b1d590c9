"""How a job ended."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plink.errors import PlinkError
from runners.job.placement import RankLocation

TIMED_OUT = 124  # as timeout(1) says it
# "torch.distributed.DistStoreError: ...", as the traceback module writes it; PyTorch puts "[rank3]: " before it.
_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?(?P<what>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception): .*\S)")


@dataclass(frozen=True)
class Failure:
    """The rank that failed first; rank and host None: the launcher that plink used, which does not tell of a rank.
    ``cause``: what else brought it about, where that is known."""

    rank: int | None
    host: str | None
    code: int
    last_lines: tuple[str, ...]
    cause: str | None = None

    @property
    def exception(self) -> str | None:
        """The line of the last Python traceback that says what went wrong, without the rank that torchrun-like tools
        put before it; None where ``last_lines`` has none."""
        said = [found["what"] for line in self.last_lines if (found := _EXCEPTION.match(line))]
        return said[-1] if said else None


@dataclass(frozen=True)
class RunResult:
    """How a job ended. ``proof``: every rank's report; ``seconds``: from the opening of the gate to the last exit;
    ``timed_out``: it was ended because it took longer than it may; ``exits``: the exit codes of the ranks that ended by
    themselves, by rank, where the runner learns of them."""

    id: str
    exit_code: int
    proof: tuple[RankLocation, ...]
    seconds: float
    failure: Failure | None
    timed_out: bool = False
    exits: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """``plink.run/1``."""
        failure = self.failure
        return {
            "schema": "plink.run/1",
            "id": self.id,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "proof": {
                "held": not any(location.wrong for location in self.proof),
                "ranks": [location.to_json() for location in self.proof],
            },
            "timed_out": self.timed_out,
            "exits": {str(rank): code for rank, code in sorted(self.exits.items())},
            "failure": None
            if failure is None
            else {
                "rank": failure.rank,
                "host": failure.host,
                "code": failure.code,
                "last_lines": list(failure.last_lines),
                "cause": failure.cause,
            },
        }


def new_id() -> str:
    """A name for a run."""
    return secrets.token_hex(4)


class PlacementError(PlinkError):
    """The ranks are not where they were asked to be. ``locations`` holds both lists, ``result`` is the run that was
    stopped, ``then`` says what became of the job; usually nothing of the user's ran."""

    def __init__(self, locations: list[RankLocation], then: str = "nothing was run") -> None:
        wrong = [location for location in locations if location.wrong]
        first = wrong[0]
        super().__init__(
            f"the order was not kept: {len(wrong)} of {len(locations)} ranks are not where they were asked to be "
            f"(rank {first.rank}, asked for {first.host}, is on {first.hostname}: {first.wrong}); {then}"
        )
        self.locations = locations
        self.result = RunResult(new_id(), self.exit_code, tuple(locations), 0.0, None)


def kept(locations: list[RankLocation]) -> list[RankLocation]:
    """The same locations, where each rank is where it was asked to be.

    :raises PlacementError: when one is not.
    """
    if any(location.wrong for location in locations):
        raise PlacementError(locations)
    return locations

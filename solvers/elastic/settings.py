"""Settings of an elastic job, as its controller gets them."""

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from plink.model.consistency import parse_rule
from plink.model.elastic.requests import Begin
from solvers.elastic.member import Member
from solvers.elastic.placement.stages import Thresholds


class Settings(Struct, frozen=True):
    """Settings of one job.

    :param keys: of the run, base64.
    :param partitions: of the parameters. ``shards``: of the input data. ``shapes``: of the tables, the rows of each and
        the bytes of a row.
    :param started: when the job was, by ``time.time``. ``began``: the same by this machine's monotonic clock.
    :param rule: of consistency, as :func:`plink.model.consistency.parse_rule` takes it.
    :param shares: of the input data: by ``slots``, or by measured ``speed``.
    :param rebalance: workers that are ahead help those that are behind.
    :param divergence: of parameters from replicas, as :func:`plink.model.divergence.parse_divergence` takes it.
    :param active, backup_only: transient hosts to a reliable one, over which stage 2 and 3 begin. ``measured``: they
        are set anew from the traffic.
    :param host_rate: bytes a second that a host carries in either direction, where that is known.
    :param link_rates: the same of single hosts, by name, as far as the network is known.
    :param silence_s: after which a host is as good as gone.
    :param notice_s: what a SIGTERM on a host means. ``notices``: the metadata service that its node asks.
    :param checkpoints: a folder that all reliable hosts share; empty for none. ``restore``: of the job to go on from.
    :param optimisers: whether tables have some.
    """

    keys: str
    partitions: int
    shards: int
    shapes: Sequence[tuple[int, int]]
    started: float
    began: float
    rule: str = "bsp"
    shares: str = "slots"
    rebalance: bool = False
    active: float = 1.0
    backup_only: float = 15.0
    measured: bool = False
    host_rate: float | None = None
    silence_s: float = 1.6
    notice_s: float = 30.0
    notices: str = ""
    checkpoints: str = ""
    checkpoint_every_s: float = 60.0
    restore: str = ""
    optimisers: bool = False
    divergence: str = ""
    link_rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def apart(self) -> int:
        """Return the most clocks that a worker may be ahead of the slowest."""
        return parse_rule(self.rule).apart

    @property
    def job(self) -> str:
        """Return an identifier of the job: a hash of its keys, which says nothing of them."""
        return hashlib.sha256(self.keys.encode()).hexdigest()[:16]

    @property
    def thresholds(self) -> Thresholds:
        """Return the thresholds as the placement knows them."""
        return Thresholds(self.active, self.backup_only)

    @property
    def partition_bytes(self) -> tuple[float, ...]:
        """Return the bytes of each partition.

        Rows are assigned as in ``plink.runtime.elastic.arrays.layout``: of a table with fewer rows than partitions, the
        last ones have none.
        """
        return tuple(
            float(sum(len(range(number, rows, self.partitions)) * size for rows, size in self.shapes))
            for number in range(self.partitions)
        )

    @property
    def rows(self) -> int:
        """Return the rows of all tables."""
        return sum(rows for rows, _ in self.shapes)

    @property
    def bytes(self) -> int:
        """Return the bytes of all tables."""
        return sum(rows * size for rows, size in self.shapes)

    def of(self, member: Member) -> Begin:
        """Return the request with which a node begins."""
        return Begin(
            number=member.number,
            address=member.at,
            keys=self.keys,
            partitions=self.partitions,
            rule=self.rule,
            started=self.started,
            notice_s=self.notice_s,
            notices=self.notices,
            checkpoints=self.checkpoints,
            restore=self.restore,
            job=self.job,
            reliable=member.reliable,
            rebalance=self.rebalance,
            divergence=self.divergence,
            link_bytes_s=self.link_rates.get(member.name, self.host_rate or 0.0),
        )

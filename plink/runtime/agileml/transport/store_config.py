"""What all servers and clients of one run's parameter store share."""

from dataclasses import dataclass

from plink.model.consistency import Rule, check_optimisers
from plink.model.divergence import DivergenceBound
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.transport.keys import RunKeys


@dataclass(frozen=True)
class StoreConfig:
    """Configuration that servers and clients share: the tables and their partitions, the keys that both ends of a
    connection prove, and the consistency rule, which only clients follow: a read says which state it needs. The
    ``divergence`` of partitions from their replicas is bounded by servers; None: by nobody."""

    layout: Layout
    keys: RunKeys
    rule: Rule
    divergence: DivergenceBound | None = None

    def __post_init__(self) -> None:
        check_optimisers(self.rule, self.layout.optimisers)

    @property
    def sees_ahead(self) -> bool:
        """Return whether servers serve all updates that arrived: all of the rule that they know."""
        return self.rule.sees_ahead

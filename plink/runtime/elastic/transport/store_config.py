"""What all servers and clients of one run's parameter store share."""

import math
from dataclasses import dataclass

from plink.model.consistency import Rule, check_optimisers
from plink.model.divergence import DivergenceBound
from plink.model.rules.ordered import Ordered
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.transport.keys import RunKeys


@dataclass(frozen=True)
class StoreConfig:
    """Configuration that servers and clients share: the tables and their partitions, the keys that both ends of a
    connection prove, and the consistency rule. Clients follow it: a read says which state it needs. Servers know how
    old an update may be, and bound the ``divergence`` of partitions from their replicas; None: nobody does."""

    layout: Layout
    keys: RunKeys
    rule: Rule
    divergence: DivergenceBound | None = None

    def __post_init__(self) -> None:
        check_optimisers(self.rule, self.layout.optimisers)

    @property
    def sees_ahead(self) -> bool:
        """Return whether servers serve all updates that arrived."""
        return self.rule.sees_ahead

    @property
    def arbitrated(self) -> bool:
        """Return whether workers ask partition 0's arbiter before they send an update."""
        return isinstance(self.rule, Ordered) and not self.rule.direct

    @property
    def max_delay(self) -> float | None:
        """Return how many updates servers may apply between a worker's read and its own update, infinity where nothing
        bounds that; None under rules whose workers do not read with every step what has arrived."""
        if isinstance(self.rule, Ordered):
            return self.rule.max_delay
        return math.inf if self.rule.steps and self.rule.sees_ahead else None

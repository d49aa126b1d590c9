"""What all servers and clients of one run's parameter store share."""

from dataclasses import dataclass

from plink.model.consistency import Rule
from plink.runtime.agileml.arrays.layout import Layout
from plink.runtime.agileml.transport.keys import RunKeys


@dataclass(frozen=True)
class StoreConfig:
    """The tables and their partitions, the keys that both ends of a connection prove, and the consistency rule, which
    clients alone go by: a read says which state it needs."""

    layout: Layout
    keys: RunKeys
    rule: Rule

    @property
    def sees_ahead(self) -> bool:
        """All of the rule that servers know: whether they serve all that arrived."""
        return self.rule.sees_ahead

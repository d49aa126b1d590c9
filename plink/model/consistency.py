"""Consistency rules of a parameter server: how far a worker may be ahead of the slowest one when it reads.

A worker at clock c has finished all clocks below c. The state of a partition has a clock K: all updates up to K of all
workers are in it. A rule says which K a read at c needs, and whether later updates may be seen.
"""

import importlib
import pkgutil
import re
from collections.abc import Collection
from dataclasses import dataclass

from plink.errors import UsageError

MAX_APART_CLOCKS = 30  # the objectives of 32 clocks are kept
_SSP = re.compile(r"ssp:(\d{1,9})", re.ASCII)


class Rule:
    """Consistency rule of a run, the same for all its servers and workers. A rule of its own overrides what differs; an
    attribute may override a property."""

    @property
    def apart(self) -> int:
        """Maximum number of clocks that a worker may be ahead of the slowest: by default no worker begins a clock
        before all have finished the one before."""
        return 0

    @property
    def steps(self) -> bool:
        """Whether a worker may send several updates a clock; by default one."""
        return False

    @property
    def sees_ahead(self) -> bool:
        """Whether reads are served from all that arrived, the default: newer state is better, as long as no worker
        waits for it. Otherwise from the state of the latest common clock."""
        return True

    def needs(self, clock: int) -> int:
        """Return the minimum clock of the state that a worker at ``clock`` must read before it continues; by default
        the clock before, less those that workers may be apart."""
        return clock - 1 - self.apart


@dataclass(frozen=True)
class BSP(Rule):
    """Bulk synchronous: a worker at clock c sees all updates up to c - 1 and none after, whoever is how far;
    one who takes over for a lost worker too, from the step back that partitions keep."""

    @property
    def sees_ahead(self) -> bool:
        """False: updates of the reader's own clock would depend on who is faster."""
        return False


@dataclass(frozen=True)
class SSP(Rule):
    """Stale synchronous (Ho et al., NIPS 2013; Harlap thesis, 2.2.1): a worker at clock c sees at least all updates up
    to ``c - staleness - 1``, its own of all clocks, and of others' later ones what has arrived.

    :raises UsageError: a staleness below 0 or above :data:`MAX_APART_CLOCKS`.
    """

    staleness: int

    def __post_init__(self) -> None:
        if not 0 <= self.staleness <= MAX_APART_CLOCKS:
            raise UsageError(f"ssp:{self.staleness}: choose a staleness of 0 to {MAX_APART_CLOCKS} clocks")

    @property
    def apart(self) -> int:
        """The staleness bound."""
        return self.staleness


def parse_rule(spec: str) -> Rule:
    """Return the rule that a user typed.

    :raises UsageError: for an unknown rule.
    """
    if spec == "bsp":
        return BSP()
    if match := _SSP.fullmatch(spec):
        return SSP(int(match[1]))
    rules = importlib.import_module("plink.model.rules")  # by name, for they import this module
    for module in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}."):
        extension: Rule | None = importlib.import_module(module.name).parse(spec)
        if extension is not None:
            return extension
    raise UsageError(
        f"rule {spec!r}: choose one of bsp, ssp:N, dssp:L:U, elastic-bsp:R, asp[:SECONDS], ordered:N[:SECONDS][:direct]"
    )


def check_rebalance(rule: Rule) -> None:
    """Check that workers may help each other under a rule.

    :raises UsageError: a clock has several steps, and nobody waits within one.
    """
    if rule.steps:
        raise UsageError(
            "--rebalance goes with --rule bsp, ssp:N and dssp:L:U: under this rule nobody waits within a clock"
        )


def check_optimisers(rule: Rule, tables: Collection[str]) -> None:
    """Check that servers may apply optimisers to these tables under a rule.

    :raises UsageError: workers would see gradients that are ahead of the state as if they were parameters.
    """
    if tables and rule.sees_ahead:
        raise UsageError(
            f"an optimiser (of table {', '.join(tables)}) takes the gradients of all workers at once, which under this "
            "rule are seen before they are complete: choose --rule bsp or elastic-bsp:1, or Sgd without momentum"
        )

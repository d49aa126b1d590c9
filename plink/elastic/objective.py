"""The objective that a program minimises."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Objective:
    """The objective over some items: its sum and their number (or weight).

    The objective of an iteration is the mean over all shards; less is better.
    """

    total: float
    weight: float

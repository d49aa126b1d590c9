"""Bounds of what is held, in cores and in money."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """``max_cores`` that work at once; ``chunk_cores`` of an allocation; ``max_hourly``: money per hour that all bids
    together may come to; ``budget``: money left; ``two_markets``: while one is held, another one (zone or type) that
    lowers the cost comes first, so that what evicts one leaves the other."""

    max_cores: float
    chunk_cores: float
    max_hourly: float = math.inf
    budget: float = math.inf
    two_markets: bool = False

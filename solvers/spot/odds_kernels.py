"""Compiled loops over price histories."""

from typing import Any

import numpy as np

from solvers.compilation import njit, njit_inner
from solvers.ordering.move_kernels import copy_into


@njit(cache=True)
def first_exceedances(times: Any, prices: Any, ends: Any, deltas: Any, limit: Any) -> Any:
    """Return when each start is evicted, shape (S, D): the first change after segment s, at most ``limit`` seconds
    after its end and before a hole, to a price above that of s by more than the delta; infinite where there is none.

    ``times``, ``prices``, ``ends``, shape (S,): where segments begin, what they cost, where they end; ``deltas``, shape
    (D,): increasing.
    """
    segments, count = len(times), len(deltas)
    result = np.full((segments, count), np.inf)
    for s in range(segments):
        place = 0
        following = s + 1
        while place < count and following < segments:
            if ends[following - 1] < times[following] or times[following] > ends[s] + limit:
                break
            while place < count and prices[following] > prices[s] + deltas[place]:
                result[s, place] = times[following]
                place += 1
            following += 1
    return result


@njit(cache=True)
def next_above(times: Any, prices: Any, start: Any, bid: Any) -> Any:
    """Return the first time after ``start`` at which the price is above ``bid``; infinite where it never is."""
    for place in range(np.searchsorted(times, start, side="right"), len(times)):
        if prices[place] > bid:
            return times[place]
    return np.inf


@njit(cache=True)
def odds_within(deltas: Any, table: Any, step_s: Any, delta: Any, seconds: Any) -> Any:
    """Return beta, and beta times the median time to eviction in seconds, for a bid of price + delta.

    ``table``, shape (2, D, T): beta and that product at steps of ``step_s`` seconds; linear between, and ends hold
    beyond them.
    """
    row = min(max(delta, 0.0), deltas[-1])
    high = min(max(1, np.searchsorted(deltas, row)), len(deltas) - 1)
    upper = (row - deltas[high - 1]) / (deltas[high] - deltas[high - 1])
    place = min(max(0.0, seconds / step_s), table.shape[2] - 1.0)
    column = min(int(place), table.shape[2] - 2)
    later = place - column
    pair = np.zeros(2)
    for k in range(2):
        low_row = table[k, high - 1, column] * (1 - later) + table[k, high - 1, column + 1] * later
        high_row = table[k, high, column] * (1 - later) + table[k, high, column + 1] * later
        pair[k] = low_row * (1 - upper) + high_row * upper
    return pair[0], pair[1]


@njit(cache=True)
def cost_per_work(held: Any, application: Any, pause_h: Any) -> Any:
    """Return the expected cost per unit of work of a footprint (Harlap thesis, eq. 4.4); infinite without work.

    ``held``, shape (4, n): expected cost, useful hours, probability to survive, cores; ``application``: as of
    :meth:`solvers.spot.scaling.Application.numbers`; ``pause_h``: hours lost to a change of the footprint.
    """
    survival = 1.0
    cores = 0.0
    cost = 0.0
    for i in range(held.shape[1]):
        cost += held[0, i]
        survival *= held[2, i]
        cores += held[3, i]
    lost = (1 - survival) * application[4] + pause_h
    hours = 0.0
    for i in range(held.shape[1]):
        hours += held[3, i] * max(0.0, held[1, i] - lost)
    work = hours * _efficiency(cores, application)
    return cost / work if work > 0 else np.inf


@njit_inner()
def _efficiency(cores: Any, application: Any) -> Any:
    """Return the share of linear scaling that is left with so many cores: b / (b + a n + c n^2)."""
    a, b, c = application[0], application[1], application[2]
    return b / (b + a * cores + c * cores * cores)


@njit(cache=True)
def costs_with(held: Any, application: Any, book: Any, market_of: Any, rows: Any) -> Any:
    """Return the cost per work of the footprint with each candidate added, shape (C,); infinite where it cannot be.

    ``book``, shape (4, C): of one instance in its first hour, the cost for a price of 1, useful hours, probability to
    survive, and how much is bid above the price; ``market_of``, shape (C,): rows of ``rows``; ``rows``, shape (M, 4):
    price, count, cores of an instance, highest bid. A count of 0 leaves a market out.
    """
    n = held.shape[1]
    added = np.empty((4, n + 1))
    for row in range(4):
        copy_into(held[row], added[row])
    result = np.full(book.shape[1], np.inf)
    for c in range(book.shape[1]):
        price, count, cores, max_bid = rows[market_of[c]]
        if count <= 0 or price + book[3, c] > max_bid:
            continue
        added[0, n] = book[0, c] * price * count
        added[1, n] = book[1, c]
        added[2, n] = book[2, c]
        added[3, n] = count * cores
        result[c] = cost_per_work(added, application, application[3])
    return result

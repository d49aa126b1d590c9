"""Orders of hypercube algorithms that keep groups together in the rounds of large messages, by the tiers alone.

In halving-doubling a rank exchanges half of the vector with rank xor 1, a quarter with rank xor 2, and so on; BCube has
digits instead of bits. So blocks of ``base ** k`` consecutive ranks exchange the large messages among themselves. Here
blocks are joined from smaller ones that share a group, of the innermost tier where that is possible. Whatever the
groups' links carry, few large messages use them. Which hosts and blocks remain over is random.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.intp]
_MIXED = -1

# Hosts, and their group in each tier: -1 where they have no group in common.
_Block = tuple[list[int], tuple[int, ...]]


def aligned_order(hosts: Sequence[int], tiers: Sequence[Labels], base: int, rng: np.random.Generator) -> list[int]:
    """Return the hosts in a random order in which as many blocks of ``base ** k`` as possible share a group.

    :param tiers: the group of each host, the innermost tier first. :param base: at least 2.
    """
    blocks: list[_Block] = [([int(host)], (*(int(group_of[host]) for group_of in tiers), 0)) for host in hosts]
    incomplete: list[int] = []  # what is over at the end has no block of its size
    while blocks:
        joined: list[_Block] = []
        for tier in range(len(tiers) + 1):  # the last one: any blocks
            of_group = defaultdict[int, list[_Block]](list)
            remaining: list[_Block] = []
            for block in _shuffled(blocks, rng):
                group = block[1][tier]
                (remaining if group == _MIXED else of_group[group]).append(block)
            for members in of_group.values():
                whole = len(members) // base * base
                joined += [_join(members[k : k + base]) for k in range(0, whole, base)]
                remaining += members[whole:]
            blocks = remaining
        incomplete = [host for members, _ in blocks for host in members] + incomplete
        blocks = joined
    return incomplete


def _shuffled(blocks: list[_Block], rng: np.random.Generator) -> list[_Block]:
    return [blocks[k] for k in rng.permutation(len(blocks)).tolist()]


def _join(blocks: list[_Block]) -> _Block:
    groups = zip(*(groups for _, groups in blocks), strict=True)
    common = tuple(shared[0] if len(set(shared)) == 1 else _MIXED for shared in groups)
    return [host for hosts, _ in blocks for host in hosts], common

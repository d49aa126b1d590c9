"""Interfaces of a BCube's hosts, as a probe finds them."""

import itertools
from typing import Any


def bcube_interfaces(base: int, levels: int) -> dict[str, Any]:
    """Return ``interfaces`` of a network file: host numbers are the digits, and packets go by way of the neighbour that
    shares the lowest differing digit."""
    n = base**levels
    digits = [[host // base**level % base for level in range(levels)] for host in range(n)]
    used, relays = ([[None] * n for _ in range(n)] for _ in range(2))
    for i, j in itertools.permutations(range(n), 2):
        differing = [level for level in range(levels) if digits[i][level] != digits[j][level]]
        used[i][j] = differing[0]
        if len(differing) > 1:
            relays[i][j] = i + (digits[j][differing[0]] - digits[i][differing[0]]) * base ** differing[0]
    switches = [
        [[first + digit * base**level, level] for digit in range(base)]
        for level in range(levels)
        for first in range(n)
        if digits[first][level] == 0
    ]
    return {"names": [[f"eth{k}" for k in range(levels)]] * n, "used": used, "relays": relays, "switches": switches}

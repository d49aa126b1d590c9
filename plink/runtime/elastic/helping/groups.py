"""Who may help whom: a group of helpers for each worker (Harlap thesis, 3.3.1).

One is on the worker's own host if another worker is there, the others on other hosts, as many as possible.
"""

import hashlib
from collections.abc import Mapping


def helper_groups(hosts: Mapping[int, int], size: int) -> dict[int, tuple[int, ...]]:
    """Return the helpers of each worker. Each pair has a score by its numbers alone (rendezvous hashing), so that
    everybody who knows the workers sees the same, and little changes when some join or leave.

    :param hosts: the host of each worker.
    """
    return {worker: _helpers(worker, hosts, size) for worker in sorted(hosts)}


def _helpers(worker: int, hosts: Mapping[int, int], size: int) -> tuple[int, ...]:
    ranked = sorted((other for other in hosts if other != worker), key=lambda other: _score(worker, other))
    here = [other for other in ranked if hosts[other] == hosts[worker]][:1] if size > 1 else []
    chosen: list[int] = list(here)
    used = {hosts[worker]}
    for other in ranked:  # each from a host of its own
        if len(chosen) < size and hosts[other] not in used:
            chosen.append(other)
            used.add(hosts[other])
    chosen += [other for other in ranked if other not in chosen][: size - len(chosen)]
    return tuple(chosen)


def _score(worker: int, other: int) -> bytes:
    return hashlib.sha256(f"{worker} {other}".encode()).digest()


def helpees(groups: Mapping[int, tuple[int, ...]], helper: int) -> tuple[int, ...]:
    """Return the workers whom one may help."""
    return tuple(worker for worker, helpers in groups.items() if helper in helpers)

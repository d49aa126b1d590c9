"""Finetune: masters moved from the rank that is to blame most, step by step, the more the longer it is the same rank
(PLink thesis, 4.2.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solvers.autotune.observed import Assignment, Observed, Vector

_MOST_MOVES = 1 << 16


@dataclass(frozen=True)
class Settings:
    """``beta`` and ``gamma``: what a rank's load and its time weigh in its blame; ``epsilon``: how many times the least
    blame the largest may be before masters are moved."""

    beta: float = 1.0
    gamma: float = 1.0
    epsilon: float = 1.05


@dataclass(frozen=True)
class Step:
    """Where a run of steps stands: the rank that was to blame last, and how many of its masters were moved then."""

    blamed: int | None = None
    moves: int = 1


@dataclass(frozen=True)
class Decision:
    """What a step decided. ``moved``: (chunk, from, to, ``global`` or ``local``) of each master; ``reason``: a line."""

    assignment: Assignment
    step: Step
    moved: tuple[tuple[int, int, int, str], ...]
    reason: str


def blame(observed: Observed, settings: Settings) -> Vector:
    """How far each rank holds the others up, shape (N,): ``beta * l + gamma * t``.

    ``t``, in units of its mean: the worst round trip plus what the rank sent over the bandwidths it had,
    ``max_j RTT(i, j) + sum_j D(i, j) / sum_j BW(i, j)``. ``l``: what it sent, from 0 (the least of all ranks) to 1 (the
    most); 0 for all where all sent the same within ``epsilon``.
    """
    load = observed.sent_bytes.sum(axis=1)
    rate = np.nansum(np.where(observed.sent_bytes > 0, observed.bytes_per_s, np.nan), axis=1)
    sending = np.divide(load, rate, out=np.zeros(len(load)), where=rate > 0)
    times = np.nan_to_num(np.where(observed.sent_bytes > 0, observed.rtt_s, 0.0)).max(axis=1) + sending
    spread = load.max() - load.min()
    # Scaled from 0 to 1, any difference would be a large one: loads within epsilon of each other are alike.
    shares = (load - load.min()) / spread if load.max() > settings.epsilon * load.min() else np.zeros(len(load))
    blamed: Vector = settings.beta * shares + settings.gamma * times / max(float(times.mean()), 1e-300)
    return blamed


def finetune(assignment: Assignment, observed: Observed, step: Step, settings: Settings | None = None) -> Decision:
    """One step: masters move from the rank with the most blame, a global one first, else a local one, to the one with
    the least; nothing moves where these two are within ``epsilon``.

    A global master may go to any rank; a local one only to a member of its group, so it goes to the least blamed there.
    Where several move they go round the less blamed ranks (the thesis names only the least blamed one). The same rank
    to blame again doubles the number of masters that move.
    """
    settings = settings or Settings()
    blamed = blame(observed, settings)
    least = float(blamed.min())
    # A rank that has no masters left is as slow as it is; the thesis goes on among the others (6.2.6).
    masters = np.isin(np.arange(len(blamed)), assignment.local_masters)
    worst = int(np.where(masters, blamed, -np.inf).argmax())
    if blamed[worst] <= settings.epsilon * least:
        return Decision(assignment, Step(), (), f"every rank's blame is within {settings.epsilon:g} of every other's")
    number = min(2 * step.moves, _MOST_MOVES) if step.blamed == worst else 1
    found, moved = assignment, []
    for turn in range(number):
        if (one := _move(found, worst, blamed, turn)) is None:
            break
        found, change = one
        moved.append(change)
    ratio = f"{blamed[worst] / least:.2f} times the least" if least > 0 else "others none"
    reason = f"rank {worst} is to blame most ({ratio}): {len(moved)} of its masters move"
    return Decision(found, Step(worst, number), tuple(moved), reason)


def _move(
    assignment: Assignment, worst: int, blamed: Vector, turn: int
) -> tuple[Assignment, tuple[int, int, int, str]] | None:
    """One master of that rank moved; None when it has none that could be."""
    own = next(g for g, line in enumerate(assignment.groups) if worst in line)
    local, global_group = assignment.local_masters.copy(), assignment.global_group.copy()
    if (chunks := np.flatnonzero(assignment.global_masters == worst)).size:
        chunk, to, kind = int(chunks[0]), _less_blamed(blamed, range(len(blamed)), worst, turn), "global"
        group = next(g for g, line in enumerate(assignment.groups) if to in line)
        local[chunk, group], global_group[chunk] = to, group
    else:
        chunks = np.flatnonzero(assignment.local_masters[:, own] == worst)
        if len(assignment.groups[own]) < 2 or not chunks.size:
            return None
        chunk, to, kind = int(chunks[0]), _less_blamed(blamed, assignment.groups[own], worst, turn), "local"
        local[chunk, own] = to
    return replace(assignment, local_masters=local, global_group=global_group), (chunk, worst, to, kind)


def _less_blamed(blamed: Vector, among: Sequence[int], but: int, turn: int) -> int:
    """The least blamed at first, and where several masters move in one step the next ones in turn, of those below the
    mean: all of them on one rank would make it the next to blame."""
    others = sorted((rank for rank in among if rank != but), key=lambda rank: float(blamed[rank]))
    below = [rank for rank in others if blamed[rank] <= blamed[others].mean()]
    return (below or others)[turn % len(below or others)]

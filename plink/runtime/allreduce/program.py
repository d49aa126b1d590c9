"""Compiled collective program of one rank for one vector.

It holds a schedule's transfers over cells, in an order free of deadlock.

The thesis's actions (PLink thesis, 4.2.2) for each cell: Fetch, ReceiveFrom, SendTo, Deliver. Dependencies within a
cell form a DAG; cells are independent, so local and global phases of different cells overlap. All ranks execute
receptions in one common order: the data of the first unfinished reception are in transit, so some rank can always
proceed. A send is issued right after what it depends on.

Where ranks exchange with others in each round (halving and doubling, BCube), a *gate* lets a segment into its next
round at a rank when all that the rank sends and receives of it in the rounds before is done, as libraries do, for flows
of two rounds that share a link delay the earlier one: 4 % at 8 MB, 1 to 2 % at 25 MB (docs/results/aggengine.md).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule, expanded
from plink.runtime.allreduce.segmentation import Segmentation

SEND, ADD, COPY = 0, 1, 2

Indices = npt.NDArray[np.int64]

# A segment enters the next round this many segments after it entered the one before.
_STAGGER = 2
# A send without dependencies is issued this many receptions before its position, rather than at the beginning.
_SEND_AHEAD = 64
_GATED = ("halving-doubling", "bcube")


@dataclass(frozen=True)
class ProgramStep:
    """One step.

    ``kind``: SEND, ADD (receive and add) or COPY (receive in place) the elements from ``start`` to ``stop``.

    ``after_sends``: the sends, by their index among the sends of this channel, that must have left before these
    elements are written, or sent through a gate. ``early``: whether a COPY may be posted as soon as the limits allow,
    since it cannot arrive too soon.
    """

    kind: int
    peer: int
    start: int
    stop: int
    after_sends: tuple[int, ...] = ()
    early: bool = True


@dataclass(frozen=True)
class Program:
    """Steps of each channel in order. Channels share no cell; each has its own connections."""

    ranks: int
    channels: tuple[tuple[ProgramStep, ...], ...]


@dataclass(frozen=True)
class _Messages:
    """Messages of one rank in one channel, shape (M,) each.

    A message has its transfer, round and peer, whether it is a send, its first cell and number of cells, its
    position, and its segment.
    """

    transfer: Indices
    round: Indices
    peer: Indices
    is_send: npt.NDArray[np.bool_]
    first: Indices
    count: Indices
    position: Indices
    segment: Indices

    def cells(self) -> tuple[Indices, Indices]:
        """Return every (message, cell), in the order of the messages."""
        row = np.repeat(np.arange(len(self.first)), self.count)
        begin = np.repeat(np.cumsum(self.count) - self.count, self.count)
        return row, self.first[row] + np.arange(len(row)) - begin


def compile_program(schedule: Schedule, rank: int, segmentation: Segmentation, channels: int = 1) -> Program:
    """Return the program of ``rank`` for a segmented vector; segments are assigned to channels round-robin."""
    last_added, exchanging, gated = _last_added(schedule), _exchanging(schedule), schedule.algo in _GATED
    return Program(
        schedule.ranks,
        tuple(
            _steps(schedule, messages, _order(messages, gated), segmentation, last_added, gated)
            for messages in (
                _messages(schedule, rank, segmentation, exchanging, np.arange(channel, segmentation.segments, channels))
                for channel in range(channels)
            )
        ),
    )


def _messages(
    schedule: Schedule, rank: int, segmentation: Segmentation, exchanging: set[int], segments: Indices
) -> _Messages:
    used = len(segmentation.chunks)
    moved, begin, length = _atoms(schedule, rank, segmentation, exchanging)
    segment = np.tile(segments, len(moved))
    transfer, place, count = (np.repeat(column, len(segments)) for column in (moved, begin, length))
    rounds = schedule.round[transfer].astype(np.int64)
    is_send = schedule.source[transfer] == rank
    peer = np.where(is_send, schedule.target[transfer], schedule.source[transfer]).astype(np.int64)
    # The key by which all ranks order receptions: segments enter a round _STAGGER segments after the one before; later
    # rounds (the segments that are nearly done) come first, then chunks. It is the same at both ends of a message, for
    # it depends on nothing else. Keys are even, to leave a place before each.
    pipeline_step = segment + _STAGGER * rounds
    position = 2 * ((pipeline_step * (schedule.rounds + 1) + schedule.rounds - rounds) * used + place)
    return _Messages(transfer, rounds, peer, is_send, segment * used + place, count, position, segment)


def _exchanging(schedule: Schedule) -> set[int]:
    """Return the rounds with transfers of several chunks in which some rank sends and receives the same chunk."""
    transfer, chunk = expanded(schedule)
    is_wide = np.bincount(schedule.round, schedule.count > 1)[schedule.round[transfer]] > 0
    transfer, chunk = transfer[is_wide], chunk[is_wide]
    rank_rounds = (schedule.round.astype(np.int64) * schedule.ranks + end for end in (schedule.source, schedule.target))
    sent, received = (cells[transfer] * schedule.chunks + chunk for cells in rank_rounds)
    return set(schedule.round[transfer[np.isin(sent, received)]].tolist())


def _atoms(
    schedule: Schedule, rank: int, segmentation: Segmentation, exchanging: set[int]
) -> tuple[Indices, Indices, Indices]:
    """Return the rank's transfers as (transfer, index of its first used chunk, number of chunks).

    Where ranks exchange chunks they are split into atoms: all transfers of such a round move either the same atom or
    disjoint ones. So what a rank sends in a round has the position of what it receives in its place, and precedes it.
    """
    begin = np.searchsorted(segmentation.chunks, schedule.first)
    end = np.searchsorted(segmentation.chunks, schedule.first + schedule.count)
    takes_part = ((schedule.source == rank) | (schedule.target == rank)) & (end > begin)
    atoms = [np.empty((0, 3), dtype=np.int64)]
    for number, round_rows in enumerate(schedule.round_slices()):
        own = np.flatnonzero(takes_part[round_rows]) + round_rows.start
        if not len(own):
            continue
        if number not in exchanging:
            atoms.append(np.stack([own, begin[own], end[own] - begin[own]], axis=1))
            continue
        edges = np.unique(np.concatenate([begin[round_rows], end[round_rows]]))
        low, high = np.searchsorted(edges, begin[own]), np.searchsorted(edges, end[own])
        parts = high - low
        atom = np.repeat(low - np.cumsum(parts) + parts, parts) + np.arange(parts.sum())
        atoms.append(np.stack([np.repeat(own, parts), edges[atom], edges[atom + 1] - edges[atom]], axis=1))
    transfer, place, count = np.concatenate(atoms).T
    return transfer, place, count


def _order(messages: _Messages, gated: bool) -> Indices:
    """Return the messages in the order of their steps: receptions at their positions, sends when they are issued."""
    issue_positions = np.where(messages.is_send, _issue_positions(messages, gated), messages.position)
    return np.lexsort((messages.transfer, messages.position, messages.is_send, issue_positions))


def _issue_positions(messages: _Messages, gated: bool) -> Indices:
    """Return the position at which each send is issued, always before its own.

    That is with the last reception of an earlier round in its cells; without one, ``_SEND_AHEAD`` receptions before its
    position; and never before another send to the same peer with a smaller position, as messages of a pair are
    unnumbered. ``gated``: nor before anything of an earlier round in its segment. What a gate waits for has smaller
    positions, so some rank can still proceed.
    """
    position, is_send = messages.position, messages.is_send
    issue_positions = position - 1
    if not is_send.all() and len(position):
        positions = np.sort(position[~is_send])
        reception_index = np.maximum(np.searchsorted(positions, position) - _SEND_AHEAD, 0)
        independent = np.minimum(positions[reception_index.clip(max=len(positions) - 1)], position) - 1
        row, cell = messages.cells()
        keys = cell * (int(messages.round.max()) + 2) + messages.round[row]
        received = np.flatnonzero(~is_send[row])
        received = received[np.lexsort((position[row[received]], keys[received]))]
        preceding = np.searchsorted(keys[received], keys) - 1  # the last reception with a smaller key
        latest = received[np.maximum(preceding, 0)]
        dependency = np.where((preceding >= 0) & (cell[latest] == cell), position[row[latest]], -1)
        last_dependency = np.maximum.reduceat(dependency, np.cumsum(messages.count) - messages.count)
        issue_positions = np.where(last_dependency >= 0, last_dependency, independent)
    if gated and len(position):
        table = np.full((int(messages.segment.max()) + 1, int(messages.round.max()) + 1), -1)
        np.maximum.at(table, (messages.segment, messages.round), position)
        before = np.maximum.accumulate(table, axis=1)[messages.segment, messages.round - 1]
        issue_positions = np.where(messages.round > 0, np.maximum(issue_positions, before), issue_positions)
    for other in np.unique(messages.peer[is_send]):
        to_peer = np.flatnonzero(is_send & (messages.peer == other))
        to_peer = to_peer[np.argsort(position[to_peer], kind="stable")]
        issue_positions[to_peer] = np.maximum.accumulate(issue_positions[to_peer])
    return issue_positions


def _last_added(schedule: Schedule) -> Indices:
    """Return the last round in which anything is added to each chunk on any rank, -1 for none, shape (C,)."""
    transfer, chunk = expanded(schedule)
    last_rounds = np.full(schedule.chunks, -1, dtype=np.int64)
    added = ~schedule.copies[transfer]
    np.maximum.at(last_rounds, chunk[added], schedule.round[transfer[added]].astype(np.int64))
    return last_rounds


def _steps(
    schedule: Schedule,
    messages: _Messages,
    order: Indices,
    segmentation: Segmentation,
    last_added: Indices,
    gated: bool,
) -> tuple[ProgramStep, ...]:
    """Return the steps in that order, with the sends that each write must wait for."""
    steps: list[ProgramStep] = []
    num_sends = 0
    unfinished_sends: dict[int, list[int]] = {}  # sends from a cell that no step waits for yet
    forwarded: dict[int, bool] = {}  # whether the last step on a cell was to send it, to be added elsewhere
    bounds, last_rounds = segmentation.bounds.tolist(), last_added[segmentation.chunks].tolist()
    unfinished_rounds: dict[int, list[tuple[int, int]]] = {}  # of each segment: sends that no gate waits for yet
    columns = (
        messages.transfer,
        messages.round,
        messages.peer,
        messages.is_send,
        messages.first,
        messages.count,
        messages.segment,
    )
    for m, round_, peer, is_send, first, count, segment in zip(
        *(column[order].tolist() for column in columns), strict=True
    ):
        cells = range(first, first + count)
        start, stop = bounds[first], bounds[first + count]
        copies = bool(schedule.copies[m])
        if is_send:
            sends = unfinished_rounds.setdefault(segment, [])
            before = tuple(k for k, earlier in sends if earlier < round_) if gated else ()
            unfinished_rounds[segment] = [send for send in sends if send[0] not in before] + [(num_sends, round_)]
            steps.append(ProgramStep(SEND, peer, start, stop, before))
            for cell in cells:
                unfinished_sends.setdefault(cell, []).append(num_sends)
                forwarded[cell] = not copies
            num_sends += 1
            continue
        complete = copies and all(
            round_ > last_rounds[cell % len(last_rounds)] and forwarded.get(cell, True) for cell in cells
        )
        blocking_sends = tuple(sorted({k for cell in cells for k in unfinished_sends.pop(cell, ())}))
        if not copies:
            steps.append(ProgramStep(ADD, peer, start, stop, blocking_sends))
        elif complete:
            # The sum contains everything that this rank forwarded, so it cannot arrive before that has left.
            steps.append(ProgramStep(COPY, peer, start, stop))
        else:
            steps.append(ProgramStep(COPY, peer, start, stop, blocking_sends, early=False))
        forwarded.update(dict.fromkeys(cells, False))
    return tuple(steps)

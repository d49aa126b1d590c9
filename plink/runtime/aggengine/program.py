"""What one rank does for one vector: a schedule's transfers, cut into cells, in an order in which no rank can block.

The thesis's actions (PLink thesis, 4.2.2) for each cell: Fetch, ReceiveFrom, SendTo, Deliver. What waits for what
within a cell is a DAG; cells do not know of each other, so local and global phases of different cells overlap. Every
rank executes the receptions in one order that all ranks share: the reception that comes first of all unfinished ones
has its data on the way, so somebody can always go on. A send is issued right after what it waits for.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule, expanded
from plink.runtime.aggengine.cut import Cut

SEND, ADD, COPY = 0, 1, 2

Indices = npt.NDArray[np.int64]

# A piece enters the next round this many pieces after it entered the one before.
_STAGGER = 2
# A send that waits for nothing is issued this many receptions before its turn, rather than all of them at once.
_AHEAD = 64


@dataclass(frozen=True)
class Action:
    """``what``: SEND, ADD (receive and add) or COPY (receive in place) the elements from ``start`` to ``stop``.

    ``after_sends``: the sends, by their places among the sends of this lane, that must have left before these elements
    may be written. ``early``: of a COPY, whether it may be received as soon as there is room, since it cannot arrive
    too soon.
    """

    what: int
    peer: int
    start: int
    stop: int
    after_sends: tuple[int, ...] = ()
    early: bool = True


@dataclass(frozen=True)
class Program:
    """The actions of each lane in their order. Lanes share no cell; each has connections of its own."""

    ranks: int
    lanes: tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class _Messages:
    """What one rank sends and receives in one lane, a row a message, shape (M,) each: its transfer, round, peer,
    whether it is sent, the first cell, how many cells, and its turn."""

    transfer: Indices
    round: Indices
    peer: Indices
    sent: npt.NDArray[np.bool_]
    first: Indices
    count: Indices
    turn: Indices

    def cells(self) -> tuple[Indices, Indices]:
        """Every (message, cell), in the order of the messages."""
        row = np.repeat(np.arange(len(self.first)), self.count)
        begin = np.repeat(np.cumsum(self.count) - self.count, self.count)
        return row, self.first[row] + np.arange(len(row)) - begin


def compile_program(schedule: Schedule, rank: int, cut: Cut, lanes: int = 1) -> Program:
    """The program of ``rank`` for a vector that is cut so; pieces are dealt to lanes in turn."""
    last_added = _last_added(schedule)
    return Program(
        schedule.ranks,
        tuple(
            _actions(schedule, messages, _order(messages), cut, last_added)
            for messages in (
                _messages(schedule, rank, cut, np.arange(lane, cut.pieces, lanes)) for lane in range(lanes)
            )
        ),
    )


def _messages(schedule: Schedule, rank: int, cut: Cut, pieces: Indices) -> _Messages:
    used = len(cut.chunks)
    moved, begin, length = _atoms(schedule, rank, cut)
    piece = np.tile(pieces, len(moved))
    transfer, place, count = (np.repeat(column, len(pieces)) for column in (moved, begin, length))
    rounds = schedule.round[transfer].astype(np.int64)
    sent = schedule.source[transfer] == rank
    peer = np.where(sent, schedule.target[transfer], schedule.source[transfer]).astype(np.int64)
    # The key by which all ranks order receptions: pieces enter a round so many pieces after the one before; later
    # rounds first (what is nearly done), then chunks. The same for both ends of a message, for it depends on nothing
    # else. Even, so that there is something before each.
    step = piece + _STAGGER * rounds
    turn = 2 * ((step * (schedule.rounds + 1) + schedule.rounds - rounds) * used + place)
    return _Messages(transfer, rounds, peer, sent, piece * used + place, count, turn)


def _atoms(schedule: Schedule, rank: int, cut: Cut) -> tuple[Indices, Indices, Indices]:
    """The rank's transfers as (transfer, place of its first chunk among those used, how many), cut so that what moves
    in one round is the same chunks or others: what a rank sends in a round has the turn then of what it receives in
    their place, and goes before."""
    begin = np.searchsorted(cut.chunks, schedule.first)
    end = np.searchsorted(cut.chunks, schedule.first + schedule.count)
    mine = ((schedule.source == rank) | (schedule.target == rank)) & (end > begin)
    found = [np.empty((0, 3), dtype=np.int64)]
    for here in schedule.round_slices():
        own = np.flatnonzero(mine[here]) + here.start
        if not len(own):
            continue
        edges = np.unique(np.concatenate([begin[here], end[here]]))
        low, high = np.searchsorted(edges, begin[own]), np.searchsorted(edges, end[own])
        number = high - low
        atom = np.repeat(low - np.cumsum(number) + number, number) + np.arange(number.sum())
        found.append(np.stack([np.repeat(own, number), edges[atom], edges[atom + 1] - edges[atom]], axis=1))
    transfer, place, count = np.concatenate(found).T
    return transfer, place, count


def _order(messages: _Messages) -> Indices:
    """The messages in the order of their actions: receptions at their turns, sends when they are issued."""
    issued = np.where(messages.sent, _issued(messages), messages.turn)
    return np.lexsort((messages.transfer, messages.turn, messages.sent, issued))


def _issued(messages: _Messages) -> Indices:
    """When each send is issued, always before its turn: with the last reception of an earlier round in its cells; where
    there is none, so many receptions before its turn; and never before another to the same peer whose turn is sooner,
    for messages of a pair carry no numbers."""
    turn, sent = messages.turn, messages.sent
    issued = turn - 1
    if not sent.all() and len(turn):
        turns = np.sort(turn[~sent])
        ahead = np.maximum(np.searchsorted(turns, turn) - _AHEAD, 0)
        free = np.minimum(turns[ahead.clip(max=len(turns) - 1)], turn) - 1
        row, cell = messages.cells()
        keys = cell * (int(messages.round.max()) + 2) + messages.round[row]
        received = np.flatnonzero(~sent[row])
        received = received[np.argsort(keys[received], kind="stable")]
        before = np.searchsorted(keys[received], keys) - 1  # the last reception with a smaller key
        last = received[np.maximum(before, 0)]
        waited = np.where((before >= 0) & (cell[last] == cell), turn[row[last]], -1)
        awaited = np.maximum.reduceat(waited, np.cumsum(messages.count) - messages.count)
        issued = np.where(awaited >= 0, awaited, free)
    for other in np.unique(messages.peer[sent]):
        line = np.flatnonzero(sent & (messages.peer == other))
        line = line[np.argsort(turn[line], kind="stable")]
        issued[line] = np.maximum.accumulate(issued[line])
    return issued


def _last_added(schedule: Schedule) -> Indices:
    """The last round in which something is added to each chunk anywhere, -1 for none, shape (C,)."""
    transfer, chunk = expanded(schedule)
    last = np.full(schedule.chunks, -1, dtype=np.int64)
    added = ~schedule.copies[transfer]
    np.maximum.at(last, chunk[added], schedule.round[transfer[added]].astype(np.int64))
    return last


def _actions(
    schedule: Schedule, messages: _Messages, order: Indices, cut: Cut, last_added: Indices
) -> tuple[Action, ...]:
    """The actions in that order, and what each write has to wait for."""
    actions: list[Action] = []
    sent = 0
    leaving: dict[int, list[int]] = {}  # sends from a cell that nobody has waited for yet
    passed_on: dict[int, bool] = {}  # whether the last that was done with a cell was to send it on, to be added
    bounds, last = cut.bounds.tolist(), last_added[cut.chunks].tolist()
    columns = (messages.transfer, messages.round, messages.peer, messages.sent, messages.first, messages.count)
    for m, when, peer, sending, first, count in zip(*(column[order].tolist() for column in columns), strict=True):
        cells = range(first, first + count)
        start, stop = bounds[first], bounds[first + count]
        copies = bool(schedule.copies[m])
        if sending:
            actions.append(Action(SEND, peer, start, stop))
            for cell in cells:
                leaving.setdefault(cell, []).append(sent)
                passed_on[cell] = not copies
            sent += 1
            continue
        complete = copies and all(when > last[cell % len(last)] and passed_on.get(cell, True) for cell in cells)
        before = tuple(sorted({k for cell in cells for k in leaving.pop(cell, ())}))
        if not copies:
            actions.append(Action(ADD, peer, start, stop, before))
        elif complete:
            # The sum holds all that this rank passed on, each once, so it cannot arrive before that has left.
            actions.append(Action(COPY, peer, start, stop))
        else:
            actions.append(Action(COPY, peer, start, stop, before, early=False))
        passed_on.update(dict.fromkeys(cells, False))
    return tuple(actions)

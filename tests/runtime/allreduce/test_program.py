"""What one rank does, and that no rank can block another for ever."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.schedule import Schedule, forward_and_reverse, make_schedule
from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce.program import ADD, COPY, SEND, ProgramStep, compile_program
from plink.runtime.allreduce.segmentation import segment
from plink.runtime.allreduce.subgroup_schedule import subgroup_schedule
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.hierarchical import two_level_reduce_scatter
from solvers.schedules.masters import Weights, equal_chunks
from solvers.schedules.verifier import verify
from tests.runtime.allreduce.schedules import schedules
from tests.solvers.spanning.networks import small, tree

Counts = tuple[int, ...]  # how often each rank's contribution is in a cell


def simulate(
    schedule: Schedule, elements: int, segmentation: SegmentationConfig, channels: int, eager: bool
) -> list[list[Counts]]:
    """Run all ranks' programs; returns what each rank ends with in each cell. Fails when nobody can go on.

    ``eager``: everything arrives the moment it is sent, into the cell itself where the program lets it. Otherwise a
    reception begins at its turn only, and until then what was sent is in the sender's cell, whatever becomes of it.
    """
    cells = segment(elements, 4, schedule.chunks, segmentation)
    own: list[Counts] = [tuple(int(r == rank) for r in range(schedule.ranks)) for rank in range(schedule.ranks)]
    places = {int(start): place for place, start in enumerate(cells.bounds)}
    state = [[mine] * (len(places) - 1) for mine in own]
    programs = [compile_program(schedule, rank, cells, channels) for rank in range(schedule.ranks)]
    for channel in range(channels):
        _Simulation(state, [program.channels[channel] for program in programs], places, eager).run()
    return state


class _Simulation:
    def __init__(
        self, state: list[list[Counts]], todo: list[tuple[ProgramStep, ...]], places: dict[int, int], eager: bool
    ) -> None:
        self.state, self.todo, self.places, self.eager = state, todo, places, eager
        self.place = [0] * len(todo)
        self.sent: list[list[tuple[int, int]]] = [[] for _ in todo]  # of each rank's sends: peer, number on that wire
        self.issued: dict[tuple[int, int], list[ProgramStep]] = {}  # what was sent over a wire
        self.taken: dict[tuple[int, int], int] = {}
        self.held: dict[int, ProgramStep] = {}  # the reception of each rank that is in a buffer and not added yet
        self.arrived: dict[tuple[int, int, int], list[Counts]] = {}
        self.expected = {
            (step.peer, rank): [a for a in steps if a.kind != SEND and a.peer == step.peer]
            for rank, steps in enumerate(todo)
            for step in steps
            if step.kind != SEND
        }

    def run(self) -> None:
        ranks = range(len(self.todo))
        while sum(self.advance(rank) for rank in ranks):
            pass
        assert all(p == len(steps) for p, steps in zip(self.place, self.todo, strict=True)), "nobody can go on"
        assert all(self.taken[wire] == len(cells) for wire, cells in self.issued.items()), "somebody is not heard"

    def advance(self, rank: int) -> bool:
        begin, held = self.place[rank], self.held.get(rank)
        while self.place[rank] < len(self.todo[rank]) and self.execute(rank, self.todo[rank][self.place[rank]]):
            self.place[rank] += 1
        return self.place[rank] > begin or self.held.get(rank) != held

    def execute(self, rank: int, step: ProgramStep) -> bool:
        """Do it, if it can be done now."""
        if step.kind == SEND:
            if not all(self.left(rank, k) for k in step.after_sends):
                return False
            wire = (rank, step.peer)
            line = self.issued.setdefault(wire, [])
            number = len(line)
            line.append(step)
            self.sent[rank].append((step.peer, number))
            wanted = self.expected[wire][number]
            same = (wanted.start, wanted.stop) == (step.start, step.stop)
            assert same, "messages of a pair come in another order than they are expected"
            if self.eager and (wanted.kind == ADD or wanted.early):
                self.arrived[(*wire, number)] = self.read(rank, step)
                if wanted.kind == COPY:
                    self.write(step.peer, step, self.read(rank, step))
            return True
        wire = (step.peer, rank)
        number = self.taken.get(wire, 0) - (self.held.get(rank) == step)
        if number >= len(self.issued.get(wire, [])):
            return False
        if step.kind == ADD and self.held.get(rank) != step:  # into a buffer, whatever the cell waits for
            self.arrived.setdefault((*wire, number), self.read(step.peer, step))
            self.taken[wire] = number + 1
            self.held[rank] = step
        if not all(self.left(rank, k) for k in step.after_sends):
            return False
        if step.kind == ADD:
            pairs = zip(self.read(rank, step), self.arrived[(*wire, number)], strict=True)
            self.write(rank, step, [tuple(a + b for a, b in zip(*pair, strict=True)) for pair in pairs])
            del self.held[rank]
        else:
            if (*wire, number) not in self.arrived:
                self.write(rank, step, self.read(step.peer, step))
            self.taken[wire] = number + 1
        return True

    def read(self, rank: int, step: ProgramStep) -> list[Counts]:
        """What stands at the rank where the action reads or writes."""
        return self.state[rank][self.places[step.start] : self.places[step.stop]]

    def write(self, rank: int, step: ProgramStep, values: list[Counts]) -> None:
        """The same, replaced."""
        self.state[rank][self.places[step.start] : self.places[step.stop]] = values

    def left(self, rank: int, k: int) -> bool:
        """Whether the rank's k-th send has left."""
        peer, number = self.sent[rank][k]
        return (rank, peer, number) in self.arrived or self.taken.get((rank, peer), 0) > number


@given(
    schedules(10), st.integers(1, 4000), st.integers(1, 3), st.integers(16, 2000), st.integers(1, 4), st.booleans()
)  # fmt: skip
def test_every_rank_ends_with_the_sum(
    schedule: Schedule, elements: int, channels: int, smallest: int, pieces: int, eager: bool
) -> None:
    """Whatever the schedule, whether messages arrive as soon or as late as they can."""
    state = simulate(
        schedule, elements, SegmentationConfig(smallest, 8 * smallest, pieces, 2 * smallest), channels, eager
    )
    assert all(cell == (1,) * schedule.ranks for line in state for cell in line)


@given(schedules(), st.data(), st.booleans())
def test_some_of_the_ranks_add_up_as_all_do(schedule: Schedule, data: st.DataObject, eager: bool) -> None:
    """Where a rank was left out, others take its chunks: several ways to a rank begin and end at different chunks."""
    members = data.draw(st.sets(st.integers(0, schedule.ranks - 1), min_size=2))
    group = subgroup_schedule(schedule, sorted(members))
    if group is not None:
        state = simulate(group, 8 * group.chunks, SegmentationConfig(4, 1 << 20, 2), 1, eager)
        assert all(cell == (1,) * group.ranks for line in state for cell in line)


@given(st.integers(2, 10), st.integers(0, 999), st.booleans(), st.booleans())
def test_hubs_add_up_where_all_chunks_are_in_use(ranks: int, seed: int, apart: bool, eager: bool) -> None:
    schedule = schedule_for("hubs", ranks, Options(tree=tree(*small(ranks, seed, apart))))
    state = simulate(schedule, 2 * schedule.chunks, SegmentationConfig(4, 64, 1), 1, eager)
    assert all(cell == (1,) * ranks for line in state for cell in line)


@given(st.data(), st.booleans())
def test_masters_of_any_share_add_up(data: st.DataObject, eager: bool) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    ends = np.cumsum(sizes).tolist()
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    weights = [
        np.array(data.draw(st.lists(st.floats(0.1, 9), min_size=n, max_size=n))) for n in (len(groups), ends[-1])
    ]
    masters = equal_chunks(groups, 64, Weights(*weights))
    schedule = forward_and_reverse(two_level_reduce_scatter(groups, *masters))
    state = simulate(schedule, 2 * 64, SegmentationConfig(4, 64, 1), 1, eager)
    assert all(cell == (1,) * ends[-1] for line in state for cell in line)


@pytest.mark.parametrize("eager", [False, True])
def test_a_chunk_is_sent_when_all_have_added_to_it(eager: bool) -> None:
    """Rank 2 gets chunks 0 and 1 in one message, chunk 1 in another one, and has both to send on."""
    rows = [(0, 0, 2, 0, 2, 0), (0, 1, 2, 1, 1, 0), (1, 1, 3, 0, 1, 0), (1, 2, 3, 0, 2, 0)]
    rows += [(2, 3, rank, 0, 2, 1) for rank in range(3)]
    for order in (rows, [rows[1], rows[0], *rows[2:]]):
        schedule = make_schedule("own", 4, 2, order)
        assert verify(schedule) == []
        state = simulate(schedule, 32, SegmentationConfig(4, 1 << 20, 1), 1, eager)
        assert all(cell == (1,) * 4 for line in state for cell in line)


@pytest.mark.parametrize(("givers", "eager"), [(3, False), (70, True)])
def test_round_sends_the_values_before_it(givers: int, eager: bool) -> None:
    """Rank 0 sends on the last chunk in the round in which rank 1 sends it all chunks, however many others do too."""
    ranks, last = givers + 3, givers + 1
    others = range(3, ranks)
    rows = [(0, 1, 0, 0, last + 1, 0), (0, 0, 2, last, 1, 0)]
    rows += [(0, rank, 0, rank - 2, 1, 0) for rank in others]
    rows += [(1, rank, 2, last, 1, 0) for rank in (1, *others)]
    rows += [(1, rank, 0, c, 1, 0) for c in range(last) for rank in (2, *others) if rank == 2 or c != rank - 2]
    rows += [(2, 0, rank, 0, last, 1) for rank in range(1, ranks)]
    rows += [(2, 2, rank, last, 1, 1) for rank in range(ranks) if rank != 2]
    schedule = make_schedule("own", ranks, last + 1, rows)
    assert verify(schedule) == []
    state = simulate(schedule, 16 * (last + 1), SegmentationConfig(4, 1 << 20, 1), 1, eager)
    assert all(cell == (1,) * ranks for line in state for cell in line)


def test_a_cell_is_not_overwritten_before_it_has_left() -> None:
    """Recursive doubling sends a cell and adds to it in the same round."""
    schedule = schedule_for("recursive-doubling", 2)
    (channel,) = compile_program(schedule, 0, segment(8, 4, schedule.chunks, SegmentationConfig()), 1).channels
    assert [(step.kind, step.after_sends) for step in channel] == [(SEND, ()), (ADD, (0,))]


def test_phases_of_different_cells_overlap() -> None:
    """A rank passes on its first sums long before it has received all that is to be added."""
    schedule = schedule_for("2lha", 4, Options(groups=[[0, 1], [2, 3]]))
    (channel,) = compile_program(
        schedule, 0, segment(1 << 20, 4, schedule.chunks, SegmentationConfig(1 << 10, 1 << 20, 8)), 1
    ).channels
    kinds = [step.kind for step in channel if step.kind != SEND]
    assert kinds.index(COPY) < len(kinds) / 4
    assert kinds[-1] == COPY
    assert ADD in kinds[3 * len(kinds) // 4 :]


def test_neighbouring_chunks_of_one_way_are_one_message() -> None:
    """Where nobody sends and receives the same chunk, others do not cut what rank 3 sends."""
    rows = [(0, 3, 0, 0, 4, 0), *((0, rank, 0, rank, 1, 0) for rank in (1, 2)), (0, 1, 2, 0, 1, 0)]
    schedule = make_schedule("own", 4, 4, rows, "reduce-scatter", owners=np.zeros(4, dtype=np.int32))
    cells = segment(16, 4, 4, SegmentationConfig(4, 1 << 20, 1))
    assert [len(compile_program(schedule, rank, cells).channels[0]) for rank in range(4)] == [3, 2, 2, 1]

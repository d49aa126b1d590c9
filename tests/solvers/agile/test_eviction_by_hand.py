"""What is saved of hosts that leave, and what is said of it, by hand."""

from solvers.agile.eviction import WAIT, Fate, Rescue, Threatened, rescue

BACKUP, HEIR = 90, 91


def one(partition: int, host: int, move: float, drain: float, heir: int | None = HEIR) -> Threatened:
    return Threatened(partition, host, BACKUP, heir, move, drain)


def test_reasons_tell_sizes_times_and_the_slower_of_two_lines() -> None:
    late = [one(0, 1, 9e6, 3e6)]
    for rates, slower in (({1: 1e6, BACKUP: 5e6}, "1"), ({1: 5e6, BACKUP: 1.5e6}, "1.5"), ({1: 2e6}, "2")):
        (found,) = rescue(late, {1: 0.5}, rates)
        assert found == Rescue(0, Fate.FAIL, None, f"3 MB, and 0.5 s at {slower} MB/s are not enough")
    assert rescue(late, {1: 0.0}, {})[0].reason == "3 MB, and the warning leaves no time"
    assert rescue(late, {1: 4.0}, {})[0] == Rescue(0, Fate.MOVE, HEIR, "4 s are enough to move it to a survivor")
    assert rescue(late, {1: 4.0}, {1: 1e6})[0] == Rescue(
        0, Fate.DRAIN, BACKUP, "4 s are not enough to move all of it: what the backup lacks goes there"
    )
    assert rescue([one(0, 1, 9e6, 3e6, heir=None)], {1: 4.0}, {})[0] == Rescue(
        0, Fate.DRAIN, BACKUP, "nobody survives to take it: what the backup lacks goes there"
    )


def fates(threatened: list[Threatened], deadlines: dict[int, float], rates: dict[int, float]) -> dict[int, Fate]:
    return {found.partition: found.fate for found in rescue(threatened, deadlines, rates)}


def test_a_line_is_full_at_its_rate_times_the_deadline_and_not_before() -> None:
    """Ten bytes in ten seconds, at one byte a second; a byte in a million more is late."""
    for line in (1, BACKUP):
        assert fates([one(0, 1, 99, 6), one(1, 1, 99, 4)], {1: 10.0}, {line: 1.0, HEIR: 0.1}) == {
            0: Fate.DRAIN, 1: Fate.DRAIN,
        }  # fmt: skip
        assert fates([one(0, 1, 99, 6), one(1, 1, 99, 4.00001)], {1: 10.0}, {line: 1.0, HEIR: 0.1}) == {
            0: Fate.FAIL, 1: Fate.DRAIN,
        }  # fmt: skip
    assert fates([one(0, 1, 10, 2)], {1: 10.0}, {HEIR: 1.0}) == {0: Fate.MOVE}
    assert fates([one(0, 1, 10.0001, 2)], {1: 10.0}, {HEIR: 1.0}) == {0: Fate.DRAIN}


def test_lines_in_and_out_are_two() -> None:
    """Host 2 gives up what it has and is the backup of host 1's partition: ten bytes each way in ten seconds."""
    threatened = [Threatened(0, 1, 2, None, 10, 10), Threatened(1, 2, BACKUP, None, 10, 10)]
    assert fates(threatened, {1: 10.0, 2: 10.0}, {2: 1.0}) == {0: Fate.DRAIN, 1: Fate.DRAIN}


def test_what_is_given_up_is_the_largest_on_the_line_that_is_late() -> None:
    """Host 1 can send ten; host 2's twenty are none of its business."""
    threatened = [one(0, 1, 99, 4), one(1, 1, 99, 5), one(2, 1, 99, 3), one(3, 2, 99, 20)]
    assert fates(threatened, {1: 10.0, 2: 10.0}, {1: 1.0, HEIR: 0.1}) == {
        0: Fate.DRAIN, 1: Fate.FAIL, 2: Fate.DRAIN, 3: Fate.DRAIN,
    }  # fmt: skip


def test_what_comes_later_may_not_make_late_what_was_in_time() -> None:
    """Into the backup, one byte a second: three by the third second, and four more by the seventh; not five."""
    threatened = [one(0, 1, 3, 3, heir=None), one(1, 2, 9, 4, heir=None), one(2, 2, 9, 1, heir=None)]
    assert fates(threatened, {1: 3.0, 2: 7.0}, {BACKUP: 1.0}) == {0: Fate.DRAIN, 1: Fate.FAIL, 2: Fate.DRAIN}
    assert fates(threatened[:2], {1: 3.0, 2: 7.0}, {BACKUP: 1.0}) == {0: Fate.DRAIN, 1: Fate.DRAIN}


def test_moves_are_chosen_by_how_little_more_they_send_than_drains() -> None:
    """Host 1 sends twelve in time, four of them as drains: eight are left, for one of seven more or of two and five."""
    threatened = [one(0, 1, 8, 1), one(1, 1, 4, 2), one(2, 1, 6, 1)]
    assert fates(threatened, {1: 12.0}, {1: 1.0}) == {0: Fate.DRAIN, 1: Fate.MOVE, 2: Fate.MOVE}
    assert fates(threatened, {1: 10.9}, {1: 1.0}) == {0: Fate.DRAIN, 1: Fate.MOVE, 2: Fate.DRAIN}


def test_one_that_nobody_can_take_or_is_large_does_not_keep_another_from_moving() -> None:
    """Host 1 sends 12.5 in time, 7.5 of them as drains: the large one needs one more, the small one 4.5."""
    threatened = [one(0, 1, 8, 7), one(1, 1, 5, 0.5)]
    assert fates(threatened, {1: 12.5}, {1: 1.0}) == {0: Fate.MOVE, 1: Fate.DRAIN}
    threatened = [one(0, 1, 8, 7, heir=None), one(1, 1, 5, 0.5)]
    assert fates(threatened, {1: 12.5}, {1: 1.0}) == {0: Fate.DRAIN, 1: Fate.MOVE}
    assert fates([one(0, 1, 8, 7)], {1: 0.5}, {}) == {0: Fate.MOVE}


def test_a_move_spares_the_backup_s_line() -> None:
    """Into the backup nothing fits but one; moved, the others need none of it."""
    assert fates([one(0, 1, 5, 5)], {1: 10.0}, {BACKUP: 0.1}) == {0: Fate.FAIL}
    assert fates([one(0, 1, 5, 1)], {1: 10.0}, {BACKUP: 0.1}) == {0: Fate.MOVE}


def test_the_order_is_by_deadline_size_and_number_and_given_up_ones_are_last_in_that_order() -> None:
    threatened = [
        one(5, 1, 4, 4), one(4, 1, 4, 4), one(3, 2, 9, 9), one(2, 2, 1, 1), one(1, 3, 8, 7), one(0, 3, 8, 6),
        one(6, 4, 1, 1),
    ]  # fmt: skip
    found = rescue(threatened, {1: 5.0, 2: 3.0, 3: 2.0, 4: -1.0}, {3: 1e-3})
    assert [(rescued.partition, rescued.fate) for rescued in found] == [
        (2, Fate.MOVE), (3, Fate.MOVE), (4, Fate.MOVE), (5, Fate.MOVE), (6, Fate.FAIL), (0, Fate.FAIL), (1, Fate.FAIL),
    ]  # fmt: skip


def test_a_quarter_of_a_warning_may_be_waited() -> None:
    assert WAIT == 0.25

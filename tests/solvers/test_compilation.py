"""The clock of searches stands while a function is compiled."""

import time

from solvers.compilation import njit, search_clock


def test_searches_do_not_pay_for_compiling() -> None:
    @njit()
    def total(numbers: tuple[int, ...]) -> int:
        added = 0
        for number in numbers:
            added += number
        return added

    began, began_searching = time.monotonic(), search_clock()
    assert total((1, 2, 3)) == 6
    passed, counted = time.monotonic() - began, search_clock() - began_searching
    assert passed > 0.02
    assert 0 <= counted < passed / 2
    waited = search_clock()
    time.sleep(0.05)
    assert search_clock() - waited >= 0.05

"""Who waited for whom, from what hosts computed and waited."""

import pytest

from plink.records.elastic_history import work_sentence, work_shares

_SLOW = {"a": (1.0, 1.0, 1), "b": (1.0, 1.0, 1), "c": (2.0, 0.0, 1)}


def test_waits_are_attributed_to_the_slow_host() -> None:
    shares = work_shares(_SLOW)
    assert shares is not None
    assert shares.slowest == ("c",)
    assert shares.waited == pytest.approx(1 / 3)
    assert shares.bsp == pytest.approx(1 / 3)
    assert shares.by_host == {"a": 0.5, "b": 0.5, "c": 0.0}
    sentence = work_sentence(_SLOW, 7)
    assert sentence is not None
    assert all(word in sentence for word in ("7", "33%", "c"))


def test_supersteps_report_steps_and_the_wait_under_bsp() -> None:
    sentence = work_sentence({"a": (2.0, 0.1, 6), "b": (2.0, 0.1, 6), "slow": (2.1, 0.0, 3)}, 41)
    assert sentence is not None
    assert all(word in sentence for word in ("41", "3 steps of slow", "up to 6", "waited 3%", "bsp would 35%"))


def test_equal_hosts_need_no_sentence() -> None:
    assert work_sentence({"a": (1.0, 0.0, 1), "b": (1.05, 0.0, 1)}, 3) is None


@pytest.mark.parametrize("work", [{}, {"a": (0.0, 0.0, 0)}])
def test_nothing_measured(work: dict[str, tuple[float, float, int]]) -> None:
    assert work_shares(work) is None
    assert work_sentence(work, 1) is None

"""Sizes, rates and durations: what is read, what is refused, what is shown."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.units import (
    format_bytes,
    format_duration,
    format_gbps,
    format_us,
    parse_bytes,
    parse_duration,
    parse_limit,
    parse_rate,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_bytes, "17", 17), (parse_bytes, "64KiB", 65_536), (parse_bytes, "1.5 GB", 1_500_000_000),
        (parse_bytes, "8m", 8_000_000), (parse_bytes, " 100 b ", 100), (parse_rate, "200mbit", 200_000_000),
        (parse_rate, "10Gbps", 10**10), (parse_duration, "90", 90), (parse_duration, "250ms", 0.25),
        (parse_duration, "1d", 86400),
    ],
)  # fmt: skip
def test_sizes_rates_and_durations(read: Callable[[str], float], text: str, value: float) -> None:
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (parse_duration, "2 days", "is not a duration; write it like 90s"),
        (parse_duration, "-1s", "is not a duration"),
        (parse_limit, "0.0ms", "leaves no time for anything; write it like 90s"),
        (parse_bytes, "", "write it like 100MB or 64KiB"),
        (parse_bytes, "-1", "write it like 100MB or 64KiB"),
        (parse_bytes, "1e3", "write it like 100MB or 64KiB"),
        (parse_bytes, "1,5MB", "write it like 100MB or 64KiB"),
        (parse_bytes, "nan", "write it like 100MB or 64KiB"),
        (parse_bytes, "9" * 400, "too large"),
        (parse_duration, "9" * 400, "too large"),
        (parse_rate, "9" * 400 + "bit", "too large"),
        (parse_rate, "0.1bit", "is not a rate"),
        (parse_rate, "200MB", "is not a rate"),
    ],
)
def test_what_is_none_is_refused_with_an_example(read: Callable[[str], float], text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(text)


@given(st.integers(0, 10**14))
def test_a_size_is_shown_to_three_digits(size: int) -> None:
    """What is shown is read back to the same size, within the rounding of three digits."""
    shown = format_bytes(size)
    assert "e" not in shown
    assert parse_bytes(shown) == pytest.approx(size, rel=0.005)


def test_sizes_and_durations_are_shown_for_a_person() -> None:
    assert [format_bytes(size) for size in (0, 999, 999_600, 8_000_000)] == ["0 B", "999 B", "1 MB", "8 MB"]
    shown = [format_duration(seconds) for seconds in (0, 89, 90, 7200, 9000, 400_000)]
    assert shown == ["0 s", "89 s", "2 min", "2 h", "2.5 h", "4.6 days"]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_gbps(1.034), "1.03 Gbit/s"), (format_gbps(0.186), "186 Mbit/s"), (format_gbps(0.9996), "1 Gbit/s"),
        (format_gbps(0.0003), "0.3 Mbit/s"), (format_gbps(0), "0 Gbit/s"), (format_gbps(3200), "3,200 Gbit/s"),
        (format_us(41.52), "41.5 us"), (format_us(999.7), "1 ms"), (format_us(1594), "1.59 ms"),
        (format_us(999_700), "1 s"), (format_us(2.493e6), "2.49 s"), (format_us(1.2e9), "1,200 s"),
    ],
)  # fmt: skip
def test_rates_and_times_are_shown_to_three_digits(shown: str, text: str) -> None:
    assert shown == text

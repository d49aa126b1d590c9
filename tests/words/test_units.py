"""Sizes, rates and durations: what is read, what is refused, what is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.units import format_bytes, format_duration, parse_bytes, parse_duration, parse_limit, parse_rate


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("17", 17), ("64KB", 64_000), ("64KiB", 65_536), ("1.5 GB", 1_500_000_000), ("8m", 8_000_000),
     ("1TiB", 1 << 40), (" 100 b ", 100)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "rate"), [("200mbit", 200_000_000), ("10Gbps", 10**10), ("1.5kbit", 1500), ("9bit", 9)]
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("250ms", 0.25), ("5m", 300), ("1h", 3600), ("1d", 86400), ("0", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["2 days", "soon", "-1s", ""])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write it like 90s"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0", "0s", "0.0ms"])
def test_a_limit_is_not_zero(text: str) -> None:
    assert parse_limit("250ms") == 0.25
    with pytest.raises(UsageError, match="leaves no time for anything; write it like 90s"):
        parse_limit(text)


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e3", "1,5MB", "5 parsecs", "0x10", "nan", "inf", "1 2", "1.MB"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write it like 100MB or 64KiB"):
        parse_bytes(text)


@pytest.mark.parametrize("parse", [parse_bytes, parse_rate, parse_duration])
def test_what_no_machine_could_hold_is_refused(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(UsageError, match="too large"):
        parse("9" * 400 + ("bit" if parse is parse_rate else ""))


@pytest.mark.parametrize("text", ["0mbit", "0.1bit", "200", "200MB"])
def test_a_rate_has_a_unit_and_is_not_zero(text: str) -> None:
    with pytest.raises(UsageError, match="is not a rate"):
        parse_rate(text)


@given(st.integers(0, 10**14))
def test_a_size_is_shown_to_three_digits(size: int) -> None:
    """What is shown is read back to the same size, within the rounding of three digits."""
    shown = format_bytes(size)
    assert "e" not in shown
    assert parse_bytes(shown) == pytest.approx(size, rel=0.005)


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (999, "999 B"), (999_600, "1 MB"), (8_000_000, "8 MB")])
def test_sizes_at_the_edges(size: int, shown: str) -> None:
    assert format_bytes(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (7200, "2 h"), (400_000, "5 days")]
)
def test_durations_are_shown_for_a_person(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown

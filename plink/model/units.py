"""Parse and format sizes, rates and durations."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from plink.errors import UsageError

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
_MAX_QUOTED_CHARS = 40  # characters of what was typed that a message repeats

_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES[_letter] = _BYTES[_letter + "b"] = 1000**_power
    _BYTES[_letter + "ib"] = 1024**_power

_BITS_PER_S = {
    "bit": 1,
    "kbit": 10**3,
    "mbit": 10**6,
    "gbit": 10**9,
    "bps": 1,
    "kbps": 10**3,
    "mbps": 10**6,
    "gbps": 10**9,
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


_TIMES_US = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e-3),
    **dict.fromkeys(("us", "\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s", "usec", "microseconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 1e3),
    **dict.fromkeys(("s", "sec", "seconds"), 1e6),
}
_RATE_UNIT = re.compile(r"([kmgt]?)(i?)(bits?|bytes?|b)(?:ps|/s|/sec|/second)|([kmg])()(bits?)", re.IGNORECASE)


@dataclass(frozen=True)
class MeasurementUnit:
    """Unit of a column of measurements: times ``factor`` a value is in microseconds ("us") or Gbit/s ("gbps")."""

    quantity: Literal["us", "gbps"]
    factor: float


def parse_unit(text: str) -> MeasurementUnit | None:
    """Return the unit of times or rates that a word is, None for another: ``ms``, ``Mbit/s``, ``Gbps``, ``MB/s``."""
    if text.lower() in _TIMES_US:
        return MeasurementUnit("us", _TIMES_US[text.lower()])
    if (match := _RATE_UNIT.fullmatch(text)) is None:
        return None
    prefix, binary, what = match[1] or match[4] or "", match[2], match[3] or match[6]
    base = 1024 if binary else 1000
    is_bytes = what == "B" or what.lower().startswith("byte")
    return MeasurementUnit("gbps", float(base ** " kmgt".index(prefix.lower() or " ")) * (8 if is_bytes else 1) / 1e9)


def _quantity(text: str, units: dict[str, int] | dict[str, float], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match.group(2).lower() not in units:
        raise UsageError(f"{text[:_MAX_QUOTED_CHARS]!r} is not a {what}; write it like {example}")
    value = float(match.group(1)) * units[match.group(2).lower()]
    if math.isinf(value):
        raise UsageError(f"{text[:20]!r}... is too large a {what}; write it like {example}")
    return value


def parse_bytes(text: str) -> int:
    """Parse a size in bytes: ``64KB`` is 64,000, ``64KiB`` is 65,536 (IEC 80000-13), a bare number is bytes."""
    return round(_quantity(text, _BYTES, "size", "100MB or 64KiB"))


def parse_rate(text: str) -> int:
    """Parse a rate in bits per second, decimal prefixes: ``200mbit`` (as ``tc`` writes it) or ``10Gbps``; never
    zero."""
    rate = round(_quantity(text, _BITS_PER_S, "rate", "200mbit or 10gbit"))
    if rate <= 0:
        raise UsageError(
            f"{text[:_MAX_QUOTED_CHARS]!r} is not a rate that lets anything through; to stop traffic use cut"
        )
    return rate


def parse_duration(text: str) -> float:
    """Parse a duration in seconds: ``250ms``, ``90``, ``5m``, ``1h``."""
    return _quantity(text, _SECONDS, "duration", "90s, 5m or 250ms")


def parse_limit(text: str) -> float:
    """Parse a timeout in seconds; never zero."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise UsageError(f"{text[:_MAX_QUOTED_CHARS]!r} leaves no time for anything; write it like 90s, 5m or 250ms")
    return seconds


def typed_seconds(seconds: float) -> str:
    """Return a duration as :func:`parse_duration` reads it, to the nanosecond: ``300s``, ``0.00001s``."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def typed_hours(seconds: float) -> str:
    """Return a duration of hours and minutes in hours, ``1.5h``, any other one as :func:`typed_seconds`."""
    return f"{seconds / 3600:g}h" if seconds % 360 == 0 else typed_seconds(seconds)


def parse_moment(text: str) -> float:
    """Parse a date or time in seconds since 1970: ``2016-06-11``, ``2016-06-11T12:00Z``; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        shown = text[:_MAX_QUOTED_CHARS]
        raise UsageError(f"{shown!r} is no date or time; write it like 2016-06-11 or 2016-06-11T12:00Z") from None


def format_moment(time_s: float) -> str:
    """Format a time, in UTC: ``2016-06-11 12:00``."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M")


def significant(value: float, digits: int = 3) -> str:
    """Format a number with so many significant digits, or a whole number where it is larger: ``0.127``, ``1,030``."""
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def format_bytes(size: float) -> str:
    """Format a size in bytes, decimal prefixes, three significant digits: ``8 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:  # from there on three digits would round up to the next unit
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{significant(size)} TB"


def rate_unit(gbps: float) -> tuple[float, str]:
    """Return what to multiply rates in Gbit/s by, and the unit they then are in, where the largest is this."""
    return (1e3, "Mbit/s") if 0 < gbps < 0.9995 else (1.0, "Gbit/s")


def format_gbps(gbps: float) -> str:
    """Format a rate given in Gbit/s, three significant digits: ``186 Mbit/s``, ``1.03 Gbit/s``."""
    scale, unit = rate_unit(gbps)
    return f"{significant(gbps * scale)} {unit}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return what to multiply seconds by, and the unit they then are in, where the longest is this."""
    return (1e6, "us") if seconds < 999.5e-6 else (1e3, "ms") if seconds < 0.9995 else (1.0, "s")


def format_us(us: float) -> str:
    """Format microseconds, three significant digits: ``41.5 us``, ``1.59 ms``, ``2.49 s``; never minutes, for costs
    are compared."""
    seconds = us / 1e6
    scale, unit = time_unit(seconds)
    return f"{significant(seconds * scale)} {unit}"


def format_least_time(least_time_us: float, limited_by: str, cost_us: float) -> str:
    """Return the least possible time of what costs so much, what limits it, and how far it is."""
    ratio = cost_us / least_time_us
    return (
        f"least possible {format_us(least_time_us)} ({limited_by}); "
        f"this takes {ratio:{'.2f' if ratio < 10 else ',.0f'}} times as long"
    )


def format_prediction(us: float, interval_us: tuple[float, float] | None) -> str:
    """Format a predicted time, with its interval where it has one: ``1.8 s (1.7 s to 2.02 s)``."""
    if interval_us is None:
        return format_us(us)
    low, high = map(format_us, interval_us)
    return f"{format_us(us)} ({low} to {high})"


def format_duration(seconds: float) -> str:
    """Format a duration: ``12 s``, ``3 min``, ``2.5 h``, ``4 days``."""
    for limit, unit, digits, name in ((90, 1, 0, "s"), (5400, 60, 0, "min"), (172_800, 3600, 1, "h")):
        if seconds < limit:
            return f"{round(seconds / unit, digits):g} {name}"
    return f"{round(seconds / 86400, 1):g} days"


def format_time(seconds: float) -> str:
    """Format a short time, three significant digits: ``41.5 us``, ``530 ms``, ``12.4 s``; minutes as
    :func:`format_duration`."""
    scale, unit = time_unit(seconds)
    return f"{seconds * scale:.3g} {unit}" if seconds < 99.95 else format_duration(seconds)


def numbered(number: int, what: str, many: str | None = None) -> str:
    """Return a number of things, in digits: ``1 chunk``, ``1,024 pairs``."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def count(number: int, what: str, many: str | None = None) -> str:
    """Return a number of things, up to twelve in words: ``three tiers``, ``one host``."""
    word = _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"
    return f"{word} {what if number == 1 else many or what + 's'}"

"""``--floor``: the smallest difference of a round trip that a command reports."""

from plink.errors import UsageError

_MAX_FLOOR_S = 1.0


def floor_us(text: str) -> float:
    """Return the floor in microseconds.

    :raises UsageError: for one of which nothing could be reported: a bare number (seconds elsewhere), or above 1 s.
    """
    from plink.model.units import parse_duration

    seconds = parse_duration(text)
    if text.strip()[-1:].isdigit():
        raise UsageError(f"--floor {text}: of which unit? Write {text.strip()}us, or ms")
    if seconds > _MAX_FLOOR_S:
        raise UsageError(f"--floor {text}: no round trip changes by more than {_MAX_FLOOR_S:g} s; write it like 10us")
    return seconds * 1e6

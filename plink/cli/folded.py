"""Many host names as one short text, as schedulers write them: ``node[01-04,07]``."""

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def folded(names: Sequence[str]) -> str:
    """The names, those that differ by a number of the same width only put together; others as they are."""
    families: dict[tuple[str, str, int], list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        key = (match[1], match[3], len(match[2])) if match else (name, "", 0)
        families.setdefault(key, []).append(match[2] if match else "")
    return " ".join(
        f"{before}{numbers[0]}{after}" if len(numbers) == 1 else f"{before}[{_ranges(numbers)}]{after}"
        for (before, after, _), numbers in families.items()
    )


def _ranges(numbers: list[str]) -> str:
    stretches: list[list[str]] = []
    for number in sorted(numbers, key=int):
        if stretches and int(number) == int(stretches[-1][-1]) + 1:
            stretches[-1].append(number)
        else:
            stretches.append([number])
    return ",".join(one[0] if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in stretches)

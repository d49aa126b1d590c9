"""Host lists, as Slurm writes them (slurm.conf(5), ``NodeName``): ``node[1-4,7,09-12],gpu[0-1][0-7]``."""

import itertools
import math
import re
from collections.abc import Sequence

from plink.errors import InputError

# Letters of DNS names, IPv4 and IPv6 addresses (with a zone) and folder-free user names: nothing a shell, ssh or a
# launcher's own hostfile syntax would read as more than a name, and no leading dash that would make it an option.
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}")
_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
MAX_HOSTS = 65536  # that one file may name
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)")  # as many digits as a range may have
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def check_name(text: object, location: str, what: str = "a host name") -> str:
    """Return the text if it can be a host's name or address.

    :raises InputError: when it is no string, or holds what a shell or a hostfile would read as more than a name.
    """
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise InputError(location, f"{text!r} cannot be {what} (letters, digits, '.', '-', '_', ':' only)")
    return text


def check_lab_name(text: object, location: str) -> str:
    """Return the text if it can be a lab's name: 1 to 16 lower-case letters, digits and dashes."""
    if not isinstance(text, str) or not _LAB_NAME.fullmatch(text):
        raise InputError(location, f"{text!r} cannot be a lab's name (1 to 16 lower-case letters, digits and dashes)")
    return text


def expand_hostlist(text: str, location: str) -> list[str]:
    """Return the names a list stands for, in its order; a range keeps the width of its first number (``n[09-10]``).

    :raises InputError: for brackets that do not close, a range that is none, a name that cannot be a host's, and for
        more names than one file may hold, before any is made.
    """
    names: list[str] = []
    end = 0
    for item in _ITEM.finditer(text):
        if text[end : item.start()] != ("," if names else ""):
            break
        end = item.end()
        names += _expand_item(item.group(), MAX_HOSTS - len(names), location)
    if end != len(text) or not names:
        raise InputError(location, f"{text[:80]!r} is not a list of hosts like node[1-4,7],gpu[01-16]")
    return [check_name(name, location) for name in names]


def fold_hostlist(names: Sequence[str], separator: str = ",", suffixes: bool = True) -> str:
    """Return the list that stands for these names: those that differ by a number only are put together, where numbers
    are padded those of one width.

    :param separator: a space where the text is to be broken into lines; such a list cannot be read again.
    :param suffixes: whether a name may go on behind its numbers, which Slurm refuses (slurm.conf(5), ``NodeName``).

    >>> fold_hostlist(["node09", "node10", "node1", "gpu9", "gpu10"])
    'node[09-10],node1,gpu[9-10]'
    """
    families: dict[tuple[str, str, int], list[str]] = {}
    matches = [_NUMBERED.fullmatch(name) for name in names]
    padded = {(match[1], match[3], len(match[2])) for match in matches if match and re.match("0[0-9]", match[2])}
    for name, match in zip(names, matches, strict=True):
        if match and (suffixes or not match[3]):
            key = match[1], match[3], len(match[2])
            families.setdefault(key if key in padded else (match[1], match[3], 0), []).append(match[2])
        else:
            families.setdefault((name, "", -1), []).append("")
    return separator.join(
        f"{before}{numbers[0]}{after}" if len(numbers) == 1 else f"{before}[{_fold_numbers(numbers)}]{after}"
        for (before, after, _), numbers in families.items()
    )


def shortened_hostlist(names: Sequence[str], separator: str = ",", max_chars: int = 120) -> str:
    """Return the folded list, or, where it is longer than ``max_chars``, its beginning and the number of names."""
    text = fold_hostlist(names, separator)
    return text if len(text) <= max_chars else f"{text[:max_chars].rsplit(',', 1)[0]},... ({len(names)} hosts)"


def _fold_numbers(numbers: list[str]) -> str:
    spans: list[list[str]] = []
    for number in sorted(set(numbers), key=int):
        if spans and int(number) == int(spans[-1][-1]) + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ",".join(span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def _expand_item(item: str, max_names: int, location: str) -> list[str]:
    """Expand ``a[1-2]b[3,5]`` to four names; at most ``max_names``."""
    parts = re.split(r"\[([^\]]*)\]", item)
    groups = [_ranges(group, location) for group in parts[1::2]]
    if math.prod(sum(last - first + 1 for first, last, _ in group) for group in groups) > max_names:
        raise InputError(location, f"{item[:80]!r} makes more than {MAX_HOSTS} hosts of one file")
    numbers = [[f"{k:0{width}d}" for first, last, width in group for k in range(first, last + 1)] for group in groups]
    texts = [[part] for part in parts[::2]]
    choices = [choice for pair in itertools.zip_longest(texts, numbers, fillvalue=[""]) for choice in pair]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _ranges(group: str, location: str) -> list[tuple[int, int, int]]:
    """Parse ``1-4,7,09-12`` as first, last and width of each range."""
    ranges = []
    for part in group.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InputError(location, f"{part[:80]!r} in brackets is neither a number nor a range like 1-4")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise InputError(location, f"the range {part} ends before it begins")
        ranges.append((int(low), int(high), len(low)))
    return ranges

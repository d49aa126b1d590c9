"""``--pin HOST=RANK``, ``--groups FILE|NUMBER`` and ``--labels LABEL,...``, as typed."""

from collections.abc import Sequence

from plink.api.constraints import RequestedGroups
from plink.errors import UsageError
from plink.model.groups import read_groups

_MAX_DIGITS = 9


def parse_pins(words: Sequence[str], example: str) -> dict[str, int]:
    """Return the first rank of each pinned host.

    :param example: a host's name. :raises UsageError: for what is not of that form, or two ranks for one host.
    """
    pinned: dict[str, int] = {}
    for word in words:
        name, _, rank = word.rpartition("=")
        if not name or not rank.isdecimal() or len(rank) > _MAX_DIGITS:
            raise UsageError(f"--pin {word}: write a host's name, = and its first rank, {example}=0")
        if pinned.setdefault(name, int(rank)) != int(rank):
            raise UsageError(f"--pin: {name} cannot have rank {pinned[name]} and rank {rank}")
    return pinned


def parse_labels(text: str | None) -> tuple[str, ...]:
    """Return the labels, none where the option was not typed.

    :raises UsageError: for an empty one.
    """
    labels = () if text is None else tuple(label.strip() for label in text.split(","))
    if not all(labels):
        raise UsageError(f"--labels {text}: write labels and commas, outermost first, like my.org/block,my.org/rack")
    return labels


def parse_groups_option(groups: str) -> RequestedGroups:
    """Return the number of groups, or the groups that a file lists.

    :raises UsageError: for nothing. :raises InputError: for a file that cannot be read.
    """
    if not groups:
        raise UsageError("--groups: a file, or how many groups to form")
    if groups.isdecimal():
        return int(groups) if len(groups) <= _MAX_DIGITS else 0
    return read_groups(groups)

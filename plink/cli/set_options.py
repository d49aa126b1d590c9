"""Parse ``--set base=4`` and other options of algorithms."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plink.api.algorithms import OptionValues, kinds, options_of
from plink.errors import UsageError

if TYPE_CHECKING:
    from solvers.schedules.catalogue import Options

_MAX_DIGITS = 9


def parse_set_options(words: Sequence[str]) -> OptionValues:
    """Return the values by name; yes and no as booleans.

    :raises UsageError: for what is not of that form.
    """
    kind_of = kinds()
    values: dict[str, int | bool] = {}
    for word in words:
        name, sign, value = word.partition("=")
        name = name.replace("-", "_")
        if not sign or name not in kind_of:
            raise UsageError(f"--set {word}: write name=value with a name of {', '.join(kind_of).replace('_', '-')}")
        if kind_of[name] is bool:
            if value not in ("yes", "no"):
                raise UsageError(f"--set {word}: {name} is yes or no")
            values[name] = value == "yes"
        else:
            if not value.isdecimal() or len(value) > _MAX_DIGITS:
                raise UsageError(f"--set {word}: {name} is a whole number")
            values[name] = int(value)
    return values


def options_from(words: Sequence[str], algorithms: Sequence[str], groups: list[list[int]] | None = None) -> "Options":
    """Parse the options and check them against these algorithms.

    :raises UsageError: as :func:`parse_set_options` and :func:`plink.api.algorithms.options_of`.
    """
    return options_of(parse_set_options(words), algorithms, groups)

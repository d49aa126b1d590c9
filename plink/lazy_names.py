"""Names of a package that are imported when they are first used; its stub ``__init__.pyi`` says where they are."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

_DECLARATION = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return the names that a package's stub declares, and the package's ``__getattr__``.

    :param package: its ``__name__``. :param file: its ``__file__``, beside which the stub is.
    """
    loader: Any = sys.modules[package].__loader__  # which reads archives, too
    stub = loader.get_data(f"{file.rpartition('.')[0]}.pyi").decode()
    home_of = {name: home for home, name in _DECLARATION.findall(stub)}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        if isinstance(value, FunctionType):
            from plink.argument_checks import with_checked_arguments

            value = with_checked_arguments(value, package)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home_of), load

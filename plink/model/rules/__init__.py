"""Consistency rules that were added: each module of this package is one, taken up by itself.

A module has ``parse(spec)``, which returns its rule (:class:`plink.model.consistency.Rule`), or None where the text is
not for it. See docs/recipes.md.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def parsers() -> tuple[Callable[[str], Any], ...]:
    """Return the parser of every module."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(importlib.import_module(f"{__name__}.{name}").parse for name in names)

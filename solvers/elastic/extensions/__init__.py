"""Events that were added to the state machine: each module of this package is one, taken up by itself.

A module has an ``EVENT``, the class of its event, and ``handle(context, event)``; if it wants to act whenever something
has become possible, ``advance(context)``. Its own sub-state is ``context.state.extensions[NAME]``, under a name of its
choice: a frozen value, replaced like all others. See docs/recipes.md.
"""

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from solvers.elastic.context import Context

_MODULES: tuple[ModuleType, ...] = tuple(
    importlib.import_module(f"{__name__}.{module_info.name}") for module_info in pkgutil.iter_modules(__path__)
)
_BY_EVENT: dict[type, ModuleType] = {module.EVENT: module for module in _MODULES}
EVENTS: dict[str, type] = {kind.__name__: kind for kind in _BY_EVENT}  # under these names they travel


def handle(ctx: Context, event: Any) -> bool:
    """Handle an event that was added; False where no module knows it."""
    module = _BY_EVENT.get(type(event))
    if module is not None:
        module.handle(ctx, event)
    return module is not None


def advance(ctx: Context) -> None:
    """Let every added module do what has become possible."""
    for module in _MODULES:
        if hasattr(module, "advance"):
            module.advance(ctx)

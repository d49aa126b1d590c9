"""All that the program of an elastic job imports.

::

    from plink.elastic import App, Objective, Params, StoppingCriterion, Table

Names are imported when they are first used: PyTorch only with :class:`TorchApp`, the servers only with :func:`train`.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "Adam": "plink.elastic.optimisers",
    "AdamW": "plink.elastic.optimisers",
    "App": "plink.elastic.app",
    "AppError": "plink.elastic.app_error",
    "Objective": "plink.elastic.app",
    "Params": "plink.elastic.params",
    "Rebalance": "plink.runtime.elastic.helping.sides",
    "Sgd": "plink.elastic.optimisers",
    "StoppingCriterion": "plink.elastic.app",
    "Table": "plink.elastic.tables",
    "TorchApp": "plink.elastic.torch_app",
    "TrainingResult": "plink.runtime.elastic.local",
    "Values": "plink.elastic.tables",
    "save_arrays": "plink.elastic.app",
    "train": "plink.runtime.elastic.local",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'plink.elastic' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__]

"""All that the program of an elastic job imports.

::

    from plink.elastic import App, Objective, Params, StoppingCriterion, Table

Names are imported when they are first used: PyTorch only with :class:`TorchApp`, the servers only with :func:`train`.
"""

from plink.lazy_names import lazy_names

__all__, __getattr__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return [*__all__]

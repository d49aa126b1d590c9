"""Measure the network between machines, decide which machine takes which rank, and launch the job that way.

::

    import plink

    hosts = plink.read_hosts("hosts.txt")
    network = plink.probe(hosts)
    order = plink.reorder(network, algo="ring")
    run = plink.launch(plink.Job("train.py"), hosts, order)

Names are imported when they are first used, so that ``import plink`` costs next to nothing. Nothing is printed and no
file is written unless asked for; notes go to the loggers ``plink.probe``, ``plink.reorder`` and so on.
"""

from plink.lazy_names import lazy_names

__version__ = "0.1.0"
__all__, __getattr__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

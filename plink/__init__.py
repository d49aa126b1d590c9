"""The words plink speaks in: hosts, network, order, units, errors, and how an agent on a host is talked to.

The rooms beside this one use the words: ``probes`` measure, ``solvers`` decide, ``runners`` act. Nothing here
imports them; only ``plink.cli`` does, inside each command.
"""

__version__ = "0.1.0"

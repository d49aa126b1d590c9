"""Measure the network between machines, decide which machine takes which rank, and launch the job that way.

The packages beside this one build on :mod:`plink.model`: ``probes`` measure, ``solvers`` decide, ``runners`` act. Only
:mod:`plink.cli` imports them, inside each command.
"""

__version__ = "0.1.0"

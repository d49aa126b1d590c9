"""One collective on a simulated network, prepared and run."""

import numpy as np
import numpy.typing as npt

from plink.model.schedule import Schedule
from solvers.costs.fabric import Fabric
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.engine import Timeline


def simulate_collective(
    schedule: Schedule, fabric: Fabric, order: npt.NDArray[np.intp], size_bytes: float, lockstep: bool = True
) -> Timeline:
    """Run it; parameters and errors as of :class:`PreparedCollective`."""
    return PreparedCollective.of(schedule, lockstep).run(fabric, order, size_bytes)

"""The parameter server in its four forms: on ranks of its own or on the workers', one for all or a share each.

Every worker pushes what it has to the server of each chunk, and pulls the sum from there (PLink thesis, 4.1.1).
"""

import numpy as np

from plink.errors import UsageError
from plink.model.schedule import Collective, Schedule, make_schedule


def push(
    ranks: int, sharded: bool = True, colocated: bool = True, servers: int | None = None, root: int = 0
) -> Schedule:
    """One round: a reduce-scatter to the servers when they are ``sharded``, a reduce to the one server when not.

    Colocated, the ranks serve themselves: sharded every rank has 1/N of the vector (then it is flat aggregation, chunk
    r at rank r), centralised rank ``root`` has all of it. Not colocated, the last ``servers`` ranks (by default half of
    all, or one when centralised) do nothing but serve: they contribute nothing, and the schedule's detail
    ``contributors`` lists those that do. What stands at such a server in the beginning has to be zero.

    :raises UsageError: for fewer than two ranks, or servers that do not fit.
    """
    if colocated:
        if servers is not None:
            raise UsageError("ps: colocated servers are not counted; servers goes with colocated=False")
        if not sharded and not 0 <= root < ranks:
            raise UsageError(f"ps: there is no rank {root} to serve {ranks} ranks")
        workers, serving = np.arange(ranks), np.arange(ranks) if sharded else np.array([root])
    else:
        number = servers if servers is not None else max(1, ranks // 2) if sharded else 1
        if not 1 <= number < max(2, ranks):
            raise UsageError(f"ps: {number} servers of {ranks} ranks leave no worker or no server; 1 to {ranks - 1} do")
        if not sharded and number > 1:
            raise UsageError(f"ps: a centralised server is one, not {number}; several are sharded")
        workers, serving = np.arange(ranks - number), np.arange(ranks - number, ranks)
    source, chunk = (axis.ravel() for axis in np.meshgrid(workers, np.arange(len(serving)), indexing="ij"))
    remote = source != serving[chunk]
    rows = np.stack(np.broadcast_arrays(0, source, serving[chunk], chunk, 1, 0), axis=1)[remote]
    owners, contributors = serving.astype(np.int32), None if colocated else workers.tolist()
    collective: Collective = "reduce-scatter" if sharded else "reduce"
    return make_schedule("ps", ranks, len(serving), rows, collective, owners, contributors=contributors)

"""One traffic of a mesh as a job of transfers: all its groups at once, between blocks of ranks."""

from dataclasses import dataclass, replace

import numpy as np

from plink.model.mesh import Mesh, Traffic
from plink.model.schedule import Indices, Schedule
from solvers.costs.fabric import Vector
from solvers.costs.mesh_patterns import group_sizes, schedule_of, slots_in
from solvers.simulation.collective import PreparedCollective


@dataclass(frozen=True)
class PreparedTraffic(PreparedCollective):
    """All groups of a traffic, prepared; orders are of blocks of ranks. ``bytes``, shape (M,): what each transfer
    moves; the size of the mesh's vector is 1."""

    bytes: Vector

    @classmethod
    def of_traffic(cls, mesh: Mesh, traffic: Traffic, blocks: int) -> "PreparedTraffic":
        """Prepare a traffic that leaves its blocks.

        Groups between the same blocks in the same sequence (tensor ranks of two hosts, one by one) are one group of all
        their bytes.

        :raises UsageError: as :func:`solvers.costs.mesh_patterns.schedule_of`.
        """
        groups = mesh.groups(traffic.axes)
        number, ranks = groups.shape
        block_of = groups // (mesh.ranks // blocks)
        single = schedule_of(traffic, ranks, slots_in(block_of[0]))
        sizes = group_sizes(mesh, traffic, np.minimum(single.source, single.target).astype(np.intp))
        share = single.count * ((ranks if traffic.kind == "ring" else 1) / single.chunks)
        moved = np.broadcast_to(share[None, :] * sizes, (number, len(single)))
        different, which = np.unique(block_of, axis=0, return_inverse=True)
        together = np.zeros((len(different), len(single)))
        np.add.at(together, which.ravel(), moved)
        count = len(different)
        of_group, of_transfer = np.divmod(np.arange(count * len(single)), len(single))
        by_round = np.argsort(single.round[of_transfer], kind="stable")
        of_group, of_transfer = of_group[by_round], of_transfer[by_round]

        def column(values: Indices, step: int) -> Indices:
            return np.asarray(values[of_transfer] + of_group * step, dtype=np.int32)

        side_by_side = Schedule(
            traffic.label,
            single.collective,
            count * ranks,
            count * single.chunks,
            column(single.round, 0),
            column(single.source, ranks),
            column(single.target, ranks),
            column(single.first, single.chunks),
            column(single.count, 0),
            single.copies[of_transfer],
            timing=single.timing,
        )
        prepared = PreparedCollective.of(side_by_side)
        place = different.ravel()
        return cls(
            replace(
                side_by_side,
                ranks=blocks,
                source=place[side_by_side.source].astype(np.int32),
                target=place[side_by_side.target].astype(np.int32),
            ),
            place[prepared.source],
            place[prepared.target],
            prepared.connection,
            prepared.tasks,
            prepared.waits,
            together[of_group, of_transfer],
        )

    def bytes_moved(self, size_bytes: float) -> Vector:
        """Return the bytes of each transfer, shape (M,)."""
        return self.bytes * size_bytes

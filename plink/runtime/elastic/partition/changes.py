"""What a partition's steps change: records to undo them, and what is pushed to replicas."""

from dataclasses import dataclass

from plink.runtime.elastic.arrays.row_blocks import RowBlock


@dataclass(frozen=True)
class Undo:
    """Undo record: the vectors that the step from clock ``before`` to clock ``after`` changed, as they were."""

    before: int
    after: int
    blocks: tuple[RowBlock, ...]

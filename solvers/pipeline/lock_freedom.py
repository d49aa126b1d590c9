"""Pipelines that end for any number of minibatches, proven without executing them.

Give every pass a number that is larger than those of all that it waits for: then the pass with the least number that
is not done can always go on. F of minibatch b at stage s gets b + f_s, and B gets b + g_s. Then

- F waits for F of the stage before it: f_s > f_(s-1); B for B of the stage behind it: g_s > g_(s+1);
- B of b follows F of b + W r in its rank, W = depth - 1: g_s - f_s > W_s r_s;
- F of b + (W + 1) r follows the update that takes in b, so B of every replica of that round, at most b + r - 1:
  g_s - f_s < W_s r_s + 1.

So g_s - f_s = W_s r_s + e_s with 0 < e_s < 1, and such numbers exist if W_s r_s never rises from a stage to the next:
e_s then falls from stage to stage, by more than the f_s rise. The thesis's depths obey it, for

    W_s r_s = ceil(R_(s+1) / r_s) r_s >= R_(s+1) = R_(s+2) + r_(s+1) > ceil(R_(s+2) / r_(s+1)) r_(s+1) = W_(s+1) r_(s+1)

where R_s counts the replicas from stage s on. A flush adds a constant per
batch to all numbers, and GPipe, whose ranks go backward when all of a batch went forward, another to all of B. What a
late reduce waits for is earlier. Frozen stages wait for nothing behind them.
"""

from itertools import pairwise

from plink.documents.pipeline import Kind
from plink.model.pipeline.shape import PipelineShape

_COVERED: tuple[Kind, ...] = ("1f1b", "2bw", "1f1b-flush", "data-parallel", "model-parallel")
"""Kinds whose actions wait for what is listed above."""


def never_locks(shape: PipelineShape) -> bool:
    """Return whether the generated actions are proven to end; False says nothing."""
    if shape.kind == "gpipe":
        return True
    if shape.kind not in _COVERED:
        return False
    trained = range(shape.frozen, shape.stages)
    in_flight = [shape.warm_up(stage) * shape.replicas[stage] for stage in trained]
    return all(before >= after for before, after in pairwise(in_flight))

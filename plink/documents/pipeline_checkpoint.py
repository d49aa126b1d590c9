"""``plink.pipeline-checkpoint/2``: the header of one rank's part of a pipeline's checkpoint."""

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from plink.documents.types import Count, Name, PositiveInt


class PipelineCheckpointDocument(TypedDict):
    """The header of one rank's part of a pipeline's checkpoint.

    It is the first line of `minibatch-K/stage-S-replica-Q.pt`, filled with spaces to 4096 bytes. What follows was
    written by `torch.save`.
    """

    schema: Literal["plink.pipeline-checkpoint/2"]
    """Kind and version of this file."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}(?!\n)$")]
    """Digest of what follows."""
    minibatch: Count
    """The minibatch that training goes on with: all before it are taken in, and none after."""
    stage: Count
    """The rank's stage."""
    replica: Count
    """Its number among the stage's replicas."""
    replicas: Annotated[list[PositiveInt], Meta(min_length=1)]
    """Replicas of each stage of the plan."""
    training: Name
    """Digest of what the plan says of training: layers, replicas, depths and so on, but no hosts."""
    program: str
    """Digest of the program's file; empty where there was none."""
    arguments: str
    """Digest of its arguments."""
    start: str
    """The start of the job that wrote it. Parts of two starts are never taken together."""
    model: Name
    """Digest of the names, shapes and types of the model's parameters and buffers."""
    torch: Name
    """Version of PyTorch."""

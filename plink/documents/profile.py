"""``plink.profile/1``: what each layer of a model costs."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from plink.documents.types import Count, HostName, Name, Positive, PositiveInt

ByteCount = Annotated[int, Meta(ge=0, le=1 << 50)]
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Shape = Annotated[list[Annotated[int, Meta(ge=0, le=1 << 40)]], Meta(max_length=16)]
DType = Literal[
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8",
    "bool",
]  # fmt: skip


class InputTensor(TypedDict):
    """One tensor of a minibatch."""

    shape: Shape
    """Its sizes, the minibatch's first."""
    dtype: DType
    """Type of its elements."""


CrossingTensor = TypedDict(
    "CrossingTensor",
    {
        "shape": Annotated[Shape, Meta(description="Its sizes.")],
        "dtype": Annotated[DType, Meta(description="Type of its elements.")],
        "gradient": NotRequired[
            Annotated[bool, Meta(description="Whether its gradient comes back; true when missing.")]
        ],
        "from": NotRequired[Annotated[str, Meta(description="The layer that made it.")]],
    },
)


class LayerEntry(TypedDict):
    """One layer, for one minibatch."""

    name: Name
    """Name of the module, unique in the file."""
    kind: NotRequired[str]
    """Its class, like Conv2d."""
    forward_s: Seconds
    """Median seconds of its forward pass."""
    backward_s: Seconds
    """Median seconds of its backward pass."""
    forward_iqr_s: NotRequired[Seconds]
    """Interquartile range of the forward pass."""
    backward_iqr_s: NotRequired[Seconds]
    """Interquartile range of the backward pass."""
    update_s: NotRequired[Seconds]
    """Seconds of the optimiser's step on its parameters; 0 when missing."""
    copy_s: NotRequired[Seconds]
    """Seconds that a copy of its parameters takes; 0 when missing."""
    parameter_bytes: ByteCount
    """Bytes of its parameters."""
    optimiser_bytes: NotRequired[ByteCount]
    """Bytes of the optimiser's state of these; 0 when missing."""
    saved_bytes: NotRequired[ByteCount]
    """Bytes that autograd keeps for its backward pass; what crosses after it when missing."""
    saved_before_bytes: NotRequired[ByteCount]
    """Of these, what layers before keep as well; 0 when missing."""
    saved_input_bytes: NotRequired[ByteCount]
    """Of these, what is its input; 0 when missing."""
    saved_output_bytes: NotRequired[ByteCount]
    """Bytes of its output that autograd keeps for it or for a layer before; 0 when missing."""
    aliases_input: NotRequired[bool]
    """Whether its output is in the memory of its input, as a view is; false when missing."""
    backward_bytes: NotRequired[ByteCount]
    """The most that its backward pass holds beyond what was there before; gradients of its parameters and of its input
    when missing."""
    step_bytes: NotRequired[ByteCount]
    """The most that an optimiser's step on its parameters holds besides; 0 when missing."""
    buffers: NotRequired[bool]
    """Whether it has buffers that the forward pass changes, such as running statistics."""
    crossing: NotRequired[list[CrossingTensor]]
    """Every tensor made by this layer or before, and used after it: what crosses when the model is cut here."""
    crossing_bytes: ByteCount
    """Bytes of these."""
    crossing_back_bytes: NotRequired[ByteCount]
    """Bytes of the gradients that come back; those of the tensors with gradients, or crossing_bytes, when missing."""


class WholeModel(TypedDict):
    """The model as a whole, without instruments."""

    forward_s: Seconds
    """Median seconds of a forward pass."""
    backward_s: Seconds
    """Median seconds of a backward pass."""
    step_s: NotRequired[Seconds]
    """Median seconds of a minibatch with its optimiser step."""
    layers_over_whole: NotRequired[Annotated[float, Meta(ge=0)]]
    """The sum over layers divided by the whole: 1 when the instruments cost nothing."""


class ProfileDocument(TypedDict):
    """What each layer of a model costs.

    Written by `plink pipeline profile` and `plink pipeline import`, read by `plink pipeline plan`. Layers stand in the
    sequence in which they run. All times and bytes are of one minibatch on one worker.
    """

    schema: Literal["plink.profile/1"]
    """Kind and version of this file."""
    program: NotRequired[str]
    """File of the program that was profiled, or of the profile that was imported."""
    arguments: NotRequired[list[str]]
    """Its arguments."""
    device: NotRequired[str]
    """Where it ran, like cpu."""
    torch: NotRequired[str]
    """Version of PyTorch."""
    threads: NotRequired[PositiveInt]
    """Threads of PyTorch."""
    method: NotRequired[Literal["sequential", "modules", "export", "import"]]
    """How the model was cut into layers."""
    minibatch: PositiveInt
    """Items in a minibatch."""
    minibatches: NotRequired[PositiveInt]
    """Minibatches that were measured."""
    seed: NotRequired[Count]
    """Seed of the model's parameters and inputs."""
    input: NotRequired[list[InputTensor]]
    """The tensors of a minibatch, targets left out."""
    layers: Annotated[list[LayerEntry], Meta(min_length=1, max_length=100000)]
    """The layers, in the sequence in which they run."""
    tied: NotRequired[list[Annotated[list[Name], Meta(min_length=2)]]]
    """Names of parameters that are one and the same, and of layers that use one of another's; they must be in one
    stage."""
    whole: NotRequired[WholeModel]
    """The model as a whole, measured without instruments."""
    hosts: NotRequired[dict[HostName, Annotated[Positive, Meta(le=1e6)]]]
    """How many times as long each host takes as the fastest."""

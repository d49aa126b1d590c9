"""Profile of a model: what each layer computes, keeps and hands on, for one minibatch (``plink.profile/1``)."""

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, field
from msgspec.structs import force_setattr

from plink.errors import InputError
from plink.model.codec import decode
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.storage import name_of, read_document, render_document
from plink.model.types import ByteCount, Count, HostName, Name, Positive, PositiveInt, Seconds

Shape = Annotated[tuple[Annotated[int, Meta(ge=0, le=1 << 40)], ...], Meta(max_length=16)]
_Real = Literal["float64", "float32", "float16", "bfloat16"]
_Complex = Literal["complex64", "complex128"]
_Whole = Literal["int64", "int32", "int16", "int8", "uint8", "bool"]
DType = Literal[_Real, _Complex, _Whole]
ITEM_BYTES = {name: 1 if name == "bool" else int(name.lstrip(ascii_lowercase)) // 8 for name in get_args(DType)}


class InputTensor(Part, frozen=True):
    """One tensor of a minibatch."""

    shape: Shape
    """Its sizes, the minibatch's first."""
    dtype: DType
    """Type of its elements."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements."""
        size = ITEM_BYTES[self.dtype]
        for length in self.shape:
            size *= length
        return size


class CrossingActivation(InputTensor, frozen=True, rename={"source": "from"}):
    """One tensor that is made by a layer or before it, and used after it."""

    shape: Shape
    """Its sizes."""
    gradient: bool = True
    """Whether its gradient comes back; true when missing."""
    source: str | Unset = UNSET
    """The layer that made it."""


class LayerProfile(Part, frozen=True, kw_only=True):
    """One layer, for one minibatch."""

    name: Name
    """Name of the module, unique in the file."""
    kind: str = ""
    """Its class, like Conv2d."""
    forward_s: Seconds
    """Median seconds of its forward pass."""
    backward_s: Seconds
    """Median seconds of its backward pass."""
    update_s: Seconds = 0.0
    """Seconds of the optimiser's step on its parameters; 0 when missing."""
    copy_s: Seconds = 0.0
    """Seconds that a copy of its parameters takes; 0 when missing."""
    parameter_bytes: ByteCount
    """Bytes of its parameters."""
    optimiser_bytes: ByteCount = 0
    """Bytes of the optimiser's state of these; 0 when missing."""
    buffers: bool = False
    """Whether it has buffers that the forward pass changes, such as running statistics."""
    crossing: tuple[CrossingActivation, ...] | Unset = UNSET
    """Every tensor made by this layer or before, and used after it: what crosses when the model is cut here."""
    crossing_bytes: ByteCount
    """Bytes of these."""
    crossing_back_bytes: ByteCount = UNSET  # type: ignore[assignment]  # filled in below
    """Bytes of the gradients that come back; those of the tensors with gradients, or crossing_bytes, when missing."""
    forward_iqr_s: Seconds | Unset = UNSET
    """Interquartile range of the forward pass."""
    backward_iqr_s: Seconds | Unset = UNSET
    """Interquartile range of the backward pass."""
    saved_bytes: ByteCount | Unset = UNSET
    """Bytes that autograd keeps for its backward pass; what crosses after it when missing."""
    backward_bytes: ByteCount | Unset = UNSET
    """The most that its backward pass holds beyond what was there before; gradients of its parameters and of its input
    when missing."""
    saved_before_bytes: ByteCount | Unset = UNSET
    """Of the bytes that autograd keeps, what layers before keep as well; 0 when missing."""
    saved_input_bytes: ByteCount | Unset = UNSET
    """Of these, what is its input; 0 when missing."""
    saved_output_bytes: ByteCount | Unset = UNSET
    """Bytes of its output that autograd keeps for it or for a layer before; 0 when missing."""
    aliases_input: bool | Unset = UNSET
    """Whether its output is in the memory of its input, as a view is; false when missing."""
    step_bytes: ByteCount | Unset = UNSET
    """The most that an optimiser's step on its parameters holds besides; 0 when missing."""

    def __post_init__(self) -> None:
        stated: ByteCount | Unset = self.crossing_back_bytes
        if stated is UNSET:
            back_bytes = self._gradient_bytes() if self.crossing else self.crossing_bytes
            force_setattr(self, "crossing_back_bytes", back_bytes)

    @property
    def compute_s(self) -> float:
        """Seconds of both passes."""
        return self.forward_s + self.backward_s

    def _gradient_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.crossing or () if tensor.gradient)

    def check(self, key: str) -> None:
        """Check the layer as it was read.

        :raises InputError: naming the key, below ``key``, that contradicts another one.
        """
        if self.crossing:
            for name, stated, total in (
                ("crossing_bytes", self.crossing_bytes, sum(tensor.size_bytes for tensor in self.crossing)),
                ("crossing_back_bytes", self.crossing_back_bytes, self._gradient_bytes()),
            ):
                if stated != total:
                    raise InputError(f"{key}.{name}", f"the tensors in crossing have {total} bytes, not {stated}")
        parts = ("saved_before_bytes", "saved_input_bytes", "saved_bytes")
        for part, whole in itertools.pairwise(parts):
            size, limit = getattr(self, part) or 0, getattr(self, whole) or 0
            if size > limit:
                raise InputError(f"{key}.{part}", f"it is part of {whole}, {limit}, and cannot be {size}")


class WholeModel(Part, frozen=True, kw_only=True):
    """The model as a whole, without instruments."""

    forward_s: Seconds
    """Median seconds of a forward pass."""
    backward_s: Seconds
    """Median seconds of a backward pass."""
    step_s: Seconds | Unset = UNSET
    """Median seconds of a minibatch with its optimiser step."""
    layers_over_whole: Annotated[float, Meta(ge=0)] | Unset = UNSET
    """The sum over layers divided by the whole: 1 when the instruments cost nothing."""


class ModelProfile(Document, frozen=True, kw_only=True, tag="plink.profile/1"):
    """What each layer of a model costs.

    Written by `plink pipeline profile` and `plink pipeline import`, read by `plink pipeline plan`. Layers stand in the
    sequence in which they run. All times and bytes are of one minibatch on one worker.
    """

    program: str | Unset = UNSET
    """File of the program that was profiled, or of the profile that was imported."""
    arguments: tuple[str, ...] | Unset = UNSET
    """Its arguments."""
    device: str | Unset = UNSET
    """Where it ran, like cpu."""
    torch: str | Unset = UNSET
    """Version of PyTorch."""
    threads: PositiveInt | Unset = UNSET
    """Threads of PyTorch."""
    method: Literal["sequential", "modules", "export", "import"] | Unset = UNSET
    """How the model was cut into layers."""
    minibatches: PositiveInt | Unset = UNSET
    """Minibatches that were measured."""
    seed: Count | Unset = UNSET
    """Seed of the model's parameters and inputs."""
    input: tuple[InputTensor, ...] | Unset = UNSET
    """The tensors of a minibatch, targets left out."""
    whole: WholeModel | Unset = UNSET
    """The model as a whole, measured without instruments."""
    minibatch: PositiveInt
    """Items in a minibatch."""
    layers: Annotated[tuple[LayerProfile, ...], Meta(min_length=1, max_length=100000)]
    """The layers, in the sequence in which they run."""
    tied: tuple[Annotated[tuple[Name, ...], Meta(min_length=2)], ...] | Unset = UNSET
    """Names of parameters that are one and the same, and of layers that use one of another's; they must be in one
    stage."""
    host_slowness: Mapping[HostName, Annotated[Positive, Meta(le=1e6)]] | Unset = field(default=UNSET, name="hosts")
    """How many times as long each host takes as the fastest."""

    @property
    def slowness(self) -> Mapping[str, float]:
        """How many times as long each host takes as the fastest; 1 where none is stated."""
        return self.host_slowness or {}

    @property
    def compute_s(self) -> float:
        """Seconds of both passes of all layers."""
        return sum(layer.compute_s for layer in self.layers)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(layer.parameter_bytes for layer in self.layers)

    def tied_spans(self) -> list[tuple[int, int, str]]:
        """Return the first and last layer that must be in one stage, and a parameter that ties them."""
        numbers = {layer.name: number for number, layer in enumerate(self.layers)}
        spans = []
        for names in self.tied or ():
            layers = sorted({numbers[owner] for name in names if (owner := self.owner_of(name)) is not None})
            if len(layers) > 1:
                spans.append((layers[0], layers[-1], names[0]))
        return spans

    def owner_of(self, parameter: str) -> str | None:
        """Return the name of the layer that has a parameter: the longest name that begins the parameter's."""
        owners = (layer.name for layer in self.layers if f"{parameter}.".startswith(f"{layer.name}."))
        return max(owners, key=len, default=None)

    def digest(self) -> str:
        """Return the fingerprint of the document, like ``sha256:...``."""
        return "sha256:" + hashlib.sha256(render_document(self.to_json()).encode()).hexdigest()


def profile_from_json(document: dict[str, Any], location: str) -> ModelProfile:
    """Return a profile from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    profile = decode(ModelProfile, document, location)
    names: dict[str, int] = {}
    for number, layer in enumerate(profile.layers):
        if layer.name in names:
            reason = f"layers[{names[layer.name]}] is named {layer.name!r} too"
            raise InputError(f"{location}: layers[{number}].name", reason)
        names[layer.name] = number
        layer.check(f"{location}: layers[{number}]")
    if profile.compute_s <= 0:
        raise InputError(f"{location}: layers", "no layer takes any time; a profile without seconds plans nothing")
    for number, group in enumerate(profile.tied or ()):
        for name in group:
            if profile.owner_of(name) is None:
                raise InputError(f"{location}: tied[{number}]", f"no layer has the parameter {name!r}")
    return profile


def read_profile(path: str | Path) -> ModelProfile:
    """Return a profile from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`profile_from_json`, and when the file cannot be read.
    """
    return profile_from_json(read_document(path), name_of(path))

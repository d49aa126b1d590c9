"""Profile of a model: what each layer computes, keeps and hands on, for one minibatch (``plink.profile/1``)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plink.model.storage import render_document, write_document

SCHEMA = "plink.profile/1"
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True)
class CrossingActivation:
    """One tensor that is made by a layer or before it, and used after it; ``source``: the layer that makes it."""

    shape: tuple[int, ...]
    dtype: str
    gradient: bool = True
    source: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements."""
        size = ITEM_BYTES[self.dtype]
        for length in self.shape:
            size *= length
        return size

    def to_json(self) -> dict[str, Any]:
        """As it stands in a profile."""
        source = {} if self.source is None else {"from": self.source}
        return {"shape": list(self.shape), "dtype": self.dtype, "gradient": self.gradient} | source


@dataclass(frozen=True)
class LayerProfile:
    """Costs of one layer for one minibatch: seconds of computing, bytes of memory, and bytes that cross after it.

    ``crossing`` is empty where only the bytes are known; ``crossing_back_bytes``: of gradients, 0 where none returns.
    ``saved_bytes``: what autograd keeps between the passes, of which ``saved_input_bytes`` are its input, and
    ``saved_before_bytes`` the part of that which layers before keep as well. ``saved_output_bytes``: of its output,
    what is kept by it or before. ``aliases_input``: its output is in the memory of its input. ``backward_bytes``,
    ``step_bytes``: the most that its backward pass, or an optimiser's step, holds beyond what was there.
    """

    name: str
    forward_s: float
    backward_s: float
    parameter_bytes: int
    crossing_bytes: int
    crossing_back_bytes: int
    kind: str = ""
    crossing: tuple[CrossingActivation, ...] = ()
    update_s: float = 0.0
    copy_s: float = 0.0
    optimiser_bytes: int = 0
    saved_bytes: int | None = None
    saved_before_bytes: int = 0
    saved_input_bytes: int = 0
    saved_output_bytes: int = 0
    aliases_input: bool = False
    backward_bytes: int | None = None
    step_bytes: int = 0
    buffers: bool = False
    forward_iqr_s: float | None = None
    backward_iqr_s: float | None = None

    @property
    def compute_s(self) -> float:
        """Seconds of both passes."""
        return self.forward_s + self.backward_s

    def to_json(self) -> dict[str, Any]:
        """As it stands in a profile."""
        optional = {
            "forward_iqr_s": self.forward_iqr_s,
            "backward_iqr_s": self.backward_iqr_s,
            "saved_bytes": self.saved_bytes,
            "backward_bytes": self.backward_bytes,
        }
        parts = ("saved_before_bytes", "saved_input_bytes", "saved_output_bytes", "aliases_input", "step_bytes")
        optional |= {name: getattr(self, name) or None for name in parts}
        return {
            "name": self.name,
            "kind": self.kind,
            "forward_s": self.forward_s,
            "backward_s": self.backward_s,
            "update_s": self.update_s,
            "copy_s": self.copy_s,
            "parameter_bytes": self.parameter_bytes,
            "optimiser_bytes": self.optimiser_bytes,
            "buffers": self.buffers,
            **({"crossing": [tensor.to_json() for tensor in self.crossing]} if self.crossing else {}),
            "crossing_bytes": self.crossing_bytes,
            "crossing_back_bytes": self.crossing_back_bytes,
        } | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True)
class ModelProfile:
    """N layers in the sequence in which they run. ``tied``: groups of names of parameters that are one and the same;
    ``details``: everything else of the file, as it stands there."""

    minibatch: int
    layers: tuple[LayerProfile, ...]
    tied: tuple[tuple[str, ...], ...] = ()
    slowness: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

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
        for names in self.tied:
            layers = sorted({numbers[owner] for name in names if (owner := self.owner_of(name)) is not None})
            if len(layers) > 1:
                spans.append((layers[0], layers[-1], names[0]))
        return spans

    def owner_of(self, parameter: str) -> str | None:
        """Return the name of the layer that has a parameter: the longest name that begins the parameter's."""
        owners = (layer.name for layer in self.layers if f"{parameter}.".startswith(f"{layer.name}."))
        return max(owners, key=len, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk."""
        return {
            "schema": SCHEMA,
            **self.details,
            "minibatch": self.minibatch,
            "layers": [layer.to_json() for layer in self.layers],
            **({"tied": [list(names) for names in self.tied]} if self.tied else {}),
            **({"hosts": dict(self.slowness)} if self.slowness else {}),
        }

    def digest(self) -> str:
        """Return the fingerprint of the document, like ``sha256:...``."""
        return "sha256:" + hashlib.sha256(render_document(self.to_json()).encode()).hexdigest()

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())

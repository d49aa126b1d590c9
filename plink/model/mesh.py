"""Mesh of ranks: axes of parallel training (pipeline, data, tensor, expert, context) and what their groups send.

Axes are outermost first, as in PyTorch's ``DeviceMesh``: a rank is the row-major index of its coordinates. The traffic
of some axes is the same operation in each of their groups at once.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from plink.errors import InputError, UsageError, no_choice
from plink.model.codec import decode, undeclared
from plink.model.document import Document
from plink.model.storage import name_of, parse_document, parse_toml, read_text
from plink.model.units import parse_bytes

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "p2p", "ring")
DEFAULT_KINDS = {
    "dp": ("all-reduce",),
    "dp_replicate": ("all-reduce",),
    "edp": ("all-reduce",),
    "dp_shard": ("reduce-scatter", "all-gather", "all-gather"),
    "fsdp": ("reduce-scatter", "all-gather", "all-gather"),
    "tp": ("all-reduce",),
    "pp": ("p2p",),
    "ep": ("all-to-all",),
    "cp": ("ring",),
}
MAX_AXES = 8
MESH_VARIABLE = "PLINK_MESH"  # in ranks: axes of the mesh that they were ordered for
_OF_WEIGHTS = ("dp", "dp_replicate", "dp_shard", "fsdp")
_MAX_TIMES, _MAX_BYTES = 1e9, 1e18
_MAX_RANKS = 1 << 20
_AXIS = re.compile(r"([a-z][a-z0-9_]*)=([0-9]{1,7})")


class MeshFile(Document, frozen=True, kw_only=True, tag="plink.mesh/1"):
    """Axes of a job's ranks and what their groups send in a training step.

    Read by `plink reorder --mesh-file`, as JSON or TOML; the texts are those of the options --mesh and --traffic.
    """

    mesh: Annotated[str, Meta(min_length=1)]
    """Axes and sizes, outermost first: pp=4,dp=8,tp=8. A rank is the row-major index of its coordinates."""
    traffic: Annotated[tuple[str, ...], Meta(min_length=1)]
    """What groups of ranks send in a step: AXES=KIND:BYTES[*TIMES][@OVERLAP], like dp=all-reduce:1.6GB."""


@dataclass(frozen=True)
class Traffic:
    """Operation of all groups along some axes.

    ``kind``: one of :data:`KINDS`; ``algorithm``: of an all-reduce, by the catalogue's name. ``sizes``: bytes that one
    rank holds (all-reduce, reduce-scatter, all-gather: of the whole vector; ring), sends in all (all-to-all) or hands
    on each way (p2p). One size, or one for each group (``p2p``: for each hop of a group). ``times``: how often in a
    step; ``overlap``: share of it that computing hides, 0 to 1.
    """

    axes: tuple[str, ...]
    kind: str
    sizes: tuple[float, ...]
    algorithm: str = "ring"
    times: float = 1.0
    overlap: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise no_choice(f"traffic of {'+'.join(self.axes)}: kind", self.kind, KINDS)
        if not 0 <= self.overlap <= 1:
            raise UsageError(f"traffic of {self.label}: an overlap is a share, 0 to 1")
        if not 0 < self.times <= _MAX_TIMES:
            raise UsageError(f"traffic of {self.label}: give how often in a step, more than 0, {_MAX_TIMES:g} at most")
        if not self.sizes or not all(0 < size <= _MAX_BYTES for size in self.sizes):
            raise UsageError(f"traffic of {self.label}: give more than 0 bytes, 10^18 at most")

    @property
    def label(self) -> str:
        """Return axes and kind in words, for tables."""
        return f"{'+'.join(self.axes)} {self.kind}"

    @property
    def text(self) -> str:
        """Return the traffic as :func:`parse_traffic` reads it."""
        algorithm = "" if self.algorithm == "ring" else f"/{self.algorithm}"
        sizes = "/".join(map(_size_text, self.sizes))
        times = "" if self.times == 1 else f"*{self.times:.12g}"
        overlap = "" if self.overlap == 0 else f"@{self.overlap:.12g}"
        return f"{'+'.join(self.axes)}={self.kind}{algorithm}:{sizes}{times}{overlap}"


def _size_text(size: float) -> str:
    """Return all digits of a size, as :func:`plink.model.units.parse_bytes` reads it."""
    unit, name = (1e9, "GB") if size >= 1e9 else (1e6, "MB")
    return f"{size / unit:.9f}".rstrip("0").rstrip(".") + name


@dataclass(frozen=True)
class Mesh:
    """Axes, as (name, size), outermost first, and the traffic of a step."""

    axes: tuple[tuple[str, int], ...]
    traffic: tuple[Traffic, ...]

    def __post_init__(self) -> None:
        for each in self.traffic:
            self.groups(each.axes)  # refuses axes that are not there

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return math.prod(size for _, size in self.axes)

    def groups(self, axes: Sequence[str]) -> npt.NDArray[np.intp]:
        """Return the ranks of every group along these axes, ascending in each, shape (G, n).

        :param axes: names, or one name.
        :raises UsageError: for an axis that is not there.
        """
        names = [name for name, _ in self.axes]
        axes = (axes,) if isinstance(axes, str) else axes
        for name in axes:
            if name not in names:
                raise no_choice("axis", name, names)
        moved = [k for k, name in enumerate(names) if name in axes]
        outer = [k for k in range(len(names)) if k not in moved]
        ranks = np.arange(self.ranks).reshape([size for _, size in self.axes]).transpose(outer + moved)
        return ranks.reshape(-1, math.prod(self.axes[k][1] for k in moved))

    def file(self) -> MeshFile:
        """Return the document."""
        mesh = ",".join(f"{name}={size}" for name, size in self.axes)
        return MeshFile(mesh=mesh, traffic=tuple(each.text for each in self.traffic))


@dataclass(frozen=True)
class ModelShape:
    """What the bytes of a step follow from: a transformer's ``parameters``, ``layers``, ``hidden`` width, ``tokens`` of
    a microbatch, ``microbatches`` of a step, ``experts_per_token`` and bytes of a number."""

    parameters: float
    layers: int
    hidden: int
    tokens: int
    microbatches: int = 1
    experts_per_token: int = 1
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= _MAX_BYTES:
                raise UsageError(f"--{field.name.replace('_', '-')} {value:g}: give more than 0, 10^18 at most")

    def traffic_of(self, axis: str, sizes: dict[str, int]) -> list[Traffic]:
        """Return what groups along an axis send in a step.

        Gradients and parameters are those of one pipeline stage's tensor shard; activations those of a microbatch's
        tokens, of which each rank of a context group has its part; keys and values are without grouping (Narayanan et
        al., SC 2021, section 3; Zhao et al., VLDB 2023, for sharded data parallelism; Lepikhin et al., ICLR 2021, for
        experts; Liu et al., ICLR 2024, for rings of keys and values). Empty for an axis of another name.

        :param sizes: of all axes.
        """
        pp, tp, cp, ep = (sizes.get(name, 1) for name in ("pp", "tp", "cp", "ep"))
        data = next((name for name in ("dp", "dp_shard", "fsdp") if sizes.get(name, 1) > 1), None)
        # Context ranks share gradients with those of data parallelism; where there are none but replicas, as shards.
        has_weights = axis in _OF_WEIGHTS or (axis == "cp" and data is None)
        if ep > 1 and has_weights:
            kinds = "ring:BYTES,all-reduce:BYTES" if axis == "cp" else "BYTES"
            raise UsageError(
                f"--mesh: with ep experts are split; what {axis} sends is unknown: --traffic {axis}={kinds}"
            )
        shards = cp * sizes.get("dp_shard", sizes.get("fsdp", 1)) if axis == "dp_replicate" else 1
        weights = self.dtype_bytes * self.parameters / (pp * tp * shards)
        activations = self.dtype_bytes * self.tokens * self.hidden / cp
        a_layer = self.layers / pp * self.microbatches
        size, times = {
            "pp": (activations, float(self.microbatches)),
            "tp": (activations, 4 * a_layer),
            "ep": (activations * self.experts_per_token, 4 * a_layer),
            "cp": (2 * activations / tp, 2 * a_layer),
        }.get(axis, (0.0, 0.0))
        traffic = [Traffic((axis,), kind, (size,), times=times) for kind in DEFAULT_KINDS[axis]] if size else []
        if has_weights:
            group = (axis, "cp") if cp > 1 and axis == data else (axis,)
            like = axis if axis != "cp" else "dp_shard" if sizes.get("dp_replicate", 1) > 1 else "dp"
            traffic += [Traffic(group, kind, (weights,)) for kind in DEFAULT_KINDS[like]]
        return _merged(traffic)


def labels(traffic: Sequence[Traffic]) -> list[str]:
    """Return a label for each, its text where several would have the same."""
    short = [each.label for each in traffic]
    return [each.text if short.count(each.label) > 1 else each.label for each in traffic]


def parse_axes(text: str) -> tuple[tuple[str, int], ...]:
    """Return the axes of ``pp=4,dp=8,tp=8``.

    :raises UsageError: naming what is wrong.
    """
    axes = []
    for word in text.split(","):
        match = _AXIS.fullmatch("".join(word.split()))
        if match is None or int(match[2]) < 1:
            raise UsageError(f"--mesh {word.strip() or text!r}: write axes and sizes, outermost first: pp=4,dp=8,tp=8")
        axes.append((match[1], int(match[2])))
    names = [name for name, _ in axes]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--mesh: axis {repeated} is there twice")
    if len(axes) > MAX_AXES:
        raise UsageError(f"--mesh: {len(axes)} axes; give {MAX_AXES} at most")
    if math.prod(size for _, size in axes) > _MAX_RANKS:
        raise UsageError(f"--mesh: more than {_MAX_RANKS:,} ranks")
    return tuple(axes)


def in_megatron_order(axes: tuple[tuple[str, int], ...], order: str) -> tuple[tuple[str, int], ...]:
    """Return the axes in the sequence of Megatron-LM's ``--order`` string, which has the fastest axis first.

    :raises UsageError: for a string that does not name all axes, or one that Megatron refuses.
    """
    sizes, names = dict(axes), order.split("-")
    if sorted(names) != sorted(sizes):
        raise UsageError(f"--order {order}: name each axis of the mesh once, fastest first: {'-'.join([*sizes][::-1])}")
    if sizes.get("ep", 1) > 1 and "pp" in names and names[-1] != "pp":
        raise UsageError(f"--order {order}: with ep above 1 Megatron takes pp last only")
    return tuple((name, sizes[name]) for name in reversed(names))


def parse_traffic(text: str, axes: tuple[tuple[str, int], ...]) -> list[Traffic]:
    """Return the operations of ``AXES=KIND:BYTES[*TIMES][@OVERLAP]``, several of which a comma separates; without a
    kind those that are usual for an axis of this name.

    :raises UsageError: naming what is wrong.
    """
    named, separator, operations = text.partition("=")
    group, axis_names = tuple(named.strip().split("+")), [name for name, _ in axes]
    if not separator or not operations:
        raise UsageError(f"--traffic {text}: write AXES=KIND:BYTES[*TIMES][@OVERLAP], like dp=all-reduce:1.6GB")
    for name in group:
        if name not in axis_names:
            raise no_choice(f"--traffic {text}: axis", name, axis_names)
    if len(set(group)) < len(group):
        raise UsageError(f"--traffic {text}: an axis is there twice")
    return _merged([each for word in operations.split(",") for each in _operations(word.strip(), group, text)])


def _operations(word: str, group: tuple[str, ...], text: str) -> list[Traffic]:
    kind, separator, amount = word.rpartition(":")
    kind, _, algorithm = kind.partition("/")
    if not separator and (len(group) > 1 or group[0] not in DEFAULT_KINDS):
        raise UsageError(f"--traffic {text}: name the kind, {'+'.join(group)}=KIND:BYTES; kinds: {', '.join(KINDS)}")
    kinds = (kind,) if separator else DEFAULT_KINDS[group[0]]
    if algorithm and kinds[0] != "all-reduce":
        raise UsageError(f"--traffic {text}: only an all-reduce takes an algorithm")
    amount, _, overlap_text = amount.partition("@")
    size_text, _, times_text = amount.partition("*")
    times, overlap = _number(times_text or "1", text), _number(overlap_text or "0", text)
    try:
        sizes = tuple(float(parse_bytes(size)) for size in size_text.split("/"))
        return [Traffic(group, each, sizes, algorithm or "ring", times, overlap) for each in kinds]
    except UsageError as error:
        raise UsageError(f"--traffic {text}: {error}") from None


def _number(text: str, traffic: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--traffic {traffic}: {text!r} is no number") from None


def _merged(traffic: Sequence[Traffic]) -> list[Traffic]:
    """Return the operations, those that differ in nothing but how often they occur as one."""
    times: dict[Traffic, float] = {}
    for each in traffic:
        key = replace(each, times=1.0)
        times[key] = times.get(key, 0.0) + each.times
    return [replace(each, times=number) for each, number in times.items()]


def make_mesh(
    mesh: str, traffic: Sequence[str], model: ModelShape | None = None, megatron_order: str | None = None
) -> Mesh:
    """Return the mesh of ``pp=4,dp=8,tp=8`` with this traffic (see :func:`parse_traffic`).

    :param model: what axes without traffic send follows from it. :param megatron_order: see :func:`in_megatron_order`.
    :raises UsageError: for traffic that does not fit the axes, or none.
    """
    axes = parse_axes(mesh)
    if megatron_order is not None:
        axes = in_megatron_order(axes, megatron_order)
    operations = [each for text in traffic for each in parse_traffic(text, axes)]
    stated = {name for each in operations for name in each.axes}
    for name, size in axes:
        if model is not None and name not in stated and size > 1:
            derived = model.traffic_of(name, dict(axes))
            if not derived:
                raise UsageError(f"--mesh: what groups along {name} send is unknown: --traffic {name}=KIND:BYTES")
            operations += derived
    if not operations:
        raise UsageError(
            "--mesh: what do its groups send? Give --traffic dp=all-reduce:1.6GB (one for each axis), or --parameters, "
            "--layers, --hidden and --tokens"
        )
    made = Mesh(axes, tuple(operations))
    for each in operations:
        count, ranks = made.groups(each.axes).shape
        number = ranks - 1 if each.kind == "p2p" else count
        if len(each.sizes) not in (1, number):
            what = "hops" if each.kind == "p2p" else "groups"
            raise UsageError(f"--traffic {each.text}: {len(each.sizes)} sizes for {number} {what}")
    return made


def read_mesh(path: str | Path) -> Mesh:
    """Return the mesh of a ``plink.mesh/1`` file, JSON or TOML.

    :raises InputError: when it cannot be read, or what is wrong in it.
    """
    location, text = name_of(path), read_text(path)
    is_toml = location.lower().endswith(".toml")
    document = parse_toml(text, location, "its name says") if is_toml else parse_document(text, location)
    for key in undeclared(MeshFile, document):  # of a file that is written by hand: a mistake
        raise InputError(f"{location}: {key}", f"is no key here; choose one of {', '.join(MeshFile.__struct_fields__)}")
    file = decode(MeshFile, document, location)
    try:
        return make_mesh(file.mesh, file.traffic)
    except UsageError as error:
        raise InputError(location, str(error).removeprefix("--")) from None

"""Profiles in PipeDream's own format (``graph.txt`` of its profiler), read as a chain of layers.

A node a line, ``node4 -- Conv2d(...) -- forward_compute_time=8.2, backward_compute_time=9.1,
activation_size=1.2e8, parameter_size=7168.0``, sizes in bytes and times in milliseconds, then edges ``node4 -- node5``
after a tab. Layers run in the sequence of the numbers in their names, whatever the sequence of lines. A cut is crossed
by every node's output that is made before it and used after it, once. That is the published optimiser's "augmented
antichain" for the cuts of one sequence.
"""

import heapq
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from plink.errors import InputError
from plink.model.pipeline.profile import LayerProfile, ModelProfile
from plink.model.storage import name_of, read_text

_MILLISECONDS = 1e3
_NODE_NUMBER = re.compile(r"(\d{1,12})(?!.*\d)", re.ASCII)
_MAX_BYTES = 1 << 50
_MAX_SECONDS = 1e7


@dataclass
class _Node:
    """One node; ``successors``: names of the nodes that use its output."""

    name: str
    description: str
    forward_s: float
    backward_s: float
    activation_bytes: int
    parameter_bytes: int
    line: int
    successors: list[str] = field(default_factory=list)
    predecessors: list[str] = field(default_factory=list)

    @property
    def is_input(self) -> bool:
        """Whether it only stands for a tensor: of a minibatch, or one that it begins with, such as a hidden state."""
        costs = (self.forward_s, self.backward_s, self.activation_bytes, self.parameter_bytes)
        return self.description.startswith("Input") or not (self.predecessors or any(costs))

    @property
    def number(self) -> tuple[int, str]:
        """When it ran."""
        matched = _NODE_NUMBER.search(self.name)
        return (int(matched[1]) if matched else 0, self.name)


def read_pipedream_graph(path: str | Path, minibatch: int) -> ModelProfile:
    """Return the profile of a file; ``minibatch``: items in the minibatch that was profiled.

    :raises InputError: naming the line that is wrong.
    """
    return profile_from_graph(read_text(path), name_of(path), minibatch)


def profile_from_graph(text: str, location: str, minibatch: int) -> ModelProfile:
    """Return the profile of a graph's text; ``location`` names the file in errors.

    :raises InputError: naming the line that is wrong.
    """
    nodes = _parsed(text, location)
    _check_sources(nodes, location)
    for name in [name for name, node in nodes.items() if node.is_input or _is_index(node)]:
        _drop(nodes, name)
    if not nodes:
        raise InputError(location, "there is no layer in it")
    ordered = _in_sequence(nodes, location)
    position = {node.name: number for number, node in enumerate(ordered)}
    last_use = [max((position[name] for name in node.successors), default=-1) for node in ordered]
    layers = []
    for number, node in enumerate(ordered):
        crossing = sum(
            made.activation_bytes
            for made, used in zip(ordered[: number + 1], last_use[: number + 1], strict=True)
            if used > number
        )
        layers.append(
            LayerProfile(
                name=node.name,
                kind=node.description.partition("(")[0],
                forward_s=node.forward_s,
                backward_s=node.backward_s,
                parameter_bytes=node.parameter_bytes,
                crossing_bytes=crossing,
                crossing_back_bytes=crossing,
                saved_bytes=node.activation_bytes,
            )
        )
    if not any(layer.compute_s for layer in layers):
        raise InputError(location, "no layer takes any time")
    return ModelProfile(minibatch=minibatch, layers=tuple(layers), program=location, method="import")


def _parsed(text: str, location: str) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{location}: line {number}"
        if not line.strip():
            continue
        if line.startswith("\t"):
            ends = line.strip().split(" -- ")
            if len(ends) != 2:
                raise InputError(place, "an edge like 'node4 -- node5' was expected")
            edges.append((number, ends[0], ends[1]))
            continue
        node = _node(line, place, number)
        if node.name in nodes:
            raise InputError(place, f"{node.name} stands in line {nodes[node.name].line} too")
        nodes[node.name] = node
    for number, source, target in edges:
        for name in (source, target):
            if name not in nodes:
                raise InputError(f"{location}: line {number}", f"there is no node {name}")
        if target not in nodes[source].successors:
            nodes[source].successors.append(target)
            nodes[target].predecessors.append(source)
    return nodes


def _node(line: str, place: str, number: int) -> _Node:
    parts = line.strip().split(" -- ")
    if len(parts) not in (3, 4):
        raise InputError(place, "a node like 'node4 -- Conv2d(...) -- forward_compute_time=..., ...' was expected")
    values: dict[str, str] = {}
    for entry in re.split(r", (?=\w+=)", parts[2]):
        key, _, value = entry.partition("=")
        values[key.strip()] = value.strip()
    sizes = _sizes(values.get("activation_size"), place)
    return _Node(
        parts[0],
        parts[1],
        _quantity(values.get("forward_compute_time"), "forward_compute_time", _MAX_SECONDS, place) / _MILLISECONDS,
        _quantity(values.get("backward_compute_time"), "backward_compute_time", _MAX_SECONDS, place) / _MILLISECONDS,
        sum(sizes),
        int(_quantity(values.get("parameter_size"), "parameter_size", _MAX_BYTES, place)),
        number,
    )


def _sizes(text: str | None, place: str) -> list[int]:
    """Return the bytes of an output, of several tensors where it is a list like ``[4.0; 8.0]``."""
    parts = [text] if text is None or not text.startswith("[") else text.strip("[]").split(";")
    return [int(_quantity(part and part.strip(), "activation_size", _MAX_BYTES, place)) for part in parts]


def _quantity(text: str | None, key: str, most: float, place: str) -> float:
    if text is None:
        raise InputError(place, f"{key} is missing")
    try:
        value = float(text)
    except ValueError:
        raise InputError(place, f"{key}: a number was expected, got {text[:40]!r}") from None
    if not (math.isfinite(value) and 0 <= value <= most):
        raise InputError(place, f"{key}: expected a number from 0 to {most:g}, got {text[:40]}")
    return value


def _check_sources(nodes: dict[str, _Node], location: str) -> None:
    """Refuse several nodes that nothing leads to and that are no inputs: their real inputs are missing."""
    sources = [node.name for node in nodes.values() if not node.predecessors and not node.is_input]
    inputs = any(node.is_input for node in nodes.values())
    if len(sources) > 1 or (sources and inputs):
        raise InputError(location, f"nothing leads to {', '.join(sources[:3])}; several inputs are named Input...")


def _is_index(node: _Node) -> bool:
    """Return whether it is a sink that only takes an element of a tuple."""
    return node.description.startswith("__getitem__") and not node.successors


def _drop(nodes: dict[str, _Node], name: str) -> None:
    node = nodes.pop(name)
    for other in node.predecessors:
        nodes[other].successors.remove(name)
    for other in node.successors:
        nodes[other].predecessors.remove(name)


def _in_sequence(nodes: dict[str, _Node], location: str) -> list[_Node]:
    """Return the nodes in the sequence of their numbers, each after those that it uses.

    :raises InputError: where they use each other in a circle.
    """
    missing = {name: len(node.predecessors) for name, node in nodes.items()}
    ready = [(node.number, node.name) for node in nodes.values() if not missing[node.name]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, name = heapq.heappop(ready)
        ordered.append(nodes[name])
        for successor in nodes[name].successors:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, (nodes[successor].number, successor))
    if len(ordered) < len(nodes):
        circle = _circle(nodes, {name for name, count in missing.items() if count})
        raise InputError(location, f"these nodes use each other in a circle: {' -> '.join(circle[:8])}")
    return ordered


def _circle(nodes: dict[str, _Node], left: set[str]) -> list[str]:
    """Return nodes of which each leads to the next, and the last to the first."""
    name = min(left)
    visited: list[str] = []
    while name not in visited:
        visited.append(name)
        name = next(before for before in nodes[name].predecessors if before in left)
    return [*reversed(visited[visited.index(name) :]), visited[-1]]

"""Read profiles from files; every key is validated."""

import itertools
from pathlib import Path
from typing import Any

from plink.documents.codec import decode
from plink.documents.profile import LayerEntry, ProfileDocument
from plink.errors import InputError
from plink.model.pipeline.profile import CrossingActivation, LayerProfile, ModelProfile
from plink.model.storage import name_of, read_document

_OWN_KEYS = ("schema", "minibatch", "layers", "tied", "hosts")


def profile_from_json(document: dict[str, Any], location: str) -> ModelProfile:
    """Return a profile from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    checked = decode(ProfileDocument, document, location)
    layers: list[LayerProfile] = []
    names: dict[str, int] = {}
    for number, entry in enumerate(checked["layers"]):
        key = f"{location}: layers[{number}]"
        if entry["name"] in names:
            raise InputError(f"{key}.name", f"layers[{names[entry['name']]}] is named {entry['name']!r} too")
        names[entry["name"]] = number
        layers.append(_layer(entry, key))
    profile = ModelProfile(
        checked["minibatch"],
        tuple(layers),
        tuple(tuple(group) for group in checked.get("tied", [])),
        checked.get("hosts", {}),
        {key: value for key, value in document.items() if key not in _OWN_KEYS},
    )
    if sum(layer.compute_s for layer in layers) <= 0:
        raise InputError(f"{location}: layers", "no layer takes any time; a profile without seconds plans nothing")
    for number, group in enumerate(profile.tied):
        for name in group:
            if profile.owner_of(name) is None:
                raise InputError(f"{location}: tied[{number}]", f"no layer has the parameter {name!r}")
    return profile


def read_profile(path: str | Path) -> ModelProfile:
    """Return a profile from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`profile_from_json`, and when the file cannot be read.
    """
    return profile_from_json(read_document(path), name_of(path))


def _layer(entry: LayerEntry, key: str) -> LayerProfile:
    crossing = tuple(
        CrossingActivation(tuple(tensor["shape"]), tensor["dtype"], tensor.get("gradient", True), tensor.get("from"))
        for tensor in entry.get("crossing", [])
    )
    forward_bytes = entry["crossing_bytes"]
    back_bytes = entry.get("crossing_back_bytes", forward_bytes)
    if crossing:
        gradients = sum(tensor.size_bytes for tensor in crossing if tensor.gradient)
        back_bytes = entry.get("crossing_back_bytes", gradients)
        for name, stated, total in (
            ("crossing_bytes", forward_bytes, sum(tensor.size_bytes for tensor in crossing)),
            ("crossing_back_bytes", back_bytes, gradients),
        ):
            if stated != total:
                raise InputError(f"{key}.{name}", f"the tensors in crossing have {total} bytes, not {stated}")
    sizes = {
        "saved_before_bytes": entry.get("saved_before_bytes", 0),
        "saved_input_bytes": entry.get("saved_input_bytes", 0),
        "saved_bytes": entry.get("saved_bytes", 0),
    }
    for (part, size), (whole, limit) in itertools.pairwise(sizes.items()):
        if size > limit:
            raise InputError(f"{key}.{part}", f"it is part of {whole}, {limit}, and cannot be {size}")
    return LayerProfile(
        name=entry["name"],
        forward_s=float(entry["forward_s"]),
        backward_s=float(entry["backward_s"]),
        parameter_bytes=entry["parameter_bytes"],
        crossing_bytes=forward_bytes,
        crossing_back_bytes=back_bytes,
        kind=entry.get("kind", ""),
        crossing=crossing,
        update_s=float(entry.get("update_s", 0.0)),
        copy_s=float(entry.get("copy_s", 0.0)),
        optimiser_bytes=entry.get("optimiser_bytes", 0),
        saved_bytes=entry.get("saved_bytes"),
        saved_before_bytes=entry.get("saved_before_bytes", 0),
        saved_input_bytes=entry.get("saved_input_bytes", 0),
        saved_output_bytes=entry.get("saved_output_bytes", 0),
        aliases_input=entry.get("aliases_input", False),
        backward_bytes=entry.get("backward_bytes"),
        step_bytes=entry.get("step_bytes", 0),
        buffers=entry.get("buffers", False),
        forward_iqr_s=entry.get("forward_iqr_s"),
        backward_iqr_s=entry.get("backward_iqr_s"),
    )

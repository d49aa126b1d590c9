"""Proof at the start: all ranks have the same plan, program and model, or nothing runs."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.errors import PlinkError
from plink.model.pipeline.plan import PipelinePlan

ARGUMENTS = "arguments"
_ERROR = "error"
_LEAVING_S = 10.0  # for which rank 0 waits for ranks that may have read nothing yet


def digest_of_plan(plan: PipelinePlan) -> str:
    """Return a digest of all that a plan says."""
    return plan.fingerprint()


def digest_of_model(model: nn.Module) -> str:
    """Return a digest of the names, shapes and types of a model's parameters and buffers."""
    entries = [
        [name, list(tensor.shape), str(tensor.dtype), tensor.requires_grad]
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    ]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def digest_of_values(module: nn.Module) -> str:
    """Return a digest of the values of a module's parameters and buffers."""
    digest = hashlib.sha256()
    for tensor in [*module.parameters(), *module.buffers()]:
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(dtype=torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def read_by_all(store: Store, rank: int, ranks: int) -> Iterator[None]:
    """Leave with an error only once all ranks have one, on rank 0, whose process may have the store that says why.

    Otherwise the connection of a rank that has not read the reason yet would be reset.
    """
    try:
        yield
    except Exception:
        with contextlib.suppress(RuntimeError):  # of the store: others do not end, or have ended without a word
            if store.add("ended", 1) == ranks:
                store.set("all ended", "")
            if rank == 0:
                store.wait(["all ended"], timedelta(seconds=_LEAVING_S))
        raise


def agree(store: Store, rank: int, names: Sequence[str], stages: Sequence[int], facts: Mapping[str, str]) -> list[str]:
    """Publish this rank's facts, wait for those of all others, and compare.

    :param names: of the host of each rank. :param stages: of each rank. :param facts: by what they are of; one whose
        name begins with ``stage`` must be the same among replicas of a stage, all others among all ranks. ``arguments``
        may differ. Or ``error``: why this rank cannot take part.
    :return: what differs that may, for people; the same on every rank.
    :raises PlinkError: naming a rank that differs, or cannot take part; on every rank.
    """
    store.set(f"facts-{rank}", json.dumps(dict(facts)))
    ranks = range(len(names))
    published: list[dict[str, Any]] = [json.loads(store.get(f"facts-{other}")) for other in ranks]
    for other in ranks:
        if _ERROR in published[other]:
            raise PlinkError(f"rank {other} ({names[other]}): {published[other][_ERROR]}")
    notes = []
    for fact in published[0]:
        groups = {stages[other] for other in ranks} if fact.startswith("stage") else {None}
        for group in sorted(groups, key=str):
            members = [other for other in ranks if group is None or stages[other] == group]
            usual, _ = Counter(published[other].get(fact) for other in members).most_common(1)[0]
            differing = [other for other in members if published[other].get(fact) != usual]
            if not differing:
                continue
            like = next(member for member in members if published[member].get(fact) == usual)
            first, second = (f"rank {member} ({names[member]})" for member in (differing[0], like))
            if fact != ARGUMENTS:
                raise PlinkError(f"{first} has another {fact} than {second}; nothing was run")
            more = f" and {len(differing) - 1} more have" if len(differing) > 1 else " has"
            notes.append(f"{first}{more} other {fact} than {second}")
    return notes

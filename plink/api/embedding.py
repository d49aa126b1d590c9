"""Embed the hosts of a network in a space whose distances are the round trips without noise."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plink.api.connecting import Progress
from plink.api.smoothing import device_for, setting_json, verdict_json, verdict_on
from plink.errors import UsageError, no_choice
from plink.model.network import Network, to_rows
from plink.model.storage import write_document
from solvers.embedding.embed import Embedding
from solvers.embedding.embed import embed as fit_embedding
from solvers.embedding.fitting import STEPS
from solvers.embedding.settings import EmbeddingConstraints
from solvers.embedding.verdict import Verdict

_RELATIVE = {"auto": None, "relative": True, "absolute": False}


@dataclass(frozen=True)
class EmbedRequest:
    """A request for an embedding. ``dimension``, ``alpha`` (power of the distance, 1 to 2) and ``heights`` (what each
    host adds by itself): None is chosen by the error on pairs held out; ``loss``: errors count ``relative`` to the
    distance or ``absolute``, ``auto``: the better of the two. ``seed``: of the starts and the pairs held out;
    ``device``: ``cpu``, ``cuda`` or ``auto``."""

    dimension: int | None = None
    alpha: float | None = None
    heights: bool | None = None
    loss: str = "auto"
    seed: int = 0
    device: str = "auto"

    def check(self) -> None:
        """Refuse values out of range.

        :raises UsageError: for a value that is out of range.
        """
        if self.loss not in _RELATIVE:
            raise no_choice("--loss", self.loss, _RELATIVE)
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: cannot be negative")
        self.constraints.settings(4)

    @property
    def constraints(self) -> EmbeddingConstraints:
        """The same as the solver takes it."""
        return EmbeddingConstraints(self.dimension, self.alpha, self.heights, _RELATIVE[self.loss])


@dataclass(frozen=True)
class NetworkEmbedding:
    """An embedding of a network's hosts. ``embedding`` has coordinates and fitted round trips by the number of the
    host. ``verdict``: whether fitted round trips are nearer to fresh ones than measured ones, None: too few pairs."""

    network: Network
    embedding: Embedding
    verdict: Verdict | None
    seed: int

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of hosts without any measurement."""
        return tuple(self.network.hosts.names[host] for host in self.embedding.left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the document ``plink.embedding/1``."""
        names, embedding = self.network.hosts.names, self.embedding
        placed = np.setdiff1d(np.arange(len(names)), np.array(embedding.left_out, dtype=np.intp))
        among = np.ix_(placed, placed)
        violations = embedding.triangle_violations
        return {
            "schema": "plink.embedding/1",
            "network": self.network.fingerprint(),
            "hosts": [names[host] for host in placed],
            "left_out": list(self.left_out),
            **setting_json(embedding.setting),
            "settings_tried": embedding.tried,
            "steps": embedding.steps,
            "seed": self.seed,
            "unmeasured_by": embedding.unmeasured_by,
            "held_out_error": round(embedding.held_out_error, 6),
            "triangle_violations": None if np.isnan(violations) else round(violations, 6),
            "verdict": verdict_json(self.verdict),
            "coordinates": [[round(value, 4) for value in row] for row in embedding.coordinates[placed].tolist()],
            "heights_us": [round(value, 3) for value in embedding.heights_us[placed].tolist()],
            "fitted_us": to_rows(embedding.fitted_us[among]),
            "measured_us": to_rows(self.network.rtt_us[among]),
        }

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def embed(
    network: Network,
    request: EmbedRequest | None = None,
    *,
    progress: Progress = lambda what, done, total: None,
) -> NetworkEmbedding:
    """Embed the hosts, and validate the embedding on held-out pairs.

    :param progress: is told of the steps of ``fitting``.
    :raises UsageError: for a request that cannot be met, or a device that cannot be used.
    :raises NoAnswer: when fewer than four hosts have measured pairs, or too few pairs say where they lie.
    """
    request = request or EmbedRequest()
    request.check()
    names = network.hosts.names
    device = device_for(request.device, len(names))
    embedding = fit_embedding(
        network.latency_us, request.constraints, request.seed, device, fitting_steps(progress), names
    )
    return NetworkEmbedding(network, embedding, verdict_on(network, embedding, request.seed), request.seed)


def fitting_steps(progress: Progress) -> Callable[[], bool]:
    """Return a callback for each step of an embedding that reports progress."""
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        progress("fitting", min(steps, 2 * STEPS), 2 * STEPS)
        return True

    return step

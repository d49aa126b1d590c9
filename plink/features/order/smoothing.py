"""Replace measured round trips by those of an embedding (``--smooth-latencies``), and judge whether that helps."""

import logging
from dataclasses import dataclass, replace
from typing import Any

from plink.errors import NoAnswer
from plink.model.embedding import SmoothingVerdict
from plink.model.network import Network
from plink.model.order import Smoothing
from solvers.embedding.embed import Embedding, embed
from solvers.embedding.pairs import Setting
from solvers.embedding.verdict import validate_halves, validate_held_out

RELATIVE = {"auto": None, "relative": True, "absolute": False}  # errors, by name
_log = logging.getLogger("plink.embed")
_MIN_GPU_HOSTS = 256  # hosts from which on a GPU is worth the trip


def device_for(name: str, hosts: int) -> str:
    """Return a device as PyTorch names it; ``auto`` takes a GPU for many hosts."""
    import torch

    if name != "auto":
        return name
    return "cuda" if hosts >= _MIN_GPU_HOSTS and torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class SmoothedLatencies:
    """A network with smoothed round trips. ``network``: the same hosts with fitted round trips, also for pairs that
    were not measured; hosts of which nothing was measured have none. ``setting``: how they were fitted; ``verdict``:
    what that is worth."""

    network: Network
    setting: Setting
    verdict: SmoothingVerdict | None

    def stated(self) -> Smoothing:
        """Return what a result that uses it says of it."""
        return Smoothing(**setting_json(self.setting), verdict=self.verdict)


def smooth(network: Network, seed: int = 0, all_samples: bool = True) -> SmoothedLatencies:
    """Fit an embedding, and log how much it helps.

    :param all_samples: whether the network's round trips are those of all samples, else of one half.
    :raises NoAnswer: as :func:`solvers.embedding.embed.embed`.
    """
    names = network.hosts.names
    embedding = embed(network.latency_us, seed=seed, device=device_for("auto", len(names)), names=names)
    verdict = verdict_on(network, embedding, seed, all_samples)
    _log.info(verdict_text(verdict))
    smoothed = replace(network, latency_us=embedding.fitted_us)
    return SmoothedLatencies(
        replace(smoothed, latency_us=smoothed.completed_us), embedding.setting, verdict
    )  # of hosts nobody measured


def verdict_on(network: Network, embedding: Embedding, seed: int, all_samples: bool = True) -> SmoothingVerdict | None:
    """Return whether an embedding helps, by the other half of the samples or by held-out pairs; None with too few
    pairs."""
    device = device_for("auto", len(network.hosts))
    halves = network.half_rtts_us
    if halves:
        try:
            return validate_halves(halves, embedding, seed, device, whole=all_samples)
        except NoAnswer:
            pass  # a half may lack pairs that the whole has
    try:
        return validate_held_out(network.latency_us, embedding, seed, device, names=network.hosts.names)
    except NoAnswer:
        return None


def verdict_text(verdict: SmoothingVerdict | None) -> str:
    """Describe the verdict in a sentence."""
    if verdict is None:
        return "whether fitted distances help cannot be said: too few pairs to keep some out of the fit"
    fitted, raw, pairs = f"{verdict.fitted_error:.1%}", f"{verdict.raw_error:.1%}", f"{verdict.pairs} pairs"
    if verdict.basis == "halves":
        line = f"validated by the halves of the samples: fitted distances are {fitted} off, measured {raw} ({pairs})"
    else:
        line = f"on {pairs} that it had not seen the fit is {fitted} off, a guess from the nearest hosts {raw}"
    advice = {"helps": "--smooth-latencies helps", "hurts": "omit --smooth-latencies, it hurts"}
    return f"{line}: {advice.get(verdict.word, 'no difference')}"


def setting_json(setting: Setting) -> dict[str, Any]:
    """Return the setting as JSON."""
    return {
        "dimension": setting.dimension,
        "alpha": setting.alpha,
        "heights": setting.heights,
        "loss": "relative" if setting.relative else "absolute",
    }

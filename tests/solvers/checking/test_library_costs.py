"""What NCCL takes besides the network, fitted to made timings: three protocols, each with costs of its own."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plink.errors import NoAnswer
from plink.model.network_file import SizeCosts
from solvers.checking import CollectiveTiming
from solvers.costs.closed_forms import Order
from solvers.costs.fabric import Fabric, library_us
from solvers.library_costs import LIBRARY_ALGORITHMS, fit_library_costs, fit_pieces
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import cost_by_model
from tests.solvers.checking.test_host_costs import HOSTS, NOW, fabric

NOISE, REPEATS = 0.03, 10
# As LL, LL128 and Simple are: latencies rise, costs of bytes fall.
PLANTED = (
    SizeCosts(from_bytes=0, fixed_us=2_000, byte_ns=30),
    SizeCosts(from_bytes=400_000, fixed_us=9_000, byte_ns=6),
    SizeCosts(from_bytes=6_000_000, fixed_us=30_000, byte_ns=0.5),
)
SIZES = [65_536 * 2**k for k in range(11)]  # 64 KB to 64 MB
HELD_OUT = [100_000, 250_000, 700_000, 1_500_000, 12_000_000, 50_000_000]


# Of the ring: an operation of many steps takes longer.
RING_PLANTED = tuple(replace(piece, fixed_us=6 * piece.fixed_us, byte_ns=piece.byte_ns / 2) for piece in PLANTED)


def timing(algo: str, size: int, rng: np.random.Generator, tree_up_to: float = math.inf) -> CollectiveTiming:
    """``tree_up_to``: for nccl, which takes the ring from there, with costs of its own."""
    is_ring = algo == "nccl" and size > tree_up_to
    run = algo if algo != "nccl" else "nccl-ring" if is_ring else "nccl-tree"
    extra_us = library_us(RING_PLANTED if is_ring or (tree_up_to < math.inf and algo == "nccl-ring") else PLANTED, size)
    network_us = cost_by_model(run, HOSTS, Options(), fabric(), size, "contention")(np.arange(HOSTS))
    seconds = (network_us + extra_us) / 1e6 * np.exp(NOISE * rng.standard_normal(REPEATS))
    return CollectiveTiming(algo, Options(), np.arange(HOSTS), size, tuple(seconds.tolist()))


@pytest.mark.parametrize("algo", ["nccl-ring", "nccl-tree"])
def test_sizes_that_were_not_timed_are_predicted(algo: str) -> None:
    rng = np.random.default_rng(5)
    (costs,) = fit_library_costs(fabric(), [timing(algo, size, rng) for size in SIZES], "contention", NOW)
    assert costs.error < NOISE
    assert [row.size_bytes for row in costs.fitted] == SIZES
    calibrated = Fabric(**{**vars(fabric()), "library_costs": (costs,)})
    for size in HELD_OUT:
        predicted = cost_by_model(algo, HOSTS, Options(), calibrated, size, "contention")(np.arange(HOSTS))
        alone = cost_by_model(algo, HOSTS, Options(), fabric(), size, "contention")(np.arange(HOSTS))
        assert predicted == pytest.approx(alone + library_us(PLANTED, size), rel=0.1)


@pytest.mark.parametrize("first_ring", [0, 1, 4, 10, 11])
def test_nccl_s_own_choice_is_predicted(first_ring: int) -> None:
    """From timings of all three: the ring from the planted size on, never or always; other sizes within 10 %."""
    rng = np.random.default_rng(6)
    bounds = [0, *(size * 1.4 for size in SIZES)]
    tree_up_to = bounds[first_ring]
    timings = [timing(algo, size, rng, tree_up_to) for algo in LIBRARY_ALGORITHMS for size in SIZES]
    entries = fit_library_costs(fabric(), timings, "contention", NOW)
    assert [entry.algo for entry in entries] == list(LIBRARY_ALGORITHMS)
    assert entries[-1].error < NOISE
    calibrated = Fabric(**{**vars(fabric()), "library_costs": entries})
    for size in HELD_OUT:
        predicted = cost_by_model("nccl", HOSTS, Options(), calibrated, size, "contention")(np.arange(HOSTS))
        run, planted = ("nccl-tree", PLANTED) if size <= tree_up_to else ("nccl-ring", RING_PLANTED)
        alone = cost_by_model(run, HOSTS, Options(), fabric(), size, "contention")(np.arange(HOSTS))
        assert predicted == pytest.approx(alone + library_us(planted, size), rel=0.1)


@pytest.mark.parametrize("norm", [1, 2, 8])
def test_what_is_done_side_by_side_shows_in_two_orders(norm: int) -> None:
    """A third order is predicted, whether network and library take turns or not; from one order that cannot be told."""
    rng = np.random.default_rng(8)
    drawn = sorted(
        (rng.permutation(HOSTS) for _ in range(40)),
        key=lambda order: cost_by_model("nccl-ring", HOSTS, Options(), fabric(), 1e6, "contention")(order),
    )
    scale = 0.1  # of the library: about what the network takes

    def us(order: Order, size: float) -> float:
        network_us = cost_by_model("nccl-ring", HOSTS, Options(), fabric(), size, "contention")(order)
        return float((network_us**norm + (scale * library_us(PLANTED, size)) ** norm) ** (1 / norm))

    def timed(order: Order, size: int) -> CollectiveTiming:
        seconds = us(order, size) / 1e6 * np.exp(NOISE * rng.standard_normal(REPEATS))
        return CollectiveTiming("nccl-ring", Options(), order, size, tuple(seconds.tolist()))

    timings = [timed(order, size) for order in (drawn[0], drawn[20], drawn[-1]) for size in SIZES]
    (costs,) = fit_library_costs(fabric(), timings, "contention", NOW)
    calibrated = Fabric(**{**vars(fabric()), "library_costs": (costs,)})
    for order in (drawn[10], drawn[30]):
        for size in HELD_OUT:
            predicted = cost_by_model("nccl-ring", HOSTS, Options(), calibrated, size, "contention")(order)
            assert predicted == pytest.approx(us(order, size), rel=0.1)
    (alone,) = fit_library_costs(fabric(), timings[: len(SIZES)], "contention", NOW)
    assert alone.norm == 1


def test_a_choice_needs_costs_of_both() -> None:
    """Fitted before or now; without them nothing is told."""
    rng = np.random.default_rng(7)
    own = [timing("nccl", size, rng, 1e6) for size in SIZES]
    trees = [timing("nccl-tree", size, rng, 1e6) for size in SIZES]
    with pytest.raises(NoAnswer, match="nccl-ring"):
        fit_library_costs(fabric(), [*own, *trees], "contention", NOW)
    rings = fit_library_costs(fabric(), [timing("nccl-ring", size, rng, 1e6) for size in SIZES], "contention", NOW)
    *_, choice = fit_library_costs(fabric(), [*own, *trees], "contention", NOW, rings)
    assert choice.tree_up_to_bytes == pytest.approx(1e6, rel=0.5)


def test_protocols_are_recovered() -> None:
    """Without noise, as planted; where nothing differs there is one piece."""
    sizes = np.array(SIZES, dtype=float)
    extra_us = np.array([library_us(PLANTED, size) for size in SIZES])
    fitted = fit_pieces(sizes, extra_us, extra_us)
    assert [piece.fixed_us for piece in fitted] == pytest.approx([piece.fixed_us for piece in PLANTED], rel=1e-3)
    assert [piece.byte_ns for piece in fitted] == pytest.approx([piece.byte_ns for piece in PLANTED], rel=1e-3)
    for piece, planted in zip(fitted, PLANTED, strict=True):
        assert planted.from_bytes / 2 <= piece.from_bytes <= planted.from_bytes * 2
    (single,) = fit_pieces(sizes, 500 + 0.001 * sizes, 500 + 0.001 * sizes)
    assert (single.fixed_us, single.byte_ns) == pytest.approx((500, 1), rel=1e-3)


@given(st.lists(st.floats(1.0, 1e6), min_size=4, max_size=11))
def test_no_cost_is_negative(times_us: list[float]) -> None:
    """Whatever was timed, in pieces by size from 0 on."""
    measured = np.array(times_us)
    pieces = fit_pieces(np.array(SIZES[: len(measured)], dtype=float), measured - 1e5, measured)
    starts = [piece.from_bytes for piece in pieces]
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert all(piece.fixed_us >= 0 and piece.byte_ns >= 0 for piece in pieces)


def test_too_few_sizes_tell_nothing() -> None:
    rng = np.random.default_rng(5)
    with pytest.raises(NoAnswer, match="4 sizes"):
        fit_library_costs(fabric(), [timing("nccl-ring", size, rng) for size in SIZES[:3]], "contention", NOW)

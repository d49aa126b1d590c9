"""Schedules of all kinds, as a hypothesis strategy."""

from hypothesis import strategies as st

from plink.model.schedule import Schedule
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from tests.solvers.spanning.networks import small, tree


@st.composite
def schedules(draw: st.DrawFn, most_ranks: int = 16) -> Schedule:
    """An all-reduce of 2 to so many ranks, by any algorithm of the catalogue and with any of its options.

    Without hubs, which are ranks that contribute nothing."""
    ranks = draw(st.integers(2, most_ranks))
    algo = draw(st.sampled_from(sorted(set(ALGORITHMS) - {"phub", "phub-2l"})))
    taken = ALGORITHMS[algo].options
    options = {}
    if "groups" in taken:
        owner = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
        options["groups"] = [[r for r in range(ranks) if owner[r] == g] for g in sorted(set(owner))]
    if "fan_out" in taken:
        options["fan_out"] = draw(st.integers(1, 4))
    if "base" in taken:
        options["base"], levels = draw(
            st.sampled_from([(b, k) for b in range(2, 6) for k in range(1, 5) if b**k <= most_ranks])
        )
        ranks = options["base"] ** levels
    if "segments" in taken:
        options["segments"] = draw(st.integers(1, 5))
    if "tree" in taken:
        options["tree"] = tree(*small(ranks, draw(st.integers(0, 99)), draw(st.booleans())))
    if "sharded" in taken:
        options["sharded"] = draw(st.booleans())
        options["colocated"] = True
    return schedule_for(algo, ranks, Options(**options))

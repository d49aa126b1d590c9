"""What can be asked of the generators: numbers of ranks with options that fit."""

from hypothesis import strategies as st

from solvers.schedules.catalogue import Options

RANKS = st.integers(2, 40)


@st.composite
def partitions(draw: st.DrawFn, ranks: int) -> list[list[int]]:
    """Groups of all ranks, of any sizes, in any order."""
    group_of = draw(st.lists(st.integers(0, 5), min_size=ranks, max_size=ranks))
    order = draw(st.permutations(range(ranks)))
    groups = [[rank for rank in order if group_of[rank] == g] for g in range(6)]
    return [group for group in groups if group]


@st.composite
def requests(draw: st.DrawFn, algo: str, most: int = 40) -> tuple[int, Options]:
    """A number of ranks and options that fit the algorithm."""
    ranks = draw(st.integers(2, most))
    if algo in ("bcube", "bml", "multi-ring"):
        base, levels = draw(st.sampled_from([(b, k) for b in range(2, most + 1) for k in range(1, 6) if b**k <= most]))
        return base**levels, draw(st.sampled_from([Options(base=base), Options(base=7, levels=levels)]))
    if algo == "ps":
        sharded, colocated = draw(st.booleans()), draw(st.booleans())
        servers = draw(st.none() | st.integers(1, ranks - 1 if sharded else 1)) if not colocated else None
        root = draw(st.integers(0, ranks - 1))
        return ranks, Options(sharded=sharded, colocated=colocated, servers=servers, root=root)
    if algo in ("phub", "phub-2l"):
        hubs = draw(st.integers(1, min(5, ranks // 2)))
        weights = draw(st.none() | st.lists(st.integers(1, 9), min_size=hubs, max_size=hubs))
        racks = [[*range(k, ranks - hubs, hubs), ranks - hubs + k] for k in range(hubs)]
        pieces = draw(st.none() | st.integers(1, 20))
        groups = racks if algo == "phub-2l" else None
        return ranks, Options(servers=hubs, weights=weights, groups=groups, segments=pieces)
    groups = draw(partitions(ranks)) if algo == "2lha" else None
    return ranks, Options(fan_out=draw(st.integers(1, 8)), segments=draw(st.integers(1, 4)), groups=groups)

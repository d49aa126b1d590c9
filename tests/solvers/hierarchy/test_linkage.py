"""Average linkage is what SciPy's is, to the last bit, also where many hosts are equally far."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from plink.model.network import Matrix
from solvers.hierarchy.tiers import average_linkage


def _cost(n: int, seed: int, few: bool) -> Matrix:
    rng = np.random.default_rng(seed)
    drawn = np.triu(rng.integers(1, 6, (n, n)) if few else rng.lognormal(size=(n, n)), 1).astype(np.float64)
    return np.asarray(drawn + drawn.T)


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_heights_and_clusters_are_those_of_scipy(n: int, seed: int, few: bool) -> None:
    cost = _cost(n, seed, few)
    expected = linkage(squareform(cost), "average")
    tree = average_linkage(cost)
    assert np.array_equal(tree.heights, expected[:, 2])
    for height in (*tree.heights, *(tree.heights[1:] + tree.heights[:-1]) / 2):
        theirs, ours = fcluster(expected, height, "distance"), tree.cut(height)
        assert np.array_equal(theirs[:, None] == theirs, ours[:, None] == ours)
        assert list(dict.fromkeys(ours.tolist())) == list(range(int(ours.max()) + 1))

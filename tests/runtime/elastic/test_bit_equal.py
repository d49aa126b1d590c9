"""The example programs learn what they always learnt: integers to the bit, floats to what processors differ by. To the
bit on one machine: ``python -m tests.runtime.elastic.checksums``."""

import numpy as np
import pytest

from tests.runtime.elastic.checksums import WORKERS, checksum, learn

COUNTS = "78861dfd30eb3723beecb5b6dcfe83739348f35889df36b29fe4eded2c194c58"
# Of the first iterations.
OBJECTIVES = {
    "factors": [0.2488367687, 0.2405567787, 0.2132124704, 0.1689861399, 0.1397115179, 0.1195522988],
    "classes": [1.2705176061, 0.8761301395],
    "topics": [4.6500182603, 4.4103070604, 4.3472789359, 4.2774333965, 4.2023532240, 4.1392050704],
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("program", OBJECTIVES)
def test_examples_learn_what_they_always_did(program: str, workers: int) -> None:
    trained = learn(program, workers)
    wanted = OBJECTIVES[program]
    np.testing.assert_allclose(trained.objectives[: len(wanted)], wanted, rtol=1e-6)
    if program == "topics":
        assert checksum(trained, "i") == COUNTS
    assert checksum(learn(program, workers)) == checksum(trained)

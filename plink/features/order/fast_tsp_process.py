"""fast-tsp (Or-opt; MIT) in a process of its own, beside plink's search for a ring.

Its tours of many hosts are better than ours in equal time, but it ends by the clock, so it never runs where a number of
moves is the limit. A process can be ended at any time; a call in a thread cannot. It ends with plink, however
that ends.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from fast_tsp import find_tour

from plink.model.network import Matrix
from plink.transport.supervisor import die_with

_LARGEST_DISTANCE = 65_535  # it takes whole numbers of 16 bits
_POLL_S, _GRACE_S = 0.05, 2.0  # late tours of a busy machine are better than none


class FastTsp:
    """A running search that ends at a deadline; a :class:`solvers.ordering.problem.RingEngine`."""

    def __init__(self, cost: Matrix, deadline: float) -> None:
        """Start the search.

        :param cost: shape (N, N), symmetric, complete. :param deadline: by ``time.monotonic()``.
        """
        self._deadline = deadline
        module = [sys.executable, "-m", __name__, str(len(cost)), str(deadline), str(os.getpid())]
        self._process = subprocess.Popen(
            module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # it failed: plink's ring is there
            stdin.write(whole_numbers(cost).tobytes())
        self._process.stdin = None  # so that communicate() leaves it

    def tour(self, keep_going: Callable[[], bool]) -> npt.NDArray[np.int64] | None:
        """Wait for the tour, shape (N,); None where ``keep_going`` ends the wait before the deadline."""
        output = b""
        while not output:
            try:
                output, _ = self._process.communicate(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                late_s = time.monotonic() - self._deadline
                if late_s > _GRACE_S or (late_s < -_POLL_S and not keep_going()):
                    return None
            else:
                break
        return np.frombuffer(output, dtype=np.int64).copy() if output else None

    def end(self) -> None:
        """End the search, if it still runs."""
        self._process.kill()
        self._process.communicate()


def whole_numbers(cost: Matrix) -> npt.NDArray[np.uint16]:
    """Return costs as 16-bit integers: unchanged where they are such, else as shares of the largest."""
    whole = np.rint(cost)
    if cost.max(initial=0.0) > _LARGEST_DISTANCE or not np.array_equal(whole, cost):
        whole = np.rint(cost * (_LARGEST_DISTANCE / cost.max()))
    return whole.astype(np.uint16)


def main() -> None:
    """Read distances, search until the deadline, and write the tour."""
    hosts, deadline, parent = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    if not die_with(parent):
        return
    distances = np.frombuffer(sys.stdin.buffer.read(), dtype=np.uint16).reshape(hosts, hosts)
    tour = find_tour(distances, duration_seconds=max(0.01, deadline - time.monotonic()))
    sys.stdout.buffer.write(np.array(tour, dtype=np.int64).tobytes())


if __name__ == "__main__":
    main()

"""Segments of pipelined algorithms, as libraries choose them by the size of the vector.

NCCL 2.20 to 2.30 (NVIDIA/nccl 5067397c, ``calcCollChunking`` in src/enqueue.cc and ``ncclTopoTuneModel`` in
src/graph/tuning.cc): one NIC has two channels, one for each tree, with half of the vector each. Under the protocol
Simple a chunk is one of the 8 steps of a buffer of 4 MiB at every size, 512 KiB; under LL it is 32 KiB. The tuner takes
LL for small vectors alone: its tables give LL 9 us less a hop and 1/3.8 of Simple's bandwidth, so that for 64 hosts at
10 Gbit/s Simple is faster from some 20 kB on, which is one chunk of either. LL128, for NVLink machines, is left out.
(NCCL up to 2.19 cut vectors of fewer than 8 chunks for each level smaller, down to 32 KiB.)

Open MPI (open-mpi/ompi 8efebee7, coll_tuned_decision_fixed.c) passes a segment size of 0 for all-reduce, broadcast and
reduce at every size and number of ranks: its trees carry the vector whole unless an MCA parameter says otherwise.
"""

from dataclasses import replace

from solvers.schedules.catalogue import Options

_NCCL_BUFFER_BYTES, _NCCL_STEPS, _NCCL_TREES = 4 << 20, 8, 2
_MAX_SEGMENTS = 256  # more change the time of a tree by less than 1 % a level, and cost time to price


def library_segments(algo: str, size_bytes: float) -> int | None:
    """Return into how many segments a library cuts what each of its trees carries; None where it has no such rule."""
    if algo not in ("nccl", "nccl-tree"):
        return None
    carried_bytes = _NCCL_TREES * _NCCL_BUFFER_BYTES / _NCCL_STEPS
    return int(min(_MAX_SEGMENTS, max(1.0, -(-size_bytes // carried_bytes))))


def options_at(options: Options, algo: str, size_bytes: float) -> Options:
    """Return the options with the segments that the algorithm's library takes for that size, unless they are set."""
    segments = library_segments(algo, size_bytes) if options.segments is None else None
    return options if segments is None else replace(options, segments=segments)

from benchmarks.stale import forget_stale

forget_stale()

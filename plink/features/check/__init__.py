"""Checks: whether the cost model ranks orders as the clock does, and whether measured distances are true."""

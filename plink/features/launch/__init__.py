"""Launches: programs run as the ranks of a job, in an order, and verified where they run."""

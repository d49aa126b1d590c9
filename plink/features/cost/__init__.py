"""Costs: what a collective takes on a measured network, by round and bottleneck."""

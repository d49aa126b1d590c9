"""Hierarchical clustering of latencies into tiers."""

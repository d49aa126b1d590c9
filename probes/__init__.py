"""Probing: measures the network between hosts, and decides nothing."""
